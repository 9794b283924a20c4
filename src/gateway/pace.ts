import type { Socket } from 'node:net';

/** How a client has to send or read a body while nothing but the client is waited for. */
export interface Pace {
  /** Longest time without a byte, in milliseconds. */
  readonly idleMs: number;
  /** Bytes per second; 0: any rate. */
  readonly minRate: number;
}

/** Number of checks in `idleMs`. */
const CHECKS = 4;

/**
 * Calls `slow` once when a client falls behind its pace, up to a quarter of `idleMs` late. `stalled`: it sent or read
 * nothing for `idleMs`; otherwise its rate is too low.
 *
 * The rate has an allowance of `idleMs`, which bytes fill up and time uses up. A window would be wrong: the system takes
 * bytes for a steady reader in steps of a third of its send buffer, which can be more than a megabyte.
 *
 * @param count bytes so far; undefined while the client is not waited for
 * @returns a function that stops the watch
 */
export function watchPace(
  { idleMs, minRate }: Pace,
  count: () => number | undefined,
  slow: (stalled: boolean) => void,
): () => void {
  const checkMs = Math.ceil(idleMs / CHECKS);
  const bytesPerCheck = (minRate * checkMs) / 1000;
  let seen = count();
  let quiet = 0;
  let allowance = CHECKS;
  const timer = setInterval(() => {
    const now = count();
    if (now === undefined) {
      quiet = 0;
      return;
    }
    const moved = now - (seen ?? now);
    seen = now;
    quiet = moved === 0 ? quiet + 1 : 0;
    allowance -= 1;
    if (moved > 0) allowance = Math.min(CHECKS, allowance + moved / bytesPerCheck);
    if (quiet < CHECKS && allowance >= 0) return;
    clearInterval(timer);
    slow(quiet >= CHECKS);
  }, checkMs).unref();
  return () => clearInterval(timer);
}

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
