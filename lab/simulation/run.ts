import { excessOf } from './bounds.ts';
import { JUMP_MS, planFaults } from './faults.ts';
import { Fleet, LAST_TIMERS_MS } from './fleet.ts';
import { type ClientRequest, type LIMITED, TOTAL_TIMEOUT_MS } from './gateway.ts';
import type { Observer, RequestRecord, Violation } from './observer.ts';
import type { Plan } from './plan.ts';
import { exchangesOf, PROFILES } from './upstream/profiles.ts';
import { SimulatedProcess } from './world.ts';

/** Everything is as before so many milliseconds after the last fault, if there are requests. */
const RECOVERY_MS = 5_000;
/** A refused credential is tried again within this time, in milliseconds. */
const REFUSAL_MS = 61_000;
/** Requests that show how things are afterwards, by each gateway. */
const AFTERWARDS = 5;
/** Exchanges by which they may exceed one each: nonces that have expired. */
const EXPIRED = 2;
/** Nonces of other gateways that the upstream refuses, until this one takes no more of them. */
const ADOPTED = 3;
const END_MS = 20_000;
/** Rounds of requests while everything recovers. */
const PAUSES = 15;
/** Keys that may be left in Redis by each gateway: what they share, and what expires later. */
const KEYS_AT_MOST = 12;

export interface RunResult {
  readonly violations: readonly Violation[];
  readonly events: number;
  readonly requests: number;
  readonly trace: readonly string[];
  /** The flight record of each gateway that there was. */
  readonly flights: () => string[];
}

/** Errors that no caller receives belong to the run in progress. */
let onUncaught: ((error: unknown) => void) | undefined;
process.on('uncaughtException', (error) => onUncaught?.(error));
process.on('unhandledRejection', (error) => onUncaught?.(error));

/** Runs one schedule to its end. */
export async function runPlan(plan: Plan, { trace }: { readonly trace: boolean }): Promise<RunResult> {
  const fleet = new Fleet(plan, trace);
  const { world, observer } = fleet;
  await withFaults(observer, () => new Run(fleet).play());
  return {
    violations: observer.violations,
    events: world.events,
    requests: observer.requests.length,
    trace: world.lines,
    flights: fleet.flights,
  };
}

/** Runs a simulation; errors of it, and those that no caller receives, are violations. */
export async function withFaults(observer: Observer, play: () => Promise<void>): Promise<void> {
  onUncaught = (error) => observer.fault(undefined, error);
  try {
    await play();
  } catch (error) {
    observer.fault(undefined, error);
  } finally {
    onUncaught = undefined;
  }
}

class Run {
  readonly #fleet: Fleet;
  readonly #driver: SimulatedProcess;
  #nextId: number;

  constructor(fleet: Fleet) {
    this.#fleet = fleet;
    this.#driver = new SimulatedProcess(fleet.world, 'driver');
    this.#nextId = fleet.plan.requests.length;
  }

  async play(): Promise<void> {
    const fleet = this.#fleet;
    const { plan, world } = fleet;
    for (let at = 0; at < plan.gateways; at += 1) fleet.start(at);
    for (const request of plan.requests) {
      this.#driver.deliver(request.at, '', () => void fleet.send(request));
    }
    const lastFault = planFaults(fleet, this.#driver);
    const lastRequest = Math.max(...plan.requests.map(({ at }) => at));
    await world.run(Math.max(lastFault, lastRequest));
    await world.run(world.now + 10 * TOTAL_TIMEOUT_MS, () => !fleet.isRestarting);
    await this.#recover();
    await this.#checkAfterwards();
    await world.run(world.now + TOTAL_TIMEOUT_MS + 1_000);
    this.#checkEnds();
    this.#checkLimits();
    await this.#end();
  }

  /** Some requests to each gateway, by which it learns how things are after the faults. */
  async #recover(): Promise<void> {
    const { world, plan, observer } = this.#fleet;
    const ms = observer.wrong.size > 0 ? REFUSAL_MS + RECOVERY_MS : RECOVERY_MS;
    const pauseMs = ms / PAUSES;
    for (const end = world.now + ms; world.now < end; ) {
      for (let at = 0; at < plan.gateways; at += 1) this.#send(at, 'free');
      await world.run(world.now + pauseMs);
    }
  }

  /** One request after the other, by each gateway: one exchange each, but for nonces that have expired. */
  async #checkAfterwards(): Promise<void> {
    const { world, plan, observer } = this.#fleet;
    const profile = PROFILES.find(({ name }) => name === plan.profile);
    if (observer.isAmbiguous || profile === undefined) return;
    const expected = exchangesOf(profile);
    for (let at = 0; at < plan.gateways; at += 1) {
      const records: RequestRecord[] = [];
      for (let count = 0; count < AFTERWARDS; count += 1) {
        const record = this.#send(at, 'free');
        if (record === undefined) break;
        await world.run(world.now + TOTAL_TIMEOUT_MS, () => record.endedAt !== undefined);
        records.push(record);
        await world.run(world.now + 20);
      }
      const failed = records.filter(({ status }) => status !== 200);
      const exchanges = records.reduce((sum, record) => sum + record.exchanges, 0);
      // The upstream said so, or the gateway knew it and asked for another one.
      const expired = records.flatMap(({ refusals, exchanges, authenticated }) => [
        ...refusals.filter((verdict) => verdict === 'expired'),
        ...Array.from({ length: exchanges - authenticated }),
      ]);
      const adopted = records.flatMap(({ refusals }) => refusals).filter((verdict) => verdict === 'address');
      const extra = Math.min(expired.length, EXPIRED) + Math.min(adopted.length, ADOPTED);
      const describe = (record: RequestRecord): string =>
        `${record.id}: ${record.code ?? record.status}, ${record.exchanges} exchanges ${record.refusals}`;
      const detail = `gateway ${at}: ${records.map(describe).join('; ')}`;
      if (failed.length > 0 || records.length < AFTERWARDS)
        observer.violate('requests succeed 5 s after the last fault', detail);
      // A known nonce may go to a server that does not know it, and a request may cross the end of its connection.
      else if (plan.servers === 1 && !plan.closesBehind401 && exchanges > expected * AFTERWARDS + extra)
        observer.violate('a request takes one exchange 5 s after the last fault', detail);
    }
  }

  #checkEnds(): void {
    const { observer } = this.#fleet;
    for (const record of observer.requests) {
      if (record === undefined || record.endedAt !== undefined || !record.process.alive) continue;
      observer.violate('every request ends', `request ${record.id} of ${record.process.name}`);
    }
  }

  #checkLimits(): void {
    const { observer, plan, gateways } = this.#fleet;
    const { limits } = plan.settings;
    if (limits === undefined) return;
    const { concurrent, daily } = limits;
    for (const [name, times] of observer.admissions) {
      if (excessOf(times, limits) > 1e-6) observer.violate('limits are kept', `rate of ${name}`);
      if (daily !== undefined && times.length > daily)
        observer.violate('limits are kept', `daily of ${name}`);
    }
    for (const [name, most] of observer.mostInFlight) {
      if (concurrent !== undefined && most > concurrent)
        observer.violate('limits are kept', `concurrent of ${name}: ${most}`);
    }
    this.#checkTotal();
    for (const gateway of gateways) {
      const free = gateway.process.run(() => gateway.freeSlots());
      if (free !== undefined && free !== concurrent)
        observer.violate('limits are given back', `${free} of ${concurrent} at ${gateway.process.name}`);
    }
  }

  /** All gateways together: each may give the last token away, and each may have the whole bucket until it is told. */
  #checkTotal(): void {
    const { observer, plan } = this.#fleet;
    const { limits } = plan.settings;
    const runs = observer.admissions.size;
    const all = [...observer.admissions.values()].flat().sort((a, b) => a - b);
    if (limits === undefined || plan.faults.length > 0) return;
    if (excessOf(all, limits, runs + 1) > 1e-6)
      observer.violate('limits are kept', `rate of all: ${all.length} requests of ${runs} gateways`);
  }

  async #end(): Promise<void> {
    const fleet = this.#fleet;
    const { world, plan, observer, redis } = fleet;
    let left = plan.gateways;
    for (let at = 0; at < plan.gateways; at += 1) {
      void fleet.drain(at).then(() => {
        left -= 1;
      });
    }
    const hasEnded = await world.run(world.now + END_MS, () => left === 0);
    if (!hasEnded) observer.violate('every gateway ends', `${left} did not`);
    // A clock of Redis that went back keeps tickets for longer than LAST_TIMERS_MS.
    const jumps = plan.faults.filter(({ kind }) => kind === 'redis-clock').length;
    await world.run(world.now + LAST_TIMERS_MS + 1 + jumps * JUMP_MS);
    const keys = redis?.keyspace.size ?? 0;
    if (keys > KEYS_AT_MOST * plan.gateways) observer.violate('nothing grows', `${keys} keys in Redis`);
  }

  #send(gateway: number, client: typeof LIMITED | 'free'): RequestRecord | undefined {
    const id = this.#nextId;
    this.#nextId += 1;
    const { now } = this.#fleet.world;
    const request: ClientRequest = {
      id,
      at: now,
      gateway,
      client,
      method: 'GET',
      target: '/a',
      body: 'none',
      givesUpAfter: undefined,
    };
    return this.#fleet.send(request);
  }
}
