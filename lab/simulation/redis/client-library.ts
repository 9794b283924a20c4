import { EventEmitter } from 'node:events';
import { currentProcess, type SimulatedProcess } from '../world.ts';
import type { Reply } from './keyspace.ts';
import type { RedisConnection, RedisPeer, RedisServer, Command as ServerCommand } from './server.ts';

/*
 * Stands in the place of ioredis, of which it has the parts that the gateway uses: a connection over the simulated
 * network that reconnects, no queue while there is none, and the time limits.
 */

const servers = new WeakMap<object, RedisServer>();

/** The server that processes of its world connect to. */
export function useRedisServer(server: RedisServer): void {
  servers.set(server.process.world, server);
}

interface Options {
  readonly scripts?: Readonly<Record<string, { readonly lua: string; readonly numberOfKeys?: number }>>;
  /** Milliseconds until the next attempt; null: there is none. */
  readonly retryStrategy: ((attempt: number) => number) | null;
  readonly connectTimeout: number;
  readonly socketTimeout: number;
}

interface Pending {
  readonly resolve: (reply: unknown) => void;
  readonly reject: (error: Error) => void;
}

type Status = 'connecting' | 'ready' | 'reconnecting' | 'close' | 'end';

/** One node holds every slot. */
export class Command {
  getSlot(): number {
    return 0;
  }
}

export class Redis extends EventEmitter implements RedisPeer {
  readonly process: SimulatedProcess;
  readonly stream = undefined;
  status: Status = 'connecting';
  readonly #options: Options;
  readonly #server: RedisServer;
  #connection: RedisConnection | undefined;
  readonly #pending = new Map<number, Pending>();
  #attempts = 0;
  /** Counts connections, so that events of earlier ones are known. */
  #generation = 0;
  #timer: NodeJS.Timeout | undefined;
  #silence: NodeJS.Timeout | undefined;

  constructor(options: Options) {
    super();
    const process = currentProcess();
    const server = process && servers.get(process.world);
    if (process === undefined || server === undefined) throw new TypeError('there is no simulated Redis');
    this.process = process;
    this.#options = options;
    this.#server = server;
    for (const [name, { lua, numberOfKeys = 0 }] of Object.entries(options.scripts ?? {})) {
      const run = (...all: (string | number)[]): Promise<unknown> => {
        const texts = all.map(String);
        const keys = texts.slice(0, numberOfKeys);
        return this.#send({ kind: 'script', name, lua, keys, args: texts.slice(numberOfKeys) });
      };
      Object.defineProperty(this, name, { value: run });
    }
    setImmediate(() => this.#connect());
  }

  set(...args: (string | number)[]): Promise<unknown> {
    return this.#send({ kind: 'plain', name: 'SET', args: args.map(String) });
  }

  pttl(key: string): Promise<unknown> {
    return this.#send({ kind: 'plain', name: 'PTTL', args: [key] });
  }

  unlink(...keys: string[]): Promise<unknown> {
    return this.#send({ kind: 'plain', name: 'UNLINK', args: keys });
  }

  subscribe(...channels: string[]): Promise<unknown> {
    return this.#send({ kind: 'subscribe', channels });
  }

  disconnect(): void {
    if (this.status === 'end') return;
    this.status = 'close';
    setImmediate(() => this.#lose(undefined, true));
  }

  reply(number: number, reply: Reply | Error): void {
    const pending = this.#pending.get(number);
    if (pending === undefined) return;
    this.#pending.delete(number);
    this.#watchSilence();
    if (reply instanceof Error) pending.reject(reply);
    else pending.resolve(plain(reply));
  }

  message(channel: string, message: string): void {
    if (this.status === 'ready') this.emit('message', channel, message);
  }

  closed(): void {
    this.#lose(undefined, false);
  }

  #connect(): void {
    if (this.status === 'close' || this.status === 'end') return;
    this.status = 'connecting';
    this.#generation += 1;
    const generation = this.#generation;
    this.#timer = setTimeout(() => this.#lose(failure('ETIMEDOUT'), false), this.#options.connectTimeout);
    this.process.deliver(2 * this.#server.connectTime(this.process), 'connected to redis', () => {
      if (generation !== this.#generation || this.status !== 'connecting') return;
      const connection = this.#server.accept(this.#peer(generation));
      if (connection === undefined) {
        this.#lose(failure('ECONNREFUSED'), false);
        return;
      }
      clearTimeout(this.#timer);
      this.#connection = connection;
      this.#attempts = 0;
      this.status = 'ready';
      this.emit('ready');
    });
  }

  /** Replies of a connection that was given up are not read. */
  #peer(generation: number): RedisPeer {
    const isCurrent = (): boolean => generation === this.#generation;
    return {
      process: this.process,
      reply: (number, reply) => isCurrent() && this.reply(number, reply),
      message: (channel, message) => isCurrent() && this.message(channel, message),
      closed: () => isCurrent() && this.closed(),
    };
  }

  #send(command: ServerCommand): Promise<unknown> {
    const connection = this.#connection;
    if (this.status !== 'ready' || connection === undefined) {
      return Promise.reject(new Error("Stream isn't writeable and enableOfflineQueue options is false"));
    }
    const { promise, resolve, reject } = Promise.withResolvers<unknown>();
    this.#pending.set(connection.send(command), { resolve, reject });
    this.#silence ??= this.#silenceTimer();
    return promise;
  }

  #watchSilence(): void {
    clearTimeout(this.#silence);
    this.#silence = this.#pending.size === 0 ? undefined : this.#silenceTimer();
  }

  #silenceTimer(): NodeJS.Timeout {
    return setTimeout(() => this.#lose(failure('ETIMEDOUT'), false), this.#options.socketTimeout);
  }

  /** The connection is gone, or was not made. */
  #lose(error: Error | undefined, isLast: boolean): void {
    if (this.status === 'end') return;
    clearTimeout(this.#timer);
    clearTimeout(this.#silence);
    this.#silence = undefined;
    this.#generation += 1;
    this.#connection?.close();
    this.#connection = undefined;
    if (error !== undefined && this.listenerCount('error') > 0) this.emit('error', error);
    this.#attempts += 1;
    const pause =
      isLast || this.status === 'close' ? null : (this.#options.retryStrategy?.(this.#attempts) ?? null);
    this.status = pause === null ? 'end' : 'reconnecting';
    const failed = [...this.#pending.values()];
    this.#pending.clear();
    for (const { reject } of failed) {
      reject(new Error('Reached the max retries per request limit (which is 0).'));
    }
    this.emit('close');
    if (pause === null) this.emit('end');
    else this.#timer = setTimeout(() => this.#connect(), pause);
  }
}

function failure(code: string): Error {
  return Object.assign(new Error(`connect ${code}`), { code });
}

function plain(reply: Reply): unknown {
  return typeof reply === 'object' && reply !== null && 'ok' in reply ? reply.ok : reply;
}

/** Is not simulated. */
export class Cluster {}
