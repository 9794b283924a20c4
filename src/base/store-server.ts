import {
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

/** A store in the memory of the process that serves it. */
export interface MemoryStore<Store> extends Closable {
  /** Another store with the same content, for one more process. */
  join(): Store & Closable;
  /** Takes all content out and puts it into another store. Never rejects: what that does not confirm is lost. */
  moveTo(next: Store): Promise<void>;
}

/** A function of the service. `lateMs`: how long the call was on its way, in milliseconds. */
export type StoreFunction<Store> = (store: Store, body: unknown, lateMs: number) => Promise<unknown>;

export interface StoreServerOptions<Store> {
  /** Name of the service, which clients give. */
  readonly service: string;
  readonly memory: MemoryStore<Store>;
  /** The functions that clients may call, by name. */
  readonly functions: ReadonlyMap<string, StoreFunction<Store>>;
  /** Called with each store that was opened. `tell` sends its client an event. */
  readonly onOpen?: (store: Store, tell: (body: unknown) => void) => void;
}

/**
 * Serves a store to clients in other processes. Each client has a store of its own, which is joined to the memory of
 * this process, or after `handOver` one in the process that follows this one.
 */
export class StoreServer<Store extends Closable> {
  readonly #options: StoreServerOptions<Store>;
  readonly #sessions = new Set<Session<Store>>();
  #open: () => Store;

  constructor(options: StoreServerOptions<Store>) {
    this.#options = options;
    this.#open = () => options.memory.join();
  }

  /** Serves the clients at the other end of the port until it is closed. */
  serve(port: ProcessPort): void {
    const { service } = this.#options;
    const sessions = new Map<string, Session<Store>>();
    const calls = new CallCount();
    const stop = port.onMessage((raw) => {
      const message = readRequest(service, raw);
      if (message?.kind === 'call') void this.#answer(port, sessions, calls, message);
      else if (message !== undefined) this.#end(sessions, message.session);
    });
    port.onClose(() => {
      stop();
      for (const name of [...sessions.keys()]) this.#end(sessions, name);
    });
  }

  /**
   * From now on serves each client from a store of its own that `open` returns, such as a channel to the primary
   * process of an upgrade, and moves all content there. Resolves when that is done, and never rejects.
   */
  async handOver(open: () => Store): Promise<void> {
    this.#use(open);
    const next = open();
    await this.#options.memory.moveTo(next);
    await next.close();
  }

  /** Serves from the memory of this process again: the upgrade has failed. */
  takeBack(): void {
    this.#use(() => this.#options.memory.join());
  }

  #use(open: () => Store): void {
    this.#open = open;
    for (const session of this.#sessions) session.use(open());
  }

  async #answer(
    port: ProcessPort,
    sessions: Map<string, Session<Store>>,
    calls: CallCount,
    message: CallRequest & { readonly kind: 'call' },
  ): Promise<void> {
    const { service } = this.#options;
    const { session, id } = message;
    try {
      const body = await calls.run(() => this.#carryOut(port, sessions, message));
      postReply(port, service, { kind: 'result', session, id, body });
    } catch (error) {
      const reason = error instanceof Error ? error.message : 'failed';
      postReply(port, service, { kind: 'error', session, id, reason });
    }
  }

  async #carryOut(
    port: ProcessPort,
    sessions: Map<string, Session<Store>>,
    { session: name, name: functionName, body, sentAt }: CallRequest & { readonly kind: 'call' },
  ): Promise<unknown> {
    const run = this.#options.functions.get(functionName);
    if (run === undefined) throw new Error('unknown function');
    // A process that hung must not carry out what its callers have given up.
    const lateMs = Math.max(0, Date.now() - sentAt);
    if (lateMs > CALL_DEADLINE_MS) throw new Error('the call came too late');
    const session = sessions.get(name) ?? this.#begin(port, sessions, name);
    return await run(session.store, body, lateMs);
  }

  #begin(port: ProcessPort, sessions: Map<string, Session<Store>>, name: string): Session<Store> {
    if (sessions.size >= SESSIONS_AT_MOST) throw new Error('too many clients');
    const { service, onOpen } = this.#options;
    const tell = (body: unknown): void => {
      postReply(port, service, { kind: 'event', session: name, body });
    };
    const session = new Session<Store>(this.#open(), (store) => onOpen?.(store, tell));
    sessions.set(name, session);
    this.#sessions.add(session);
    return session;
  }

  #end(sessions: Map<string, Session<Store>>, name: string): void {
    const session = sessions.get(name);
    if (session === undefined) return;
    sessions.delete(name);
    this.#sessions.delete(session);
    session.close();
  }
}

/** The store of one client. */
class Session<Store extends Closable> {
  readonly #onOpen: (store: Store) => void;
  #store: Store;

  constructor(store: Store, onOpen: (store: Store) => void) {
    this.#store = store;
    this.#onOpen = onOpen;
    onOpen(store);
  }

  get store(): Store {
    return this.#store;
  }

  use(store: Store): void {
    this.close();
    this.#store = store;
    this.#onOpen(store);
  }

  close(): void {
    this.#store.close().catch(() => undefined);
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
