import { isIPv4, isIPv6, type Socket } from 'node:net';
import { parseAddress } from '../base/network.ts';

/** PROXY protocol, versions 1 and 2, by haproxy.org/download/3.0/doc/proxy-protocol.txt. */

const V1_START = Buffer.from('PROXY ', 'latin1');
/** Maximum length of a header of version 1, with its end (§2.1). */
const V1_MAX = 107;
const V1_LINE = /^PROXY TCP([46]) ([\da-fA-F.:]+) ([\da-fA-F.:]+) (\d{1,5}) (\d{1,5})$/;
const V2_START = Buffer.from('\r\n\r\n\0\r\nQUIT\n', 'latin1');
const V2_FIXED = 16;
/** Maximum length of a header of version 2, in bytes: a certificate fits in its fields. */
const V2_MAX = 16 * 1024;
/** Type of the field with the checksum (§2.2.3). */
const CRC32C = 0x03;
const EMPTY = Buffer.alloc(0);

/** Why a connection of a proxy is refused. */
export type ProxyHeaderError = 'malformed' | 'unsupported' | 'checksum' | 'incomplete' | 'timeout';

interface ProxyHeader {
  /** Length in bytes. */
  readonly length: number;
  /** Address of the client; undefined: the connection is the proxy's own, such as a health check. */
  readonly address: string | undefined;
}

/** Reads the header that begins with the first byte; 'more' if its end is not there. */
export function readProxyHeader(bytes: Buffer): ProxyHeader | ProxyHeaderError | 'more' {
  if (startsAs(bytes, V1_START)) return readText(bytes);
  return startsAs(bytes, V2_START) ? readBinary(bytes) : 'malformed';
}

/** True if the bytes begin with the start, or are the beginning of it. */
function startsAs(bytes: Buffer, start: Buffer): boolean {
  const length = Math.min(bytes.length, start.length);
  return bytes.compare(start, 0, length, 0, length) === 0;
}

function readText(bytes: Buffer): ProxyHeader | ProxyHeaderError | 'more' {
  const text = bytes.toString('latin1', 0, V1_MAX);
  const end = text.indexOf('\r\n');
  if (end < 0) return bytes.length < V1_MAX ? 'more' : 'malformed';
  const length = end + 2;
  const line = text.slice(0, end);
  // The rest of such a line is to be ignored (§2.1).
  if (/^PROXY UNKNOWN(?: |$)/.test(line)) return { length, address: undefined };
  const [, family, source = '', destination = '', ...ports] = V1_LINE.exec(line) ?? [];
  const isAddress = family === '4' ? isIPv4 : isIPv6;
  if (!isAddress(source) || !isAddress(destination) || !ports.every(isPort)) return 'malformed';
  return { length, address: parseAddress(source)?.toString() };
}

function isPort(text: string): boolean {
  return String(Number(text)) === text && Number(text) <= 0xffff;
}

/** Lengths of both addresses and ports by family and protocol; the other ones are not of TCP. */
const LENGTHS: ReadonlyMap<number, number> = new Map([
  [0x11, 12],
  [0x21, 36],
]);

function readBinary(bytes: Buffer): ProxyHeader | ProxyHeaderError | 'more' {
  if (bytes.length < V2_FIXED) return 'more';
  const [command = 0, family = 0] = bytes.subarray(V2_START.length);
  const length = V2_FIXED + bytes.readUInt16BE(14);
  if (command !== 0x20 && command !== 0x21) return 'malformed';
  if (length > V2_MAX) return 'unsupported';
  if (bytes.length < length) return 'more';
  const header = bytes.subarray(0, length);
  const addresses = LENGTHS.get(family);
  // LOCAL: addresses and fields are to be ignored. Without a family, the proxy does not say who the client is.
  if (command === 0x20) return { length, address: undefined };
  if (family !== 0 && addresses === undefined) return 'unsupported';
  const error = fieldsError(header, V2_FIXED + (addresses ?? 0));
  if (error !== undefined) return error;
  return { length, address: sourceIn(header, addresses) };
}

function sourceIn(header: Buffer, addresses: number | undefined): string | undefined {
  if (addresses === undefined) return undefined;
  if (addresses === 12) return header.subarray(V2_FIXED, V2_FIXED + 4).join('.');
  const groups = Array.from({ length: 8 }, (_, index) =>
    header.readUInt16BE(V2_FIXED + 2 * index).toString(16),
  );
  return parseAddress(groups.join(':'))?.toString();
}

/**
 * Walks the fields behind the addresses, and checks the checksum if there is one. A second one is refused: a header with
 * 1,400 right ones, each over all others, took three seconds.
 */
function fieldsError(header: Buffer, from: number): ProxyHeaderError | undefined {
  let at = from;
  let isChecked = false;
  while (at + 3 <= header.length) {
    const value = at + 3;
    const end = value + header.readUInt16BE(at + 1);
    if (end > header.length) return 'malformed';
    if (header[at] === CRC32C) {
      if (isChecked || end !== value + 4) return 'malformed';
      isChecked = true;
      if (checksum(header, value) !== header.readUInt32BE(value)) return 'checksum';
    }
    at = end;
  }
  return at === header.length ? undefined : 'malformed';
}

/** The polynomial of CRC-32C, reflected (RFC 3720 §B.4). */
const POLYNOMIAL = 0x82f63b78;

/** CRC-32C of a header, in which the checksum itself, at this place, counts as zero. */
export function checksum(header: Buffer, place: number): number {
  let crc = 0xffffffff;
  for (const [at, byte] of header.entries()) {
    crc ^= at >= place && at < place + 4 ? 0 : byte;
    for (let bit = 0; bit < 8; bit += 1) crc = (crc >>> 1) ^ (crc & 1 ? POLYNOMIAL : 0);
  }
  return (crc ^ 0xffffffff) >>> 0;
}

/**
 * Receives the header of a connection that has just opened, and leaves the socket paused behind it. 'none': the
 * connection was closed without a byte, as load balancers do to see whether the port is open. Never rejects.
 */
export function receiveProxyHeader(
  socket: Socket,
  limitMs: number,
): Promise<ProxyHeader | ProxyHeaderError | 'none'> {
  return new Promise((resolve) => {
    let received: Buffer = EMPTY;
    const finish = (result: ProxyHeader | ProxyHeaderError | 'none'): void => {
      clearTimeout(timer);
      socket.off('data', onData).off('end', onEnd).off('close', onEnd).pause();
      resolve(result);
    };
    const onData = (chunk: Buffer): void => {
      received = received.length === 0 ? chunk : Buffer.concat([received, chunk]);
      const read = readProxyHeader(received);
      if (read === 'more') return;
      finish(read);
      if (typeof read === 'object' && received.length > read.length) {
        socket.unshift(received.subarray(read.length));
      }
    };
    const onEnd = (): void => finish(received.length === 0 ? 'none' : 'incomplete');
    const timer = setTimeout(() => finish('timeout'), limitMs);
    // It stays: 'close' follows.
    socket.on('error', () => socket.destroy());
    socket.on('data', onData).on('end', onEnd).on('close', onEnd);
  });
}
