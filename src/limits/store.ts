import { z } from 'zod';

/** Limits of a client, or of all clients together at a deployment. Undefined: not limited. */
export interface LimitSettings {
  readonly rate: RateSettings | undefined;
  /** Requests under way at once. */
  readonly concurrent: number | undefined;
  /** Requests in one day, UTC. */
  readonly daily: number | undefined;
}

/** A token bucket: `burst` requests at once, and `perSecond` more with every second. */
export interface RateSettings {
  readonly perSecond: number;
  readonly burst: number;
}

/** Over how many milliseconds it is forgotten who sent how many requests. */
export const DEMAND_MS = 1_000;
/** Longer than a process counts after a report, in milliseconds. */
export const LONGEST_LIFE_MS = 120_000;
/**
 * The part of an equal share that a process has whatever its demand was: requests may come to it all at once, as to the
 * new workers of an upgrade, and must not be refused while the limit has room.
 */
export const NEWCOMER_PART = 1 / 2;
/** The least part of a limit that a process has. */
export const LEAST_SHARE = 1e-6;

const count = z.int().min(0);

/** The usage of one limit by one process. */
export const reportForm = z.object({
  /** Requests that this process has admitted since it started. */
  total: count,
  /** The part of `total` that was in earlier reports. */
  settled: count,
  /** The part of the rest that is not charged to the bucket, since it has filled up in the meantime. */
  forgiven: count,
  /** Requests since the last report, refused ones included. */
  wanted: count,
  inFlight: count,
  /** How long the process counts without another report, in milliseconds; 0: it leaves. */
  lifetimeMs: z.number().min(0).max(LONGEST_LIFE_MS),
  /** 0: no rate is set. */
  perSecond: z.number().min(0),
  burst: z.number().min(0),
  /** Tokens in the bucket, for a store that lost its data. */
  tokens: z.number(),
  /** Requests of `day`, for a store that lost its data. */
  used: count,
  /** Days since 1970, UTC; of `used`, by the clock that counted it. */
  day: count,
  /** The part of `total` that is of today by the clock of the process: what is reported late is of a day before. */
  ofDay: count,
});
export type Report = Readonly<z.output<typeof reportForm>>;

/** One limit over all processes, the report included. */
export const limitStateForm = z.object({
  /** Tokens in the bucket; negative when several processes took the last one. */
  tokens: z.number(),
  /** Requests of `day`. */
  used: count,
  /** Days since 1970, UTC, by the clock of the store. */
  day: count,
  /** Requests under way in the other processes. */
  othersInFlight: count,
  /** Processes, this one included. */
  members: count.min(1),
  /** The part that this process is to use, by its part of the requests: above 0, at most 1. */
  share: z.number().min(LEAST_SHARE).max(1),
});
export type LimitState = Readonly<z.output<typeof limitStateForm>>;

/** The usage of limits by all processes. */
export interface LimitStore {
  /** Rejects when the outcome is unknown; the same requests can be reported again. */
  settle(name: string, report: Report): Promise<LimitState>;
  close(): Promise<void>;
}

/**
 * The part of `available` that one process may use before its next report. Each process may use the last one: if two do,
 * both wait longer afterwards.
 */
export function partOf(available: number, share: number): number {
  return available >= 1 ? Math.max(1, available * share) : available * share;
}
