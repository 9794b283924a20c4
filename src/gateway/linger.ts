import type { Socket } from 'node:net';
import { watchPace } from './pace.ts';

/**
 * Time without a byte after which the connection is closed, and the limit for the whole wait, in
 * milliseconds.
 */
const IDLE_MS = 2_000;
const TOTAL_MS = 30_000;

/**
 * Reads and discards what still comes on a connection that serves no further request and whose own side has ended.
 * Closing at once would reset it, and its client could lose the response.
 */
export function lingerOn(socket: Socket): void {
  socket.resume();
  closeWhenIdle(socket);
}

/**
 * Destroys the socket when no byte comes for `IDLE_MS`, or after `TOTAL_MS`. The watch ends with the socket; the function
 * that is returned ends it before.
 */
export function closeWhenIdle(socket: Socket): () => void {
  // A socket that is closed emits no 'close' any more, and the watch would never end.
  if (socket.closed) return () => {};
  const close = (): void => void socket.destroy();
  const stop = watchPace({ idleMs: IDLE_MS, minRate: 0 }, () => socket.bytesRead, close);
  const timer = setTimeout(close, TOTAL_MS).unref();
  const end = (): void => {
    stop();
    clearTimeout(timer);
    socket.off('close', end);
  };
  socket.once('close', end);
  return end;
}
