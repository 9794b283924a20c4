import { AsyncLocalStorage } from 'node:async_hooks';
import { type Event, EventQueue } from './event-queue.ts';
import { Random } from './random.ts';

/** Wall clock at the begin of each simulation: 2026-01-01, 12:00 UTC. */
const BEGIN_EPOCH = Date.UTC(2026, 0, 1, 12);
/** More than any schedule has: it would not come to its end. */
const EVENTS_AT_MOST = 1_000_000;
/** The one of Node itself: virtual time puts another in its place. */
const realImmediate = setImmediate;

/** Lets all microtasks run. Their order is that of the language, so no seed is needed for it. */
function turn(): Promise<void> {
  return new Promise((resolve) => void realImmediate(resolve));
}

const context = new AsyncLocalStorage<SimulatedProcess>();

/** The simulated process whose code runs now; undefined: none. */
export function currentProcess(): SimulatedProcess | undefined {
  return context.getStore();
}

/** Order of events at one time: messages come first, in an order of chance, then timers, then `setImmediate`. */
const MESSAGE = 0;
const TIMER = 1;
const IMMEDIATE = 2;

/** An event that is to happen. */
export interface Planned extends Event {
  time: number;
  rank: number;
  number: number;
  readonly process: SimulatedProcess;
  readonly label: string;
  readonly run: () => void;
  cancelled: boolean;
}

/** One process: its clocks, its randomness, and its timers. Code that begins in it stays in it, over every await. */
export class SimulatedProcess {
  readonly name: string;
  readonly world: World;
  readonly random: Random;
  /** By so much its timers are late, in milliseconds. */
  readonly lateness: number;
  readonly #startedAt: number;
  /** Difference between its wall clock and that of the world, in milliseconds. */
  wallOffset = 0;
  /** Until then it does nothing, as a process that was stopped. */
  pausedUntil = 0;
  #alive = true;
  /** Timers that are set. */
  readonly timers = new Set<Planned>();
  readonly #onEnd: (() => void)[] = [];

  constructor(world: World, name: string) {
    this.world = world;
    this.name = name;
    this.random = new Random(`${world.seed} ${name}`);
    this.lateness = this.random.next();
    this.#startedAt = world.now;
  }

  get alive(): boolean {
    return this.#alive;
  }

  /** Milliseconds since it began, as `performance.now()`. */
  get monotonic(): number {
    return this.world.now - this.#startedAt + 1_000;
  }

  /** Unix time in milliseconds. */
  get epoch(): number {
    return Math.floor(BEGIN_EPOCH + this.world.now + this.wallOffset);
  }

  /** Runs code as part of this process. */
  run<T>(code: () => T): T {
    return context.run(this, code);
  }

  /** Something happens to this process after so many milliseconds. */
  deliver(delayMs: number, label: string, run: () => void): Planned {
    return this.world.plan(this, this.world.now + delayMs, MESSAGE, label, run);
  }

  timer(ms: number, label: string, run: () => void): Planned {
    const due = this.world.now + Math.max(1, Math.trunc(ms)) + this.lateness;
    const planned = this.world.plan(this, due, TIMER, label, () => {
      this.timers.delete(planned);
      run();
    });
    this.timers.add(planned);
    return planned;
  }

  immediate(run: () => void): Planned {
    return this.world.plan(this, this.world.now, IMMEDIATE, 'immediate', run);
  }

  cancel(planned: Planned): void {
    planned.cancelled = true;
    this.timers.delete(planned);
  }

  /** Calls back when the process ends, however it does. */
  onEnd(callback: () => void): void {
    this.#onEnd.push(callback);
  }

  /** Ends the process: none of its code runs any more. */
  end(): void {
    if (!this.#alive) return;
    this.#alive = false;
    this.world.trace(`${this.name} ends`);
    for (const planned of this.timers) planned.cancelled = true;
    this.timers.clear();
    for (const callback of this.#onEnd.splice(0)) callback();
  }
}

/** Virtual time: one event after the other, in an order that follows from the seed. */
export class World {
  readonly seed: string;
  readonly random: Random;
  /** One line for each event; undefined: events are not kept. */
  readonly #trace: string[] | undefined;
  readonly #queue = new EventQueue<Planned>();
  #now = 0;
  #planned = 0;
  /** Events so far. */
  events = 0;

  constructor(seed: string, { trace }: { readonly trace: boolean }) {
    this.seed = seed;
    this.random = new Random(`${seed} world`);
    this.#trace = trace ? [] : undefined;
  }

  /** Virtual milliseconds since the begin. */
  get now(): number {
    return this.#now;
  }

  get lines(): readonly string[] {
    return this.#trace ?? [];
  }

  trace(line: string): void {
    this.#trace?.push(`${this.#now.toFixed(3)} ${line}`);
  }

  plan(process: SimulatedProcess, time: number, kind: number, label: string, run: () => void): Planned {
    this.#planned += 1;
    const rank = kind === MESSAGE ? this.random.next() : kind;
    const planned = { process, time, rank, number: this.#planned, label, run, cancelled: false };
    this.#queue.add(planned);
    return planned;
  }

  /** Runs until the condition holds, or nothing is left to happen before `until`. False: the condition never held. */
  async run(until: number, isDone: () => boolean = () => false): Promise<boolean> {
    await turn();
    while (!isDone()) {
      const next = this.#queue.first;
      if (next === undefined || next.time > until) {
        this.#now = Math.max(this.#now, until);
        return false;
      }
      this.#queue.take();
      if (this.events > EVENTS_AT_MOST) throw new Error('too many events');
      if (this.#step(next)) await turn();
    }
    return true;
  }

  /** False: the event does not happen now. */
  #step(event: Planned): boolean {
    const { process, label, cancelled } = event;
    if (cancelled || !process.alive) return false;
    if (process.pausedUntil > event.time) {
      this.#planned += 1;
      event.time = process.pausedUntil;
      // Messages that arrive together keep the order in which they would have arrived.
      event.rank = Math.floor(event.rank);
      event.number = this.#planned;
      this.#queue.add(event);
      return false;
    }
    this.#now = event.time;
    this.events += 1;
    if (this.#trace !== undefined && label !== '') this.trace(`${process.name} ${label}`);
    process.run(event.run);
    return true;
  }
}
