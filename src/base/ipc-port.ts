import type { ProcessPort } from './message-calls.ts';

/** Messages that wait until the other process reads: those of a start with a large configuration, and no more. */
const UNSENT_AT_MOST = 16_384;

/** A child process, or the process object of a child, with an IPC channel (`serialization: 'advanced'`). */
export type IpcProcess = Pick<NodeJS.Process, 'send' | 'connected'> & NodeJS.EventEmitter;

/**
 * The port to the process at the other end of an IPC channel. Everything that talks to this process shares one port:
 * it counts the messages that the other process has not read.
 */
export function ipcPort(other: IpcProcess): ProcessPort {
  const onMessage = new Set<(message: unknown) => void>();
  const onClose = new Set<() => void>();
  let unsent = 0;
  other.on('message', (message: unknown) => {
    for (const listener of onMessage) listener(message);
  });
  other.once('disconnect', () => {
    for (const listener of onClose) listener();
  });
  return {
    post(message) {
      if (other.send === undefined || !other.connected || unsent >= UNSENT_AT_MOST) return false;
      unsent += 1;
      // Errors come to the callback; without it, a broken pipe is an 'error' event, which ends the process.
      other.send(message, undefined, undefined, () => {
        unsent -= 1;
      });
      return true;
    },
    onMessage: (listener) => added(onMessage, listener),
    onClose: (listener) => {
      if (!other.connected) setImmediate(() => onClose.delete(listener) && listener());
      return added(onClose, listener);
    },
  };
}

function added<T>(set: Set<T>, value: T): () => void {
  set.add(value);
  return () => set.delete(value);
}
