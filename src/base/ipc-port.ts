import type { ProcessPort } from './message-calls.ts';

/** Messages that wait until the other process reads: those of a start with a large configuration, and no more. */
const UNSENT_AT_MOST = 16_384;
/** Messages that are sent together. */
const SENT_TOGETHER = 512;
/** Time for reading the last messages of a process that has ended, in milliseconds. */
const LAST_MESSAGES_MS = 1_000;

/** A child process, or the process object of a child, with an IPC channel (`serialization: 'advanced'`). */
export type IpcProcess = Pick<NodeJS.Process, 'send' | 'connected'> & NodeJS.EventEmitter;

export interface IpcPort extends ProcessPort {
  /** Resolves when every message so far is written, or lost. */
  flushed(): Promise<void>;
}

/**
 * The port to the process at the other end of an IPC channel, which has such a port, too. Everything that talks to this
 * process shares one port: it counts the messages that the other process has not read. Other messages can use the
 * channel as well; the port leaves them alone.
 */
export function ipcPort(other: IpcProcess): IpcPort {
  const onMessage = new Set<(message: unknown) => void>();
  const onClose = new Set<() => void>();
  const waiting: unknown[] = [];
  let unsent = 0;
  const onFlushed: (() => void)[] = [];
  const written = (count: number): void => {
    unsent -= count;
    if (unsent === 0) for (const resolve of onFlushed.splice(0)) resolve();
  };
  other.on('message', (received: unknown) => {
    for (const message of messagesIn(received)) for (const listener of onMessage) listener(message);
  });
  const close = (): void => {
    for (const listener of onClose) {
      onClose.delete(listener);
      listener();
    }
  };
  other.once('disconnect', close);
  // Node.js emits no 'disconnect' for a child that ended with a handle on its way, as a connection that it did not take.
  other.once('exit', () => setTimeout(close, LAST_MESSAGES_MS).unref());
  const send = (): void => {
    const together = waiting.splice(0);
    if (together.length === 0) return;
    if (!other.connected) {
      written(together.length);
      return;
    }
    // Errors come to the callback; without it, a broken pipe is an 'error' event, which ends the process.
    other.send?.({ portMessages: together }, undefined, undefined, () => written(together.length));
  };
  return {
    post(message) {
      if (other.send === undefined || !other.connected || unsent >= UNSENT_AT_MOST) return false;
      unsent += 1;
      // Most of the cost of a message is that of waking the other process, so those of one turn are sent together.
      if (waiting.push(message) === 1) setImmediate(send);
      else if (waiting.length >= SENT_TOGETHER) send();
      return true;
    },
    flushed: () => (unsent === 0 ? Promise.resolve() : new Promise((resolve) => onFlushed.push(resolve))),
    onMessage: (listener) => added(onMessage, listener),
    onClose: (listener) => {
      if (!other.connected) setImmediate(() => onClose.delete(listener) && listener());
      return added(onClose, listener);
    },
  };
}

function messagesIn(received: unknown): readonly unknown[] {
  if (typeof received !== 'object' || received === null || !('portMessages' in received)) return [];
  return Array.isArray(received.portMessages) ? received.portMessages : [];
}

function added<T>(set: Set<T>, value: T): () => void {
  set.add(value);
  return () => set.delete(value);
}
