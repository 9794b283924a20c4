import { z } from 'zod';
import { messageOf } from './error-code.ts';
import { reportDefect } from './expected-errors.ts';

/** Milliseconds after which a call is given up. */
export const CALL_DEADLINE_MS = 1_000;
/** Calls under way at once: more than all keys and limits of a large configuration, which a start asks for together. */
export const CALLS_AT_MOST = 16_384;
/** Reason of a call whose deadline has passed. */
export const NO_REPLY = 'no reply in time';
const LONGEST_NAME = 64;
const LONGEST_REASON = 500;

/** One end of a connection between two processes. Messages are structured clones, and arrive in order. */
export interface ProcessPort {
  /** Sends a message. False: the connection is closed, or too many messages wait to be sent. Never throws. */
  post(message: unknown): boolean;
  /** Calls the listener with each message from now on. The result ends that. */
  onMessage(listener: (message: unknown) => void): () => void;
  /** Calls the listener when the connection is closed, and soon if it is closed already. The result ends that. */
  onClose(listener: () => void): () => void;
}

/** Messages that wait until the other process reads: those of a start with a large configuration, and no more. */
const UNSENT_AT_MOST = 16_384;
/** Messages that are sent together. */
const SENT_TOGETHER = 512;
/** Time for reading the last messages of a process that has ended, in milliseconds. */
const LAST_MESSAGES_MS = 1_000;

/** A child process, or the process object of a child, with an IPC channel (`serialization: 'advanced'`). */
type IpcProcess = Pick<NodeJS.Process, 'send' | 'connected'> & NodeJS.EventEmitter;

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

/*
 * The messages. The ends can be of different versions during an upgrade: unknown fields are ignored, and what cannot
 * be read is dropped, so that its call fails by its deadline.
 */

const name = z.string().min(1).max(LONGEST_NAME);
const id = z.int().min(0);

/** A message of a client. `sentAt`: wall clock, which is one clock for all processes of a machine. */
const request = z.discriminatedUnion('kind', [
  z.object({ kind: z.literal('call'), session: name, id, name, body: z.unknown(), sentAt: z.number() }),
  z.object({ kind: z.literal('end'), session: name }),
]);
type CallRequest = z.output<typeof request>;

/** A message of a server. */
const reply = z.discriminatedUnion('kind', [
  z.object({ kind: z.literal('result'), session: name, id, body: z.unknown() }),
  z.object({ kind: z.literal('error'), session: name, id, reason: z.string().max(LONGEST_REASON) }),
  z.object({ kind: z.literal('event'), session: name, body: z.unknown() }),
]);
type CallReply = z.output<typeof reply>;

const envelope = z.object({ service: name, side: z.enum(['client', 'server']), message: z.unknown() });

/** Sends a message of a client to the server of this service. */
function postRequest(port: ProcessPort, service: string, message: CallRequest): boolean {
  return port.post({ service, side: 'client', message });
}

/** Sends a message of the server of this service to a client. */
function postReply(port: ProcessPort, service: string, message: CallReply): boolean {
  const short =
    message.kind === 'error' ? { ...message, reason: message.reason.slice(0, LONGEST_REASON) } : message;
  return port.post({ service, side: 'server', message: short });
}

/** Answers a call with the result of `run`, or with the message of its error. Never rejects. */
async function answerCall(
  port: ProcessPort,
  service: string,
  { session, id }: CallRequest & { readonly kind: 'call' },
  run: () => unknown,
): Promise<void> {
  try {
    postReply(port, service, { kind: 'result', session, id, body: await run() });
  } catch (error) {
    postReply(port, service, { kind: 'error', session, id, reason: messageOf(error) });
  }
}

/** Reads a message of a client to this service; undefined: it is something else. */
function readRequest(service: string, message: unknown): CallRequest | undefined {
  return request.safeParse(opened(service, 'client', message)).data;
}

function opened(service: string, side: 'client' | 'server', message: unknown): unknown {
  const { data } = envelope.safeParse(message);
  return data?.service === service && data.side === side ? data.message : undefined;
}

interface PendingCall {
  readonly functionName: string;
  readonly resolve: (body: unknown) => void;
  readonly reject: (error: Error) => void;
  readonly deadline: NodeJS.Timeout | undefined;
}

interface CallClientOptions {
  readonly port: ProcessPort;
  /** Name of the service at the other end. */
  readonly service: string;
  /** Called with the body of each event that the server sends. */
  readonly onEvent?: (body: unknown) => void;
}

/** Calls a service in another process. To the service, each client is a process of its own, whatever port it uses. */
export class CallClient {
  readonly #options: CallClientOptions;
  readonly #session = crypto.randomUUID();
  readonly #pending = new Map<number, PendingCall>();
  readonly #detach: (() => void)[];
  #calls = 0;
  /** Undefined: open. */
  #closed: string | undefined;

  constructor(options: CallClientOptions) {
    this.#options = options;
    const { port } = options;
    this.#detach = [
      port.onMessage((message) => this.#receive(message)),
      port.onClose(() => this.#end('the other process has closed the connection')),
    ];
  }

  /**
   * Calls a function of the service. Rejects with its error, at once when the connection closes, and after
   * `deadlineMs` milliseconds (infinite: never); then it may have been carried out all the same.
   */
  call(functionName: string, body: unknown, deadlineMs = CALL_DEADLINE_MS): Promise<unknown> {
    const { port, service } = this.#options;
    const { promise, resolve, reject } = Promise.withResolvers<unknown>();
    const refused = this.#closed ?? (this.#pending.size >= CALLS_AT_MOST ? 'too many calls' : undefined);
    if (refused !== undefined) return Promise.reject(new Error(`${functionName}: ${refused}`));
    this.#calls += 1;
    const call = this.#calls;
    // Replies that came while this process was busy are read before the deadline counts.
    const late = (): void => void setImmediate(() => this.#fail(call, NO_REPLY));
    const deadline = Number.isFinite(deadlineMs) ? setTimeout(late, deadlineMs) : undefined;
    this.#pending.set(call, { functionName, resolve, reject, deadline });
    const message = { kind: 'call', session: this.#session, id: call, name: functionName, body } as const;
    if (!postRequest(port, service, { ...message, sentAt: Date.now() })) {
      this.#fail(call, 'the message could not be sent');
    }
    return promise;
  }

  /** Rejects the calls under way, and ends the session at the server. */
  close(): void {
    if (this.#closed !== undefined) return;
    const { port, service } = this.#options;
    postRequest(port, service, { kind: 'end', session: this.#session });
    this.#end('the client is closed');
  }

  #receive(message: unknown): void {
    const { data } = reply.safeParse(opened(this.#options.service, 'server', message));
    if (data?.session !== this.#session) return;
    if (data.kind === 'event') this.#options.onEvent?.(data.body);
    else if (data.kind === 'result') this.#settle(data.id)?.resolve(data.body);
    else this.#fail(data.id, data.reason);
  }

  #fail(call: number, reason: string): void {
    const pending = this.#settle(call);
    pending?.reject(new Error(`${pending.functionName}: ${reason}`));
  }

  /** The call, which is no longer pending. */
  #settle(call: number): PendingCall | undefined {
    const pending = this.#pending.get(call);
    clearTimeout(pending?.deadline);
    this.#pending.delete(call);
    return pending;
  }

  #end(reason: string): void {
    this.#closed ??= reason;
    for (const detach of this.#detach) detach();
    for (const call of [...this.#pending.keys()]) this.#fail(call, reason);
  }
}

/** Calls functions of a service as methods. `deadlines`: of each of them, in milliseconds, as `call` has them. */
export function methodsOf<T>(client: CallClient, deadlines: Readonly<Record<keyof T, number>>): T {
  const methods = Object.entries<number>(deadlines).map(([name, deadlineMs]) => [
    name,
    (body: unknown) => client.call(name, body, deadlineMs),
  ]);
  return Object.fromEntries(methods);
}

/** Serves the calls of a client. `find`: returns the function of a name; undefined: there is none. */
export function serveCalls(
  port: ProcessPort,
  service: string,
  find: (name: string) => ((body: never) => unknown) | undefined,
): void {
  port.onMessage((message) => {
    const request = readRequest(service, message);
    if (request?.kind !== 'call') return;
    const { name, body } = request;
    void answerCall(port, service, request, () => {
      const run = find(name);
      if (run === undefined) throw new Error('unknown function');
      return run(body as never);
    });
  });
}

/** Clients of one port: more than the workers of any machine. */
const SESSIONS_AT_MOST = 1_024;

export interface Closable {
  close(): Promise<void>;
}

/** A function of the service. `lateMs`: how long the call was on its way, in milliseconds. */
export type StoreFunction<Store> = (store: Store, body: unknown, lateMs: number) => Promise<unknown>;

interface StoreServerOptions<Store> {
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
    let running = 0;
    const stop = port.onMessage((raw) => {
      const message = readRequest(service, raw);
      if (message?.kind === 'call') {
        void answerCall(port, service, message, async () => {
          if (running >= CALLS_AT_MOST) throw new Error('too many calls');
          running += 1;
          return await this.#carryOut(port, sessions, message).finally(() => {
            running -= 1;
          });
        });
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
