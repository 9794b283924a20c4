import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Cancellation } from '../base/cancellation.ts';
import type { BodySource } from '../upstream/body.ts';

/** One request of a client, and the way to its answer. */
export interface Visit {
  readonly req: IncomingMessage;
  readonly res: ServerResponse;
  /** The client waits for 100 Continue before it sends its body (RFC 9110 §10.1.1). */
  readonly expectsContinue: boolean;
  readonly cancellation: Cancellation;
  /** Lets no further request come from this connection, not even one that has been read already. */
  readonly refuseRest: () => void;
}

/** A client's body, still unread; undefined: the request has none. */
export function bodyOf(
  { req, res, expectsContinue }: Visit,
  onBytes: (count: number) => void,
): BodySource | undefined {
  const declared = req.headers['content-length'];
  if (declared === undefined && req.headers['transfer-encoding'] === undefined) return undefined;
  const open = (): IncomingMessage => {
    if (expectsContinue) res.writeContinue();
    return req;
  };
  return { length: declared === undefined ? undefined : Number(declared), open, onBytes };
}

/** Aborts if the client goes away before its answer is complete, or has gone already. */
export function onClientGone(res: ServerResponse, abort: () => void): void {
  if (res.closed) {
    abort();
    return;
  }
  res.once('close', () => {
    if (!res.writableFinished) abort();
  });
}
