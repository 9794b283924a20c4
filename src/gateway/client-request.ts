import type { IncomingMessage, ServerResponse } from 'node:http';
import type { BodySource } from '../upstream/body.ts';

/** How long a client that is still sending gets to read an answer that came early, in milliseconds. */
const LINGER_MS = 2_000;

/** A client's body, still unread; undefined: the request has none. */
export function bodyOf(
  req: IncomingMessage,
  res: ServerResponse,
  expectsContinue: boolean,
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

/** Aborts with `reason()` if the client goes away before its answer is complete. */
export function onClientGone(res: ServerResponse, abort: () => void): void {
  res.once('close', () => {
    if (!res.writableFinished) abort();
  });
}

/**
 * After an answer that did not wait for the whole body: takes what still comes, for a while. Closing at
 * once would reset the connection and with it the answer.
 */
export function linger(req: IncomingMessage): void {
  if (req.complete || req.destroyed) return;
  req.resume();
  const timer = setTimeout(() => req.socket.destroy(), LINGER_MS);
  timer.unref();
  req.once('close', () => clearTimeout(timer));
}
