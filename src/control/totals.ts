import type { Metrics } from '../metrics/metrics.ts';

/** The metrics' counts at one moment. */
export interface Totals {
  /** Unix milliseconds. */
  readonly at: number;
  readonly deployments: ReadonlyMap<string, DeploymentTotals>;
  /** By name in the configuration; the empty name is for unidentified clients. */
  readonly clients: ReadonlyMap<string, ClientTotals>;
}

export interface DeploymentTotals {
  requests: number;
  /** Responses of 500 and above. */
  errors: number;
  /** Requests that the gateway refused with a 4xx error. */
  refused: number;
  challenges: number;
  inFlight: number;
  /** Responses of the upstream by outcome. */
  readonly outcomes: Map<string, number>;
  /** Errors by code of the gateway; the empty code is for errors of the upstream. */
  readonly errorCodes: Map<string, number>;
  /**
   * Requests by upper bound of their duration in seconds; cumulative, ascending, the last bound infinite.
   */
  readonly durations: Map<number, number>;
}

export interface ClientTotals {
  requests: number;
  /** Requests of the client that the gateway refused, by code. */
  readonly refusals: Map<string, number>;
}

/** Totals of zero. */
export const noTotals = (): DeploymentTotals => ({
  requests: 0,
  errors: 0,
  refused: 0,
  challenges: 0,
  inFlight: 0,
  outcomes: new Map(),
  errorCodes: new Map(),
  durations: new Map(),
});

/** Status for a client that closed the connection before the response. */
const CLIENT_CLOSED = '499';

/** Sums the metrics by deployment and by client. */
export async function readTotals(metrics: Metrics, at: number): Promise<Totals> {
  const [requests, challenges, outcomes, durations, inFlight] = await Promise.all([
    metrics.requests.get(),
    metrics.challenges.get(),
    metrics.outcomes.get(),
    metrics.requestDuration.get(),
    metrics.requestsInFlight.get(),
  ]);
  const deployments = new Map<string, DeploymentTotals>();
  const clients = new Map<string, ClientTotals>();
  const of = (deployment: unknown): DeploymentTotals => entry(deployments, text(deployment), noTotals);
  for (const { labels, value } of requests.values) {
    addRequests(of(labels.deployment), text(labels.status), text(labels.code), value);
    const client = entry(clients, text(labels.client), () => ({ requests: 0, refusals: new Map() }));
    addClient(client, text(labels.status), text(labels.code), value);
  }
  for (const { labels, value } of challenges.values) of(labels.deployment).challenges += value;
  for (const { labels, value } of outcomes.values) {
    add(of(labels.deployment).outcomes, text(labels.outcome), value);
  }
  for (const { labels, value } of inFlight.values) of(labels.deployment).inFlight += value;
  for (const { labels, value, metricName } of durations.values) {
    if (metricName?.endsWith('_bucket') !== true || !('le' in labels)) continue;
    const bound = labels.le === '+Inf' ? Number.POSITIVE_INFINITY : Number(labels.le);
    add(of(labels.deployment).durations, bound, value);
  }
  return { at, deployments, clients };
}

function addRequests(totals: DeploymentTotals, status: string, code: string, value: number): void {
  totals.requests += value;
  if (isRefusal(status, code)) totals.refused += value;
  if (!isError(status)) return;
  totals.errors += value;
  add(totals.errorCodes, code, value);
}

function addClient(totals: ClientTotals, status: string, code: string, value: number): void {
  totals.requests += value;
  if (isRefusal(status, code)) add(totals.refusals, code, value);
}

function isError(status: string): boolean {
  return Number(status) >= 500;
}

function isRefusal(status: string, code: string): boolean {
  return code !== '' && !isError(status) && status !== CLIENT_CLOSED;
}

function add<Key>(sums: Map<Key, number>, key: Key, value: number): void {
  sums.set(key, (sums.get(key) ?? 0) + value);
}

function entry<Value>(map: Map<string, Value>, key: string, make: () => Value): Value {
  const known = map.get(key);
  if (known !== undefined) return known;
  const made = make();
  map.set(key, made);
  return made;
}

function text(label: unknown): string {
  return label === undefined ? '' : String(label);
}
