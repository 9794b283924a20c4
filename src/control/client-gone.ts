import type { Response } from 'express';

/** A signal of the end of the connection of a client, which may have left already: then no `close` follows. */
export function clientGone(res: Response): AbortSignal {
  const gone = new AbortController();
  if (res.destroyed) gone.abort();
  else res.once('close', () => gone.abort());
  return gone.signal;
}
