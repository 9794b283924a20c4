import type { ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import type { Fault } from './settings.ts';

type Of<Kind extends Fault['kind']> = Extract<Fault, { kind: Kind }>;

export type ConnectionFault = Of<'reset-before-head' | 'hang' | 'garbage'>;
export type ReplyFault = Of<'endless-401' | 'no-digest' | 'status' | 'throttle'>;

/** The faults of one request, at most one of each group. */
export type RequestFaults = {
  readonly delay?: Of<'delay'> | undefined;
  /** Replaces the whole response. */
  readonly connection?: ConnectionFault | undefined;
  /** Replaces the regular response. */
  readonly reply?: ReplyFault | undefined;
  readonly cut?: Of<'reset-in-body'> | undefined;
  readonly pace?: Of<'slow-body'> | undefined;
  readonly length?: Of<'content-length'> | undefined;
};

const none: RequestFaults = {};

/** The faults of a deployment with their remaining counts. */
export class Faults {
  readonly #left: { readonly fault: Fault; times: number }[];

  constructor(faults: readonly Fault[]) {
    this.#left = faults.map((fault) => ({ fault, times: fault.times ?? Number.POSITIVE_INFINITY }));
  }

  /**
   * Selects the faults of the next request. Of several faults in a group, the first with remaining times is
   * taken, so that a list with `times` is a sequence.
   * @param accepted true if the request's Digest was accepted.
   */
  take(accepted: boolean): RequestFaults {
    if (this.#left.length === 0) return none;
    const delay = this.#next(accepted, 'delay');
    const connection = this.#next(accepted, 'reset-before-head', 'hang', 'garbage');
    // The client would not see the other faults, so they are kept for a later request.
    if (connection !== undefined) return { delay, connection };
    return {
      delay,
      reply: this.#next(accepted, 'endless-401', 'no-digest', 'status', 'throttle'),
      cut: this.#next(accepted, 'reset-in-body'),
      pace: this.#next(accepted, 'slow-body'),
      length: this.#next(accepted, 'content-length'),
    };
  }

  #next<Kind extends Fault['kind']>(accepted: boolean, ...kinds: Kind[]): Of<Kind> | undefined {
    for (const entry of this.#left) {
      const { fault } = entry;
      const applies = fault.when === 'any' || accepted === (fault.when === 'authenticated');
      if (entry.times > 0 && applies && isOf(fault, kinds)) {
        entry.times -= 1;
        return fault;
      }
    }
    return undefined;
  }
}

function isOf<Kind extends Fault['kind']>(fault: Fault, kinds: readonly Kind[]): fault is Of<Kind> {
  return kinds.some((kind) => kind === fault.kind);
}

/** The connection of a response, for faults below HTTP. */
export class FaultyConnection {
  readonly #response: ServerResponse;
  readonly #raw: Socket | undefined;
  #broken = false;

  /** @param raw the TCP socket; with TLS it differs from the response's socket. */
  constructor(response: ServerResponse, raw: Socket | undefined) {
    this.#response = response;
    this.#raw = raw;
  }

  /** True if the simulator ended the connection, not the client. */
  get broken(): boolean {
    return this.#broken;
  }

  /** Sends a TCP reset. */
  reset(): void {
    this.#broken = true;
    this.#raw?.resetAndDestroy();
  }

  /** Ends the connection after all pending bytes are sent. */
  finish(): void {
    this.#broken = true;
    this.#response.socket?.end();
  }

  /** Sends bytes that are not HTTP, then ends the connection. */
  garble(): void {
    this.#broken = true;
    this.#response.socket?.end(Buffer.from([0x15, 0x03, 0x00, 0x0a, 0x0a, 0xff, 0xfe, 0x0d, 0x0a]));
  }
}
