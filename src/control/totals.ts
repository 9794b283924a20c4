import { isDeepStrictEqual } from 'node:util';
import { statusOfCode } from '../base/errors.ts';
import { getOrInsert } from '../base/maps.ts';
import { runInSlices, type Steps } from '../base/steps.ts';
import { CLIENT_LAST_SEEN } from '../metrics/metrics.ts';
import type { MetricValues } from './merged-metrics.ts';
import type { CodeCount, Latency, Point } from './view.ts';

/** Reads the current values of the metrics with these names, of every process of the gateway. */
export type ReadMetrics = (names: readonly string[]) => Promise<MetricValues>;

/** The metrics' counts at one moment. */
export interface Totals {
  /** Unix milliseconds. */
  readonly at: number;
  readonly deployments: ReadonlyMap<string, DeploymentTotals>;
  /** By name in the configuration; the empty name is for unidentified clients. */
  readonly clients: ReadonlyMap<string, ClientTotals>;
  /** Requests of each client to each deployment, by `flowKey`. */
  readonly flows: ReadonlyMap<string, FlowTotals>;
}

export interface FlowTotals {
  /** From `flowKey`. */
  readonly key: string;
  readonly client: string;
  readonly deployment: string;
  requests: number;
  /** Refused by the gateway with a 4xx error. */
  refused: number;
}

/** The key of a client and a deployment, whose names have no line ends. */
export function flowKey(client: string, deployment: string): string {
  return `${client}\n${deployment}`;
}

export interface DeploymentTotals {
  requests: number;
  /** Responses by the first digit of their status. */
  readonly classes: Map<string, number>;
  challenges: number;
  /** Challenges that a request waited for: all but those that were obtained ahead. */
  awaited: number;
  /** Requests that the upstream accepted. */
  accepted: number;
  inFlight: number;
  /** Responses of the upstream by outcome. */
  readonly outcomes: Map<string, number>;
  /** Requests that the gateway refused with a 4xx error, by code. */
  readonly refusedCodes: Map<string, number>;
  /**
   * Responses of 500 and above, and those that the gateway broke off for an error of that kind, by code; the empty code
   * is for errors of the upstream.
   */
  readonly errorCodes: Map<string, number>;
  /**
   * Requests by upper bound of their duration in seconds; cumulative, ascending, the last bound infinite.
   */
  readonly durations: Map<number, number>;
}

interface ClientTotals {
  requests: number;
  /** Requests of the client that the gateway refused, by code. Most clients have none, and share `NO_REFUSALS`. */
  refusals: ReadonlyMap<string, number>;
  /** When its latest request ended, in Unix milliseconds; null: it has had none. */
  lastSeen: number | null;
}

/** Totals of zero. */
export const noTotals = (): DeploymentTotals => ({
  requests: 0,
  classes: new Map(),
  challenges: 0,
  awaited: 0,
  accepted: 0,
  inFlight: 0,
  outcomes: new Map(),
  refusedCodes: new Map(),
  errorCodes: new Map(),
  durations: new Map(),
});

/** Status for a client that closed the connection before the response. */
const CLIENT_CLOSED = 499;

/** Names of the metrics that are read. */
const READ = {
  requests: 'digest_gateway_requests_total',
  challenges: 'digest_gateway_challenges_total',
  attempts: 'digest_gateway_upstream_attempts_total',
  outcomes: 'digest_gateway_outcomes_total',
  durations: 'digest_gateway_request_duration_seconds',
  inFlight: 'digest_gateway_requests_in_flight',
  lastSeen: CLIENT_LAST_SEEN,
} as const;

/** Sums the metrics by deployment and by client; requests are served meanwhile. */
export async function readTotals(read: ReadMetrics, at: number): Promise<Totals> {
  return runInSlices(totalsOf(await read(Object.values(READ)), at));
}

function* totalsOf(metrics: MetricValues, at: number): Steps<Totals> {
  const valuesOf = (metric: keyof typeof READ) => metrics.get(READ[metric])?.values ?? [];
  const deployments = new Map<string, DeploymentTotals>();
  const clients = new Map<string, ClientTotals>();
  const flows = new Map<string, FlowTotals>();
  const of = (deployment: unknown): DeploymentTotals => getOrInsert(deployments, text(deployment), noTotals);
  const ofClient = (client: unknown): ClientTotals => getOrInsert(clients, text(client), noClientTotals);
  for (const { labels, value } of valuesOf('requests')) {
    const { deployment, client, status, code } = labels;
    addRequests(of(deployment), text(status), text(code), value);
    addClient(ofClient(client), text(status), text(code), value);
    addFlow(flows, text(client), text(deployment), isRefusal(text(status), text(code)), value);
    yield;
  }
  for (const { labels, value } of valuesOf('lastSeen')) ofClient(labels['client']).lastSeen = value * 1000;
  for (const { labels, value } of valuesOf('challenges')) {
    const totals = of(labels['deployment']);
    totals.challenges += value;
    if (labels['reason'] !== 'ahead') totals.awaited += value;
  }
  for (const { labels, value } of valuesOf('attempts')) {
    if (labels['result'] === 'ok') of(labels['deployment']).accepted += value;
  }
  for (const { labels, value } of valuesOf('outcomes')) {
    add(of(labels['deployment']).outcomes, text(labels['outcome']), value);
  }
  for (const { labels, value } of valuesOf('inFlight')) of(labels['deployment']).inFlight += value;
  const { bounds, series } = metrics.get(READ.durations)?.histogram ?? { bounds: [], series: [] };
  for (const { labels, counts } of series) {
    const { durations } = of(labels['deployment']);
    let cumulative = 0;
    for (const [bucket, count] of counts.entries()) {
      cumulative += count;
      add(durations, bounds[bucket] ?? Number.POSITIVE_INFINITY, cumulative);
    }
    yield;
  }
  return { at, deployments, clients, flows };
}

function addRequests(totals: DeploymentTotals, status: string, code: string, value: number): void {
  totals.requests += value;
  add(totals.classes, status.slice(0, 1), value);
  if (isRefusal(status, code)) add(totals.refusedCodes, code, value);
  else if (isError(status, code)) add(totals.errorCodes, code, value);
}

function addClient(totals: ClientTotals, status: string, code: string, value: number): void {
  totals.requests += value;
  if (!isRefusal(status, code)) return;
  const refusals = new Map(totals.refusals);
  add(refusals, code, value);
  totals.refusals = refusals;
}

function addFlow(
  flows: Map<string, FlowTotals>,
  client: string,
  deployment: string,
  refused: boolean,
  value: number,
): void {
  const key = flowKey(client, deployment);
  const none = (): FlowTotals => ({ key, client, deployment, requests: 0, refused: 0 });
  const flow = getOrInsert(flows, key, none);
  flow.requests += value;
  if (refused) flow.refused += value;
}

/** True for "5xx" and "other", too: an invalid status counts as one of 5xx (RFC 9110 §15). */
function isError(status: string, code: string): boolean {
  return status >= '500' || (code !== '' && statusOfCode(code) >= 500);
}

/** By the code, since a response that is broken off keeps the status that it began with. */
function isRefusal(status: string, code: string): boolean {
  return code !== '' && !isError(status, code) && statusOfCode(code) !== CLIENT_CLOSED;
}

function add<Key>(sums: Map<Key, number>, key: Key, value: number): void {
  sums.set(key, (sums.get(key) ?? 0) + value);
}

function text(label: unknown): string {
  return label === undefined ? '' : String(label);
}

/** Adds up the totals of all deployments, and of requests without one. */
function sumOf(all: Iterable<DeploymentTotals>): DeploymentTotals {
  const sum = noTotals();
  for (const each of all) {
    for (const name of [...RISING, 'inFlight'] as const) sum[name] += each[name];
    for (const name of MAPS) addAll<string>(sum[name], each[name]);
    addAll(sum.durations, each.durations);
  }
  return sum;
}

/** The counts that only rise. */
const RISING = ['requests', 'challenges', 'awaited', 'accepted'] as const;
const MAPS = ['classes', 'outcomes', 'refusedCodes', 'errorCodes'] as const;

function addAll<Key>(sums: Map<Key, number>, values: ReadonlyMap<Key, number>): void {
  for (const [key, value] of values) add(sums, key, value);
}

const NO_REFUSALS: ReadonlyMap<string, number> = new Map();
const noClientTotals = (): ClientTotals => ({ requests: 0, refusals: NO_REFUSALS, lastSeen: null });
export const NO_CLIENT: Readonly<ClientTotals> = noClientTotals();

/**
 * Returns these totals with the objects of earlier ones in place of those that are equal: with thousands of clients and
 * deployments, of which few have requests in a few seconds, each sample that is kept would take 10 MiB.
 */
export function sharedWith(earlier: Totals | undefined, totals: Totals): Totals {
  if (earlier === undefined) return totals;
  const { at, deployments, clients, flows } = totals;
  return {
    at,
    deployments: shared(earlier.deployments, deployments),
    clients: shared(earlier.clients, clients),
    // A key is a string of its own in each sample.
    flows: new Map(Array.from(shared(earlier.flows, flows).values(), (flow) => [flow.key, flow])),
  };
}

function shared<Value extends object>(
  earlier: ReadonlyMap<string, Value>,
  now: ReadonlyMap<string, Value>,
): ReadonlyMap<string, Value> {
  return new Map(
    Array.from(now, ([key, value]) => {
      const before = earlier.get(key);
      return [key, before !== undefined && isDeepStrictEqual(before, value) ? before : value];
    }),
  );
}

/** The counts of a deployment between two moments. */
export interface DeploymentInterval extends Readonly<Record<(typeof RISING)[number], number>> {
  readonly seconds: number;
  /** Responses of the upstream by outcome. */
  readonly outcomes: ReadonlyMap<string, number>;
  readonly errors: number;
  readonly errorCodes: readonly CodeCount[];
  readonly refused: number;
  readonly refusedCodes: readonly CodeCount[];
  /** Responses by the first digit of their status. */
  readonly classes: ReadonlyMap<string, number>;
  /** Undefined if no request ended. */
  readonly latency: Latency | undefined;
  /** At its end. */
  readonly inFlight: number;
}

/** Returns the counts of a deployment between two samples. */
export function intervalOf(deployment: string, from: Totals, to: Totals): DeploymentInterval {
  const [before, after] = [from, to].map(({ deployments }) => deployments.get(deployment));
  return deploymentInterval(before, after, to.at - from.at);
}

/** The same of all deployments together, and of requests without one. */
export function intervalOfAll(from: Totals, to: Totals): DeploymentInterval {
  const [before, after] = [from, to].map(({ deployments }) => sumOf(deployments.values()));
  return deploymentInterval(before, after, to.at - from.at);
}

/** Returns the difference between two totals of a deployment; `milliseconds` is the time between them. */
export function deploymentInterval(
  before: DeploymentTotals = noTotals(),
  after: DeploymentTotals = noTotals(),
  milliseconds: number,
): DeploymentInterval {
  const errorCodes = rises(before.errorCodes, after.errorCodes);
  const refusedCodes = rises(before.refusedCodes, after.refusedCodes);
  return {
    ...risesOf(before, after),
    seconds: milliseconds / 1000,
    outcomes: differences(before.outcomes, after.outcomes),
    errors: sumCodes(errorCodes),
    errorCodes,
    refused: sumCodes(refusedCodes),
    refusedCodes,
    classes: differences(before.classes, after.classes),
    latency: latencyOf(before.durations, after.durations),
    inFlight: after.inFlight,
  };
}

function risesOf(before: DeploymentTotals, after: DeploymentTotals): Record<(typeof RISING)[number], number> {
  const entries = RISING.map((name) => [name, after[name] - before[name]]);
  return Object.fromEntries(entries);
}

/** Converts an interval to a point: rates per second, percentiles in seconds. */
export function pointOf(interval: DeploymentInterval): Point {
  const { seconds, classes, challenges, latency } = interval;
  const rate = (count = 0): number => rateOf(count, seconds);
  return {
    '2xx': rate(classes.get('2')),
    '3xx': rate(classes.get('3')),
    '4xx': rate(classes.get('4')),
    '5xx': rate(classes.get('5')),
    challenges: rate(challenges),
    reuse: reuseOf(interval),
    p50: latency?.p50 ?? null,
    p95: latency?.p95 ?? null,
    p99: latency?.p99 ?? null,
  };
}

/** The share of the accepted requests that waited for no challenge; null: none was accepted. */
export function reuseOf({ accepted, awaited }: DeploymentInterval): number | null {
  return accepted <= 0 ? null : round(Math.max(0, 1 - awaited / accepted));
}

/** Returns a rate per second, rounded; 0 if no time has passed. */
export function rateOf(count: number, seconds: number): number {
  return seconds > 0 ? round(count / seconds) : 0;
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

/** Adds up the counts of all codes. */
export function sumCodes(codes: readonly CodeCount[]): number {
  return codes.reduce((sum, { count }) => sum + count, 0);
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
