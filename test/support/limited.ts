import { GatewayError } from '../../src/base/errors.ts';
import { runAtOnce } from '../../src/base/steps.ts';
import { Limits, type LimitsDeps, type Permit } from '../../src/limits/limits.ts';
import type { Clocks } from '../../src/limits/local-limit.ts';
import type { LimitSettings, Report } from '../../src/limits/store.ts';
import { Metrics } from '../../src/metrics/metrics.ts';

/** 2026-11-20, noon, UTC. */
const NOON = Date.UTC(2026, 10, 20, 12);

export const realClocks: Clocks = { now: () => performance.now(), epoch: () => Date.now() };

/** Clocks that stand still until they are told how many milliseconds pass. */
export function clocksAt(epoch = NOON): Clocks & { pass(ms: number): void } {
  let passed = 0;
  return {
    now: () => passed,
    epoch: () => epoch + passed,
    pass(ms) {
      passed += ms;
    },
  };
}

/** Settings that limit nothing but what is given. */
export function limit(settings: Partial<LimitSettings>): LimitSettings {
  return { rate: undefined, concurrent: undefined, daily: undefined, ...settings };
}

export type Settings = Readonly<Record<string, LimitSettings>>;

export interface LimitedScene {
  readonly limits: Limits;
  readonly metrics: Metrics;
  readonly clocks: ReturnType<typeof clocksAt>;
  configure(clients: Settings, deployments?: Settings): void;
  /** Returns the permit of a request, or the refusal. */
  ask(client?: string, deployment?: string): Permit | undefined | GatewayError;
  /** How many of so many requests pass; each ends before the next. */
  passing(count: number, client?: string, deployment?: string): number;
}

/** Limits of clients and deployments, in one process unless a store is given, on clocks that stand still. */
export function limitsOf(
  clients: Settings,
  deployments: Settings = {},
  openStore?: LimitsDeps['openStore'],
  clocks = clocksAt(),
): LimitedScene {
  const metrics = new Metrics({ version: 'test', node: 'test' });
  const options = (ofClients: Settings, ofDeployments: Settings) => ({
    clients: new Map(Object.entries(ofClients)),
    deployments: new Map(Object.entries(ofDeployments)),
  });
  const limits = new Limits(options(clients, deployments), { clocks, metrics, openStore });
  const ask: LimitedScene['ask'] = (client = 'a', deployment = 'd') => {
    try {
      return limits.take(client, deployment);
    } catch (error) {
      if (error instanceof GatewayError && error.code === 'rate-limited') return error;
      throw error;
    }
  };
  return {
    limits,
    metrics,
    clocks,
    configure: (ofClients, ofDeployments = {}) =>
      runAtOnce(limits.prepare(options(ofClients, ofDeployments)))(),
    ask,
    passing(count, client, deployment) {
      let passed = 0;
      for (let asked = 0; asked < count; asked += 1) {
        const answer = ask(client, deployment);
        end(answer);
        if (!(answer instanceof GatewayError)) passed += 1;
      }
      return passed;
    },
  };
}

/** The end of a request that has passed. */
export function end(answer: Permit | undefined | GatewayError): void {
  if (!(answer instanceof GatewayError)) answer?.release();
}

/** The headers of a refusal or a permit, by name. */
export function headersOf(answer: Permit | undefined | GatewayError): Record<string, string> {
  if (!(answer instanceof GatewayError)) {
    const lines = answer?.lines.trimEnd().split('\r\n') ?? [];
    return Object.fromEntries(lines.map((line) => line.split(': ')));
  }
  const flat = ['retry-after', String(answer.retryAfter), ...(answer.headers ?? [])];
  const pairs = Array.from({ length: flat.length / 2 }, (_, at) => [flat[2 * at], flat[2 * at + 1]]);
  return Object.fromEntries(pairs);
}

/** The number of the day since 1970, UTC. */
export function today(): number {
  return Math.floor(Date.now() / 86_400_000);
}

/** The report of a process that has used nothing; a token comes in a hundred seconds, so that none comes meanwhile. */
export function unused(): Report {
  return {
    total: 0,
    settled: 0,
    forgiven: 0,
    wanted: 0,
    inFlight: 0,
    lifetimeMs: 60_000,
    perSecond: 0.01,
    burst: 100,
    tokens: 100,
    used: 0,
    day: today(),
    // More than a test spends.
    ofDay: 1_000,
  };
}
