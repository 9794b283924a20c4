import { reportDefect } from './expected-errors.ts';
import {
  answerCall,
  CALL_DEADLINE_MS,
  CALLS_AT_MOST,
  type CallRequest,
  type ProcessPort,
  postReply,
  readRequest,
} from './message-calls.ts';

/** Clients of one port: more than the workers of any machine. */
const SESSIONS_AT_MOST = 1_024;

export interface Closable {
  close(): Promise<void>;
}

/** A function of the service. `lateMs`: how long the call was on its way, in milliseconds. */
export type StoreFunction<Store> = (store: Store, body: unknown, lateMs: number) => Promise<unknown>;

export interface StoreServerOptions<Store> {
  /** Name of the service, which clients give. */
  readonly service: string;
  /** The functions that clients may call, by name. */
  readonly functions: ReadonlyMap<string, StoreFunction<Store>>;
  /** Opens the store of one client. `tell` sends the client an event. */
  readonly open: (tell: (body: unknown) => void) => Store;
}

/** Serves stores to clients in other processes, each client a store of its own. */
export class StoreServer<Store extends Closable> {
  readonly #options: StoreServerOptions<Store>;

  constructor(options: StoreServerOptions<Store>) {
    this.#options = options;
  }

  /** Serves the clients at the other end of the port until it is closed. */
  serve(port: ProcessPort): void {
    const { service } = this.#options;
    const sessions = new Map<string, Store>();
    const calls = new CallCount();
    const stop = port.onMessage((raw) => {
      const message = readRequest(service, raw);
      if (message?.kind === 'call') {
        const run = (): Promise<unknown> => calls.run(() => this.#carryOut(port, sessions, message));
        void answerCall(port, service, message, run);
      } else if (message !== undefined) {
        this.#end(sessions, message.session);
      }
    });
    port.onClose(() => {
      stop();
      for (const name of [...sessions.keys()]) this.#end(sessions, name);
    });
  }

  async #carryOut(
    port: ProcessPort,
    sessions: Map<string, Store>,
    { session: name, name: functionName, body, sentAt }: CallRequest & { readonly kind: 'call' },
  ): Promise<unknown> {
    const run = this.#options.functions.get(functionName);
    if (run === undefined) throw new Error('unknown function');
    // A process that hung must not carry out what its callers have given up.
    const lateMs = Math.max(0, Date.now() - sentAt);
    if (lateMs > CALL_DEADLINE_MS) throw new Error('the call came too late');
    const store = sessions.get(name) ?? this.#begin(port, sessions, name);
    return await run(store, body, lateMs);
  }

  #begin(port: ProcessPort, sessions: Map<string, Store>, name: string): Store {
    if (sessions.size >= SESSIONS_AT_MOST) throw new Error('too many clients');
    const { service, open } = this.#options;
    const store = open((body) => postReply(port, service, { kind: 'event', session: name, body }));
    sessions.set(name, store);
    return store;
  }

  #end(sessions: Map<string, Store>, name: string): void {
    const store = sessions.get(name);
    sessions.delete(name);
    store?.close().catch(reportDefect);
  }
}

/** Bounds the calls that are carried out at once. */
class CallCount {
  #running = 0;

  async run<T>(work: () => Promise<T>): Promise<T> {
    if (this.#running >= CALLS_AT_MOST) throw new Error('too many calls');
    this.#running += 1;
    try {
      return await work();
    } finally {
      this.#running -= 1;
    }
  }
}
