import { hostOf, Link, type Network } from '../network.ts';
import type { SimulatedProcess, World } from '../world.ts';
import { Keyspace, RedisError, type Reply } from './keyspace.ts';
import { LuaScripts } from './lua.ts';

/** A command of a client. */
export type Command =
  | {
      readonly kind: 'script';
      readonly name: string;
      readonly lua: string;
      readonly keys: readonly string[];
      readonly args: readonly string[];
    }
  | { readonly kind: 'plain'; readonly name: string; readonly args: readonly string[] }
  | { readonly kind: 'subscribe'; readonly channels: readonly string[] };

/** The client's end of a connection. */
export interface RedisPeer {
  readonly process: SimulatedProcess;
  reply(number: number, reply: Reply | Error): void;
  message(channel: string, message: string): void;
  closed(): void;
}

/** Interpreters keep translated scripts, and no state of a server. */
const scripts = new LuaScripts();

/** One connection to a run of the server. */
export class RedisConnection {
  readonly #server: RedisServer;
  readonly #peer: RedisPeer;
  readonly #process: SimulatedProcess;
  readonly #toServer: Link;
  readonly #toClient: Link;
  readonly channels = new Set<string>();
  #commands = 0;

  constructor(server: RedisServer, process: SimulatedProcess, peer: RedisPeer, network: Network) {
    this.#server = server;
    this.#process = process;
    this.#peer = peer;
    this.#toServer = new Link(network, peer.process, process);
    this.#toClient = new Link(network, process, peer.process);
  }

  /** Sends a command; its reply has this number. */
  send(command: Command): number {
    this.#commands += 1;
    const number = this.#commands;
    const execute = (): void => {
      const reply = this.#server.execute(this, command);
      this.#toClient.send(`reply ${number}`, () => this.#peer.reply(number, reply));
    };
    this.#toServer.send(labelOf(command), execute);
    const again = this.#server.duplicateDelay;
    if (again !== undefined && command.kind === 'script') {
      // A proxy between client and server sent it twice; the second reply is not passed on.
      this.#process.deliver(again, `${labelOf(command)} again`, () => this.#server.execute(this, command));
    }
    return number;
  }

  publish(channel: string, message: string): void {
    if (this.channels.has(channel))
      this.#toClient.send('message', () => this.#peer.message(channel, message));
  }

  /** The client closes it: what was sent still arrives. */
  close(): void {
    this.#toServer.send('close', () => this.#server.forget(this));
  }

  /** The server has ended. */
  drop(): void {
    this.#toClient.send('closed', () => this.#peer.closed());
  }
}

function labelOf(command: Command): string {
  return command.kind === 'subscribe' ? 'subscribe' : command.name;
}

/** A Redis server with all its runs. */
export class RedisServer {
  readonly #world: World;
  readonly #network: Network;
  readonly #connections = new Set<RedisConnection>();
  #process: SimulatedProcess;
  #runs = 0;
  readonly #start: (name: string) => SimulatedProcess;
  readonly keyspace: Keyspace;
  /** Called with a nonce that was replaced by a process that had not seen it. */
  onBlindReplace: ((nonce: string) => void) | undefined;
  /** Until then commands arrive twice now and then. */
  duplicatesUntil = 0;

  constructor(world: World, network: Network, start: (name: string) => SimulatedProcess) {
    this.#world = world;
    this.#network = network;
    this.#start = start;
    this.#process = start('redis/0');
    const publish = (channel: string, message: string): void => {
      for (const connection of this.#connections) connection.publish(channel, message);
    };
    this.keyspace = new Keyspace({ now: () => this.#process.epoch, publish }, this.#newRunId());
  }

  get process(): SimulatedProcess {
    return this.#process;
  }

  get isUp(): boolean {
    return this.#process.alive;
  }

  /** After how many milliseconds a command arrives again; undefined: it does not. */
  get duplicateDelay(): number | undefined {
    const { now, random } = this.#world;
    return now < this.duplicatesUntil && random.chance(0.3) ? random.between(1, 400) : undefined;
  }

  /** Undefined: the connection is refused. */
  accept(peer: RedisPeer): RedisConnection | undefined {
    if (!this.isUp) return undefined;
    const connection = new RedisConnection(this, this.#process, peer, this.#network);
    this.#connections.add(connection);
    return connection;
  }

  execute(connection: RedisConnection, command: Command): Reply | Error {
    try {
      switch (command.kind) {
        case 'script':
          return this.#runScript(command);
        case 'plain':
          return this.keyspace.call(command.name, command.args);
        case 'subscribe':
          for (const channel of command.channels) connection.channels.add(channel);
          return command.channels.length;
      }
    } catch (error) {
      if (error instanceof RedisError) return new Error(error.message);
      throw error;
    }
  }

  #runScript({ name, lua, keys, args }: Extract<Command, { kind: 'script' }>): Reply {
    if (name !== 'replaceShared') return scripts.run(lua, keys, args, this.keyspace);
    const nonce = (): Reply => this.keyspace.call('HMGET', [keys[1] ?? '', 'nonce']);
    const [before] = nonce() as readonly Reply[];
    const reply = scripts.run(lua, keys, args, this.keyspace);
    const [after] = nonce() as readonly Reply[];
    if (before !== null && before !== after && before !== args[0]) this.onBlindReplace?.(String(before));
    return reply;
  }

  forget(connection: RedisConnection): void {
    this.#connections.delete(connection);
  }

  /** Ends the server. Its keys stay until `start` says what becomes of them. */
  stop(): void {
    for (const connection of this.#connections) connection.drop();
    this.#connections.clear();
    this.#process.end();
  }

  /** Begins another run: with these keys, or without any. */
  restart(keys: ReturnType<Keyspace['snapshot']> | undefined): void {
    const { wallOffset } = this.#process;
    this.#runs += 1;
    this.#process = this.#start(`redis/${this.#runs}`);
    this.#process.wallOffset = wallOffset;
    this.keyspace.runId = this.#newRunId();
    if (keys === undefined) this.keyspace.clear();
    else this.keyspace.restore(keys);
  }

  connectTime(from: SimulatedProcess): number {
    const there = this.#network.arrival(hostOf(from.name), 'redis');
    return there - this.#world.now;
  }

  #newRunId(): string {
    return this.#process.random.bytes(20).toString('hex');
  }
}
