import { z } from 'zod';
import { putBounded } from '../base/maps.ts';
import { CallClient, type ProcessPort, StoreServer } from '../base/message-calls.ts';
import type { Clocks } from './local-limit.ts';
import { dayOf } from './quota.ts';
import {
  DEMAND_MS,
  type LimitState,
  type LimitStore,
  limitStateForm,
  NEWCOMER_PART,
  type RateSettings,
  type Report,
  reportForm,
} from './store.ts';

/** Limits: more than clients and deployments of a large configuration. */
const LIMITS_AT_MOST = 65_536;

/** One limit over all processes. */
interface SharedLimit {
  /** Undefined: no rate is set. */
  readonly bucket: SharedBucket | undefined;
  readonly day: number;
  readonly used: number;
  readonly members: Map<MemoryLimitStore, Member>;
}

interface SharedBucket extends RateSettings {
  readonly tokens: number;
  readonly at: number;
}

/** The last report of a process. */
interface Member {
  readonly endsAt: number;
  readonly seenAt: number;
  /** Its requests lately; those of `seenAt` count most. */
  readonly demand: number;
  readonly inFlight: number;
  /** Its requests that were charged. */
  readonly total: number;
}

/**
 * Limits in this process, with the arithmetic of the Redis script. The number of limits is bounded: the one that was
 * reported longest ago makes way, and is known again from the next reports.
 */
export class MemoryLimitStore implements LimitStore {
  readonly #clocks: Clocks;
  #limits = new Map<string, SharedLimit>();

  constructor(clocks: Clocks) {
    this.#clocks = clocks;
  }

  /** Another store with the same limits, as another process on one Redis has. */
  join(): MemoryLimitStore {
    const store = new MemoryLimitStore(this.#clocks);
    store.#limits = this.#limits;
    return store;
  }

  settle(name: string, report: Report): Promise<LimitState> {
    const { total, wanted, inFlight, lifetimeMs, perSecond, burst } = report;
    const held = this.#limits.get(name);
    const now = this.#clocks.now();
    const members = held?.members ?? new Map<MemoryLimitStore, Member>();
    forgetEnded(members, this, now);
    const own = members.get(this);
    members.delete(this);
    const others = [...members.values()];
    const spent = Math.max(0, total - Math.max(report.settled, own?.total ?? 0));

    const before = held?.bucket === undefined ? report.tokens : refilled(held.bucket, now);
    const left = Math.min(burst, before) - Math.max(0, spent - report.forgiven);
    const tokens = Math.max(-burst * (others.length + 1), left);

    const day = dayOf(this.#clocks.epoch());
    const known = report.day === day ? report.used : 0;
    const used = Math.max(known, held?.day === day ? held.used : 0) + Math.min(spent, report.ofDay);

    const demand = demandAt(own, now) + wanted;
    if (lifetimeMs > 0) members.set(this, { endsAt: now + lifetimeMs, seenAt: now, demand, inFlight, total });
    const bucket = perSecond > 0 ? { perSecond, burst, tokens, at: now } : undefined;
    putBounded(this.#limits, name, { bucket, day, used, members }, LIMITS_AT_MOST);

    const demands = sum(others.map((member) => demandAt(member, now) + 1));
    return Promise.resolve({
      tokens,
      used,
      day,
      othersInFlight: sum(others.map((member) => member.inFlight)),
      members: others.length + 1,
      share: Math.max((demand + 1) / (demands + demand + 1), NEWCOMER_PART / (others.length + 1)),
    });
  }

  /** Keeps the limits: the process of this store counts until its lifetime ends. */
  async close(): Promise<void> {}
}

/** The tokens of a bucket, which can be more than its burst. */
function refilled({ tokens, at, perSecond }: SharedBucket, now: number): number {
  return tokens + ((now - at) / 1000) * perSecond;
}

/** Removes the processes that have not reported in time, but for the one that reports now. */
function forgetEnded(members: Map<MemoryLimitStore, Member>, own: MemoryLimitStore, now: number): void {
  for (const [store, { endsAt }] of members) if (store !== own && endsAt < now) members.delete(store);
}

function demandAt(member: Member | undefined, now: number): number {
  return member === undefined ? 0 : member.demand * Math.exp((member.seenAt - now) / DEMAND_MS);
}

function sum(values: readonly number[]): number {
  return values.reduce((total, value) => total + value, 0);
}

/** Name of the service that `primaryLimits` serves. */
const LIMITS = 'limits';
/** Characters of the name of a limit: a name of the configuration. */
const LONGEST_NAME = 1024;

/** The body of the call that settles a limit. */
const settleForm = z.object({ name: z.string().max(LONGEST_NAME), report: reportForm });

/**
 * The limits of the primary process, or of another process that serves them. Each call ends within
 * `CALL_DEADLINE_MS`, and at once when the port is closed.
 */
export class ChannelLimitStore implements LimitStore {
  readonly #calls: CallClient;

  constructor(port: ProcessPort) {
    this.#calls = new CallClient({ port, service: LIMITS });
  }

  async settle(name: string, report: Report): Promise<LimitState> {
    const body: z.input<typeof settleForm> = { name, report };
    return limitStateForm.parse(await this.#calls.call('settle', body));
  }

  /** Does not close the port. */
  async close(): Promise<void> {
    this.#calls.close();
  }
}

/**
 * The limits that the processes of one machine share through its primary process. Each `ChannelLimitStore` is a
 * process of its own; one that is gone counts until the lifetime of its last report ends.
 */
export function primaryLimits(clocks: Clocks): StoreServer<LimitStore> {
  const memory = new MemoryLimitStore(clocks);
  return new StoreServer<LimitStore>({
    service: LIMITS,
    functions: new Map([['settle', settle]]),
    open: () => memory.join(),
  });
}

async function settle(store: LimitStore, body: unknown): Promise<unknown> {
  const { name, report } = settleForm.parse(body);
  return await store.settle(name, report);
}
