import { connect as connectTcp, isIP, type Socket } from 'node:net';
import { hostname } from 'node:os';
import { connect as connectTls } from 'node:tls';
import { inTime } from '../../base/clock.ts';
import { errorCode, messageOf } from '../../base/error-code.ts';
import type { CommonOptions, Delivery } from './follower.ts';
import { type ReceiverTls, secureOptions } from './receiver.ts';
import type { PlacedRecord, Shipment } from './record-source.ts';

export interface SyslogOptions extends CommonOptions {
  readonly kind: 'syslog';
  readonly host: string;
  readonly port: number;
  /** Undefined: plain TCP. */
  readonly tls: ReceiverTls | undefined;
  /** 0 to 23. */
  readonly facility: number;
  /** IANA's private enterprise number in the name of the structured data. */
  readonly enterprise: number;
}

const SEVERITY_INFO = 6;
const APP_NAME = 'digest-gateway';
/** Longest HOSTNAME (RFC 5424, section 6). */
const LONGEST_HOST = 255;
const TIME = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/;
/** Limits of the wait between the last byte and the end of the gateway's side, in milliseconds. */
const LEAST_WAIT_MS = 20;
const LONGEST_WAIT_MS = 1_000;

/**
 * A record as an RFC 5424 message with octet counting (RFC 6587, section 3.4.1; RFC 5425, section 4.3): its length stands
 * before it. The record is the line of the log as it is, without a byte order mark.
 */
export function syslogFrame(
  { replica, segment, seq, time, kind, line }: PlacedRecord,
  { facility, enterprise }: Pick<SyslogOptions, 'facility' | 'enterprise'>,
  host: string,
): Buffer {
  const place = `replica="${escaped(replica)}" segment="${escaped(segment)}" seq="${seq}"`;
  // Of a segment that another key sealed, only digests were checked.
  const when = TIME.test(time) ? time : '-';
  const name = host.replace(/[^!-~]/g, '-').slice(0, LONGEST_HOST) || '-';
  const header = `<${facility * 8 + SEVERITY_INFO}>1 ${when} ${name} ${APP_NAME} - ${kind}`;
  const message = Buffer.from(`${header} [record@${enterprise} ${place}] ${line}`);
  return Buffer.concat([Buffer.from(`${message.length} `), message]);
}

/** Escapes a value of structured data (RFC 5424, section 6.3.3). */
function escaped(value: string): string {
  return value.replace(/["\\\]]/g, '\\$&');
}

/**
 * Sends records to a syslog receiver. The protocol has no acknowledgement, so each delivery has a connection of its own:
 * the gateway ends its side, and the receiver, which reads to the end before it closes, confirms by closing. If the
 * connection fails or closes before, everything written to it counts as not delivered.
 */
export class SyslogDelivery implements Delivery<Shipment> {
  readonly #options: SyslogOptions;
  readonly #hostname = hostname();

  constructor(options: SyslogOptions) {
    this.#options = options;
  }

  async deliver({ records }: Shipment, signal: AbortSignal): Promise<number> {
    const frames = Buffer.concat(records.map((record) => syslogFrame(record, this.#options, this.#hostname)));
    const { host, port } = this.#options;
    try {
      await sendAndClose(this.#connect(), this.#options.tls === undefined, frames, signal);
      return 0;
    } catch (error) {
      const reason = errorCode(error) || messageOf(error);
      throw new Error(`${host}:${port}: ${reason}`, { cause: error });
    }
  }

  close(): Promise<void> {
    return Promise.resolve();
  }

  #connect(): Socket {
    const { host, port, tls } = this.#options;
    if (tls === undefined) return connectTcp({ host, port });
    return connectTls({
      host,
      port,
      ...secureOptions(tls),
      ...(isIP(host) === 0 && { servername: host }),
    });
  }
}

/**
 * Writes everything, ends this side, and resolves when the other side has ended after that. A receiver that closes
 * without reading, as one with too many connections does, is noticed within a round trip: so long the end waits.
 */
async function sendAndClose(
  socket: Socket,
  plain: boolean,
  bytes: Buffer,
  signal: AbortSignal,
): Promise<void> {
  const closed = Promise.withResolvers<void>();
  const opened = Promise.withResolvers<void>();
  let ending = false;
  const early = (): Error => new Error('closed by the receiver before everything was sent');
  const abort = (): void => void socket.destroy(new Error('aborted'));
  signal.addEventListener('abort', abort, { once: true });
  if (signal.aborted) abort();
  socket.once(plain ? 'connect' : 'secureConnect', opened.resolve);
  socket.on('error', closed.reject);
  socket.on('end', () => ending || socket.destroy(early()));
  socket.on('close', () => (ending ? closed.resolve() : closed.reject(early())));
  // A syslog receiver sends nothing; what it sends is not kept.
  socket.resume();
  try {
    const begun = performance.now();
    await Promise.race([opened.promise, closed.promise]);
    const roundTrips = 2 * (performance.now() - begun);
    await Promise.race([
      new Promise<void>((resolve) => socket.write(bytes, () => resolve())),
      closed.promise,
    ]);
    await inTime(closed.promise, Math.min(Math.max(roundTrips, LEAST_WAIT_MS), LONGEST_WAIT_MS));
    ending = true;
    socket.end();
    await closed.promise;
  } finally {
    signal.removeEventListener('abort', abort);
    socket.destroy();
  }
}
