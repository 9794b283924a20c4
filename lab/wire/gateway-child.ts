import { fork } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import type { TestDeployment, TopLevel } from '../../test/support/gateway.ts';
import type { Mutation } from '../simulation/mutations.ts';

export const AUDIT_REPLICA = 'torture';

export interface GatewayOptions {
  readonly deployments: Record<string, TestDeployment>;
  readonly top: TopLevel;
  /** Left out: no audit log. */
  readonly auditDirectory?: string | undefined;
  /** Left out: the code as it is. */
  readonly mutation?: Mutation | undefined;
}

export interface GatewayState {
  /** The heap after a collection, with buffers. */
  readonly heapBytes: number;
  readonly inFlight: number;
  /** Log lines at level error since the last call. */
  readonly errors: readonly string[];
}

/** A question to the program. */
export interface GatewayCall {
  readonly id: number;
  readonly call: 'state' | 'flight' | 'close';
}

/** Its reply; id 0: it listens. */
export interface GatewayReply {
  readonly id: number;
  readonly port?: number;
  readonly state?: GatewayState;
  readonly flight?: string;
}

/** A gateway in a process of its own. */
export interface GatewayChild extends AsyncDisposable {
  readonly port: number;
  /** Resolves to what it printed if it ends by itself. */
  readonly crashed: Promise<string>;
  /** Rejects if it ends by itself. */
  state(): Promise<GatewayState>;
  /** Resolves to its flight record; rejects if it ends by itself. */
  flight(): Promise<string>;
  /** Ends it, in order if it can. */
  close(): Promise<void>;
}

const PROGRAM = fileURLToPath(new URL('gateway-program.ts', import.meta.url));
/** A gateway without requests closes in a hundredth of it, in milliseconds. */
const CLOSE_LIMIT_MS = 60_000;

export function readGatewayOptions(text: string): GatewayOptions {
  return JSON.parse(text);
}

/** Resolves when it listens. */
export async function startGatewayChild(options: GatewayOptions): Promise<GatewayChild> {
  const child = fork(PROGRAM, [JSON.stringify(options)], {
    execArgv: ['--expose-gc', '--min-semi-space-size=8', '--max-semi-space-size=8'],
    stdio: ['ignore', 'ignore', 'pipe', 'ipc'],
  });
  let printed = '';
  child.stderr?.setEncoding('utf8').on('data', (text: string) => {
    printed = (printed + text).slice(-4_000);
  });
  const ended = once(child, 'close');
  let isClosing = false;
  const crashed = new Promise<string>((resolve) => {
    void ended.then(([code, signal]) => {
      if (!isClosing) resolve(`the gateway ended with ${signal ?? code}: ${printed}`);
    });
  });
  const waiting = new Map<number, (reply: GatewayReply) => void>();
  child.on('message', (reply: GatewayReply) => {
    waiting.get(reply.id)?.(reply);
    waiting.delete(reply.id);
  });
  let calls = 0;
  const replyTo = (id: number): Promise<GatewayReply> =>
    new Promise((resolve, reject) => {
      waiting.set(id, resolve);
      void crashed.then((text) => reject(new Error(text)));
    });
  const close = async (): Promise<void> => {
    isClosing = true;
    if (child.connected) child.send({ id: -1, call: 'close' } satisfies GatewayCall);
    const timer = setTimeout(() => child.kill('SIGKILL'), CLOSE_LIMIT_MS);
    await ended;
    clearTimeout(timer);
  };
  const { port = 0 } = await replyTo(0);
  const ask = (call: GatewayCall['call']): Promise<GatewayReply> => {
    calls += 1;
    const replied = replyTo(calls);
    child.send({ id: calls, call } satisfies GatewayCall);
    return replied;
  };
  return {
    port,
    crashed,
    state: async () => {
      const { state } = await ask('state');
      if (state === undefined) throw new Error('the gateway said nothing of its state');
      return state;
    },
    flight: async () => (await ask('flight')).flight ?? '',
    close,
    [Symbol.asyncDispose]: close,
  };
}
