import { hostOf, type Network } from '../network.ts';
import type { SimulatedProcess, World } from '../world.ts';
import type { UpstreamMessage, UpstreamReply, UpstreamServer } from './server.ts';

/** The outcome of an exchange: the connection breaks before or after the server has seen the request. */
export type Fate = 'ok' | 'lost-before' | 'lost-after';

/** Is told of each exchange of a gateway. */
export interface ExchangeListener {
  /** The head of a request went out. */
  sent(request: Pick<UpstreamMessage, 'headers'>): void;
  /** Undefined: no response came. */
  ended(request: Pick<UpstreamMessage, 'headers'>, reply: UpstreamReply | undefined): void;
}

/** The upstream as a service with runs, connections and a load: one server, or some with nonces of their own. */
export class UpstreamService {
  readonly servers: readonly UpstreamServer[];
  /** True: connections end behind a 401. */
  readonly closesBehind401: boolean;
  readonly #network: Network;
  readonly #world: World;
  readonly #start: (name: string) => SimulatedProcess;
  readonly #open = new Set<() => void>();
  /** Of each gateway. */
  readonly #listeners = new Map<SimulatedProcess, ExchangeListener>();
  process: SimulatedProcess;
  #runs = 0;
  /** Until then connections break now and then. */
  breaksUntil = 0;
  /** The longest time that it takes for a request, in milliseconds. */
  slowestMs = 5;

  constructor(
    network: Network,
    world: World,
    servers: readonly UpstreamServer[],
    closesBehind401: boolean,
    start: (name: string) => SimulatedProcess,
  ) {
    this.#network = network;
    this.#world = world;
    this.servers = servers;
    this.closesBehind401 = closesBehind401;
    this.#start = start;
    this.process = start('upstream/0');
  }

  get isUp(): boolean {
    return this.process.alive;
  }

  /** Tells of the exchanges of a gateway. */
  observe(gateway: SimulatedProcess, listener: ExchangeListener): void {
    this.#listeners.set(gateway, listener);
  }

  listenerOf(gateway: SimulatedProcess): ExchangeListener | undefined {
    return this.#listeners.get(gateway);
  }

  /** The server that a new connection leads to. */
  get nextServer(): UpstreamServer {
    return this.#world.random.pick(this.servers);
  }

  /** In milliseconds. */
  wayThere(gateway: SimulatedProcess): number {
    return this.#network.arrival(hostOf(gateway.name), 'upstream') - this.#world.now;
  }

  /** In milliseconds. */
  wayBack(gateway: SimulatedProcess): number {
    return this.#network.arrival('upstream', hostOf(gateway.name)) - this.#world.now;
  }

  /** In milliseconds. */
  serviceTime(): number {
    return this.#world.random.between(0.1, this.slowestMs);
  }

  takeFate(): Fate {
    const { now, random } = this.#world;
    if (now >= this.breaksUntil || random.chance(0.6)) return 'ok';
    return random.chance(0.5) ? 'lost-before' : 'lost-after';
  }

  /** Calls back when the service ends. The result ends that. */
  watch(onEnd: () => void): () => void {
    this.#open.add(onEnd);
    return () => this.#open.delete(onEnd);
  }

  /** Passwords that it accepts. */
  get passwords(): readonly string[] {
    return this.servers[0]?.passwords ?? [];
  }

  set passwords(passwords: readonly string[]) {
    for (const server of this.servers) server.passwords = passwords;
  }

  /** Until this time it is too busy to look at credentials. */
  busy(until: number): void {
    for (const server of this.servers) server.busyUntil = until;
  }

  /** Forgets all nonces; a server that keeps nothing of them does so only if its key changes. */
  forget(changesKey: boolean): void {
    for (const server of this.servers) server.forget(changesKey);
  }

  stop(): void {
    this.process.end();
    for (const onEnd of [...this.#open]) onEnd();
  }

  /** `changesKey`: nonces that only a key makes good are good no more. */
  restart(changesKey: boolean): void {
    this.#runs += 1;
    this.forget(changesKey);
    this.process = this.#start(`upstream/${this.#runs}`);
  }
}
