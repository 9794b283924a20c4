import { type ClientTotals, type DeploymentTotals, noTotals } from './totals.ts';
import type { CodeCount, Latency, Point } from './view.ts';

const NO_CLIENT: ClientTotals = { requests: 0, refusals: new Map() };

/** The counts of a deployment between two moments. */
export interface DeploymentInterval {
  readonly seconds: number;
  readonly requests: number;
  readonly errors: number;
  readonly refused: number;
  readonly challenges: number;
  /** Responses of the upstream by outcome. */
  readonly outcomes: ReadonlyMap<string, number>;
  readonly errorCodes: readonly CodeCount[];
  readonly refusedCodes: readonly CodeCount[];
  /** Responses by the first digit of their status. */
  readonly classes: ReadonlyMap<string, number>;
  /** Undefined if no request ended. */
  readonly latency: Latency | undefined;
}

/** Returns the difference between two totals of a deployment; `milliseconds` is the time between them. */
export function deploymentInterval(
  before: DeploymentTotals = noTotals(),
  after: DeploymentTotals = noTotals(),
  milliseconds: number,
): DeploymentInterval {
  return {
    seconds: milliseconds / 1000,
    requests: after.requests - before.requests,
    errors: after.errors - before.errors,
    refused: after.refused - before.refused,
    challenges: after.challenges - before.challenges,
    outcomes: differences(before.outcomes, after.outcomes),
    errorCodes: rises(before.errorCodes, after.errorCodes),
    refusedCodes: rises(before.refusedCodes, after.refusedCodes),
    classes: differences(before.classes, after.classes),
    latency: latencyOf(before.durations, after.durations),
  };
}

/** The same for a client: requests and refusals. */
export function clientInterval(
  before: ClientTotals = NO_CLIENT,
  after: ClientTotals = NO_CLIENT,
): { readonly requests: number; readonly refused: number } {
  const refusals = rises(before.refusals, after.refusals);
  return {
    requests: after.requests - before.requests,
    refused: refusals.reduce((sum, { count }) => sum + count, 0),
  };
}

/** Converts an interval to a point: rates per second, percentiles in seconds. */
export function pointOf({ seconds, classes, challenges, latency }: DeploymentInterval): Point {
  const rate = (count = 0): number => round(count / seconds);
  return {
    '2xx': rate(classes.get('2')),
    '3xx': rate(classes.get('3')),
    '4xx': rate(classes.get('4')),
    '5xx': rate(classes.get('5')),
    challenges: rate(challenges),
    p50: latency?.p50 ?? null,
    p95: latency?.p95 ?? null,
    p99: latency?.p99 ?? null,
  };
}

/** Rounds to three significant digits, which suffice for a chart and shorten the stream. */
export function round(value: number): number {
  return Number(value.toPrecision(3));
}

/** Returns the codes whose counts rose, the most frequent first. */
export function rises(before: ReadonlyMap<string, number>, after: ReadonlyMap<string, number>): CodeCount[] {
  return Array.from(differences(before, after), ([code, count]) => ({ code, count }))
    .filter(({ count }) => count > 0)
    .sort((a, b) => b.count - a.count);
}

function differences<Key>(
  before: ReadonlyMap<Key, number>,
  after: ReadonlyMap<Key, number>,
): Map<Key, number> {
  return new Map(Array.from(after, ([key, count]) => [key, count - (before.get(key) ?? 0)]));
}

function latencyOf(
  before: ReadonlyMap<number, number>,
  after: ReadonlyMap<number, number>,
): Latency | undefined {
  const cumulative = Array.from(differences(before, after), ([bound, count]) => ({ bound, count }));
  const total = cumulative.at(-1)?.count ?? 0;
  if (total <= 0) return undefined;
  const at = (quantile: number): number => round(quantileOf(cumulative, quantile * total));
  return { p50: at(0.5), p95: at(0.95), p99: at(0.99) };
}

/** Interpolates linearly within a bucket, as Prometheus does. */
function quantileOf(cumulative: readonly { bound: number; count: number }[], rank: number): number {
  const index = cumulative.findIndex(({ count }) => count >= rank);
  const lower = cumulative[index - 1] ?? { bound: 0, count: 0 };
  const upper = cumulative[index];
  if (upper === undefined || upper.bound === Number.POSITIVE_INFINITY) return lower.bound;
  return lower.bound + ((upper.bound - lower.bound) * (rank - lower.count)) / (upper.count - lower.count);
}
