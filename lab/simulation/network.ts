import type { SimulatedProcess, World } from './world.ts';

/** Between two messages of one connection, in milliseconds, so that they keep their order. */
const APART_MS = 0.001;

/** A time in which messages between two processes are delayed: by so much, or until it ends; or are lost. */
interface Disturbance {
  readonly one: string;
  readonly other: string;
  readonly until: number;
  /** In milliseconds; undefined: the network is cut until the end of the time. */
  readonly delayMs: number | 'lost' | undefined;
}

export interface NetworkOptions {
  /** The shortest and the longest time on the way, in milliseconds. */
  readonly latencyMs: readonly [number, number];
}

/** The network between processes. A message that is lost is sent again by TCP, so that it comes late. */
export class Network {
  readonly #world: World;
  readonly #options: NetworkOptions;
  #disturbances: readonly Disturbance[] = [];

  constructor(world: World, options: NetworkOptions) {
    this.#world = world;
    this.#options = options;
  }

  /** Keeps messages between two processes back until this time; they arrive then. */
  cut(one: string, other: string, until: number): void {
    this.#disturb({ one, other, until, delayMs: undefined });
  }

  slow(one: string, other: string, until: number, delayMs: number): void {
    this.#disturb({ one, other, until, delayMs });
  }

  /** Loses messages until this time: the other end cannot read them. */
  lose(one: string, other: string, until: number): void {
    this.#disturb({ one, other, until, delayMs: 'lost' });
  }

  loses(one: string, other: string): boolean {
    return this.#between(one, other).some(({ delayMs }) => delayMs === 'lost');
  }

  isCut(one: string, other: string): boolean {
    return this.#between(one, other).some(({ delayMs }) => delayMs === undefined);
  }

  /** The time at which a message that is sent now arrives. */
  arrival(from: string, to: string): number {
    const [least, most] = this.#options.latencyMs;
    const { now, random } = this.#world;
    let time = now + random.between(least, most);
    for (const { until, delayMs } of this.#between(from, to)) {
      if (delayMs === 'lost') continue;
      time =
        delayMs === undefined
          ? Math.max(time, until + random.between(0, 200))
          : time + random.between(0, delayMs);
    }
    return time;
  }

  #disturb(disturbance: Disturbance): void {
    const { now } = this.#world;
    this.#disturbances = [...this.#disturbances.filter(({ until }) => until > now), disturbance];
  }

  #between(one: string, other: string): Disturbance[] {
    const { now } = this.#world;
    return this.#disturbances.filter(
      (each) =>
        each.until > now &&
        ((each.one === one && each.other === other) || (each.one === other && each.other === one)),
    );
  }
}

/** One direction of a connection: messages arrive in the order in which they were sent. */
export class Link {
  readonly #network: Network;
  readonly #from: string;
  readonly #to: SimulatedProcess;
  #last = 0;

  constructor(network: Network, from: SimulatedProcess, to: SimulatedProcess) {
    this.#network = network;
    this.#from = hostOf(from.name);
    this.#to = to;
  }

  /** True: what is sent now never arrives. */
  get isLossy(): boolean {
    return this.#network.loses(this.#from, hostOf(this.#to.name));
  }

  send(label: string, receive: () => void): void {
    const { world, name } = this.#to;
    const arrival = this.#network.arrival(this.#from, hostOf(name));
    this.#last = Math.max(this.#last + APART_MS, arrival);
    this.#to.deliver(this.#last - world.now, label, receive);
  }
}

/** The name of a process without the number of its run. */
export function hostOf(name: string): string {
  return name.split('/')[0] ?? name;
}
