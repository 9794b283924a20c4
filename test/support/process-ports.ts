import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { MessageChannel } from 'node:worker_threads';
import { ipcPort, type ProcessPort } from '../../src/base/message-calls.ts';

/** Two ports that are connected with each other. */
export interface PortPair {
  readonly ports: readonly [ProcessPort, ProcessPort];
  close(): void;
}

/** The two ends of a channel in this process. */
export function portPair(): PortPair {
  const { port1, port2 } = new MessageChannel();
  const port = (end: typeof port1): ProcessPort => ({
    post(message) {
      end.postMessage(message);
      return true;
    },
    onMessage(listener) {
      end.on('message', listener);
      return () => end.off('message', listener);
    },
    onClose(listener) {
      end.on('close', listener);
      return () => end.off('close', listener);
    },
  });
  return {
    ports: [port(port1), port(port2)],
    close() {
      port1.close();
      port2.close();
    },
  };
}

export interface PrimaryProcess {
  readonly child: ChildProcess;
  readonly port: ProcessPort;
  close(): Promise<void>;
}

/** Starts a process that serves challenges and limits to this one, as a primary process does to a worker. */
export async function startPrimary(): Promise<PrimaryProcess> {
  const program = fileURLToPath(new URL('primary-program.ts', import.meta.url));
  const child = fork(program, { serialization: 'advanced', execArgv: [] });
  const ended = once(child, 'close');
  await once(child, 'message');
  return {
    child,
    port: ipcPort(child),
    async close() {
      child.kill('SIGKILL');
      await ended;
    },
  };
}
