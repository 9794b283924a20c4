import { mkdtemp, readFile, rename, rm, symlink, writeFile } from 'node:fs/promises';
import type { IncomingMessage } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Pool } from 'undici';
import { parse, stringify } from 'yaml';
import type { Observer } from '../../src/simulator/exchange.ts';
import { type BehaviourChange, defaultSettings } from '../../src/simulator/settings.ts';
import { type GatewayProcess, startGatewayProcess } from '../support/gateway-process.ts';
import { watchHealth } from '../support/load.ts';
import { startRedis } from '../support/redis.ts';
import { startBreakingRelay } from '../support/relay.ts';
import { startSimulator } from '../support/simulator.ts';
import { until } from '../support/until.ts';

/** An upstream, and how it is used once that is learned. */
export interface FaultProfile {
  readonly behaviour: BehaviourChange;
  /** Each request has to obtain a nonce of its own. */
  readonly oneTime?: boolean;
}

export const PROFILES: Readonly<Record<string, FaultProfile>> = {
  'strict nc': { behaviour: { qop: 'auth', nc: 'rising', refusedNcKillsNonce: true } },
  'one-time nonce': { behaviour: { qop: 'auth', oneTimeNonces: true }, oneTime: true },
  'no qop': { behaviour: {} },
  'never stale': { behaviour: { qop: 'auth', nc: 'window', staleFlag: 'never' } },
};

const NAME = 'upstream';
const TARGET =
  '/api/manuscripts/v2/submissions/full/contributors/authors/submissionids?ids=%27DEMO-2026-0001%27&site_name=demo';
const PROCESSES = 3;
/** Clients of each process; one more sends POST. */
const GET_CLIENTS = 3;
/** The longest that any step of a round may take, in milliseconds: three processes may share a slow machine. */
const STEP_LIMIT_MS = 120_000;
/** Requests of each client that have to be served between two rounds. */
const SERVED_BETWEEN = 2;

/** A client request that got no 2xx response. */
export interface Failure {
  readonly round: number;
  readonly what: string;
  /**
   * True: a reset explains it. The connections were reset while it was under way: once, and it is not idempotent
   * (RFC 9110 §9.2.2); or twice.
   */
  readonly explained: boolean;
}

export interface FaultsReport {
  readonly rounds: number;
  readonly requests: number;
  readonly failures: readonly Failure[];
  /** Authorization headers whose nonce had come with the same nc before. */
  readonly duplicates: number;
  readonly authorizations: number;
  readonly challenges: number;
  /** Authenticated attempts with a wrong password. */
  readonly wrong: number;
  readonly slowestMs: number;
  /** Answers of `/readyz` other than 200. */
  readonly unready: number;
  /**
   * From the last round's faults to the last client request that took more than it has to, in milliseconds; and from
   * the moment when all processes had taken over what was changed.
   */
  readonly steadyAfterMs: { readonly faults: number; readonly takenOver: number };
  /** Errors that the processes logged, each text once. */
  readonly errors: readonly string[];
}

export interface FaultScene {
  /** A reload, a rotation and a reset at the same time; resolves when all clients are served again after them. */
  round(): Promise<void>;
  /** Resolves when so many requests in a row took one exchange each, or two where nonces serve once. */
  steady(requests: number): Promise<void>;
  /** Ends the load. */
  report(): Promise<FaultsReport>;
  close(): Promise<void>;
}

/** Requests at the upstream, as they come. */
export class Arrivals implements Observer {
  readonly #oneTime: boolean;
  readonly #counts = new Set<string>();
  authorizations = 0;
  duplicates = 0;
  /** When a client request last took more than it has to. */
  lastUnsteadyAt = 0;
  inARow = 0;

  constructor(oneTime: boolean) {
    this.#oneTime = oneTime;
  }

  arrived({ headers: { authorization } }: IncomingMessage): void {
    if (authorization === undefined) return;
    this.authorizations += 1;
    const [, nonce = ''] = /\bnonce="([^"]*)"/.exec(authorization) ?? [];
    const [, nc] = /\bnc=([0-9a-f]{8})/i.exec(authorization) ?? [];
    if (nc === undefined) return;
    const count = `${nonce} ${nc}`;
    if (this.#counts.has(count)) this.duplicates += 1;
    this.#counts.add(count);
  }

  decided({ method }: IncomingMessage, decision: Parameters<Observer['decided']>[1]): void {
    // The gateway's own requests: probes and renewals.
    if (method === 'HEAD') return;
    const isSteady = decision.kind === 'accepted' || (this.#oneTime && decision.kind === 'asked');
    if (isSteady) {
      this.inARow += 1;
      return;
    }
    this.inARow = 0;
    this.lastUnsteadyAt = performance.now();
  }
}

/** Numbers from 0 to 1, the same ones in each run. */
function seeded(seed: number): () => number {
  let state = seed;
  return () => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return state / 2 ** 32;
  };
}

const passwordOf = (round: number): string => `password-${round}`;
const accountOf = (round: number) => [
  { username: 'demo-user', password: passwordOf(round), sites: ['demo'] },
];

/** How often a process took something over, by what the lines of its log say has changed. */
const changesOf = ({ logged }: GatewayProcess, what: string): number =>
  logged.filter(({ changed }) => Array.isArray(changed) && changed.includes(what)).length;

/** How far the rounds are. */
interface Progress {
  round: number;
  /** How often all connections were reset. */
  resets: number;
}

/** Plain clients of the processes, without a pause. */
class Load {
  readonly failures: Failure[] = [];
  requests = 0;
  slowestMs = 0;
  /** Responses so far, by client. */
  readonly served: number[] = [];
  readonly #progress: Readonly<Progress>;
  readonly #pools: readonly Pool[];
  readonly #clients: Promise<void>[] = [];
  #going = true;

  constructor(gateways: readonly GatewayProcess[], progress: Readonly<Progress>) {
    this.#progress = progress;
    this.#pools = gateways.map(({ origin }) => new Pool(origin));
    for (const pool of this.#pools) {
      for (let index = 0; index <= GET_CLIENTS; index += 1) {
        const at = this.served.push(0) - 1;
        this.#clients.push(this.#client(pool, index === GET_CLIENTS ? 'POST' : 'GET', at));
      }
    }
  }

  async end(): Promise<void> {
    this.#going = false;
    await Promise.all(this.#clients);
    await Promise.all(this.#pools.map((pool) => pool.close()));
  }

  async #client(pool: Pool, method: 'GET' | 'POST', at: number): Promise<void> {
    while (this.#going) {
      const begun = performance.now();
      const { resets } = this.#progress;
      const what = await ask(pool, method);
      this.requests += 1;
      this.slowestMs = Math.max(this.slowestMs, performance.now() - begun);
      const hits = this.#progress.resets - resets;
      const explained = hits >= (method === 'POST' ? 1 : 2);
      if (what !== '')
        this.failures.push({ round: this.#progress.round, what: `${method} ${what}`, explained });
      this.served[at] = (this.served[at] ?? 0) + 1;
    }
  }
}

/** Empty: it was served. */
async function ask(pool: Pool, method: 'GET' | 'POST'): Promise<string> {
  const request = method === 'GET' ? { path: TARGET, method } : { path: '/echo', method, body: 'content' };
  try {
    const { statusCode, body } = await pool.request(request);
    const text = await body.text();
    if (statusCode === 200) return '';
    const [, code = ''] = /"code":"([^"]+)"/.exec(text) ?? [];
    return `${statusCode} ${code}`;
  } catch (error) {
    return String(error);
  }
}

/**
 * Three processes on one Redis in front of one upstream, under load, on the way of which connections can break.
 * @param delayMs how long the upstream takes, so that requests are under way whenever something happens
 */
export async function startFaultScene(
  { behaviour, oneTime = false }: FaultProfile,
  delayMs = 20,
): Promise<FaultScene> {
  const closing: (() => Promise<unknown>)[] = [];
  const close = async (): Promise<void> => {
    for (const each of closing.splice(0).reverse()) await each();
  };
  try {
    const delayed = { faults: [{ kind: 'delay' as const, ms: delayMs }], ...behaviour };
    return await openScene(delayed, new Arrivals(oneTime), closing, close);
  } catch (error) {
    await close();
    throw error;
  }
}

async function openScene(
  behaviour: BehaviourChange,
  arrivals: Arrivals,
  closing: (() => Promise<unknown>)[],
  close: () => Promise<void>,
): Promise<FaultScene> {
  const redis = await startRedis();
  closing.push(() => redis.close());
  const { submissions } = defaultSettings().deployments;
  const upstream = {
    ...submissions,
    testPaths: true,
    accounts: accountOf(0),
    ...behaviour,
  };
  const simulator = await startSimulator({ deployments: { upstream } }, { observer: arrivals });
  closing.push(() => simulator.close());
  const relay = await startBreakingRelay(simulator.deployments.upstream.port);
  closing.push(() => relay.close());
  const folder = await mkdtemp(join(tmpdir(), 'secrets-'));
  closing.push(() => rm(folder, { recursive: true }));
  await exchangeSecrets(folder, passwordOf(0), passwordOf(1));
  const served = { upstream: { origin: `https://127.0.0.1:${relay.port}`, ca: simulator.ca } };
  const top = { redis: { url: redis.url }, credentials: { upstream: mountedCredential(folder) } };
  const starting = Array.from({ length: PROCESSES }, () => startGatewayProcess(served, top));
  closing.push(async () => {
    // One that does not start leaves the others running.
    const started = await Promise.allSettled(starting);
    await Promise.all(started.map((each) => (each.status === 'fulfilled' ? each.value.close() : undefined)));
  });
  const gateways = await Promise.all(starting);
  const progress: Progress = { round: 0, resets: 0 };
  const health = gateways.map((gateway) => watchHealth(gateway, 100));
  const load = new Load(gateways, progress);
  const random = seeded(1);
  let lastFaultsAt = 0;
  let lastTakenOverAt = 0;
  let ended: Promise<number> | undefined;
  const end = (): Promise<number> => {
    ended ??= (async () => {
      await load.end();
      const seen = await Promise.all(health.map((each) => each.stop()));
      return seen.reduce((sum, { unready }) => sum + unready.length, 0);
    })();
    return ended;
  };
  closing.push(end);

  const reload = async (gateway: GatewayProcess): Promise<void> => {
    const config = parse(await readFile(gateway.configFile, 'utf8'));
    // Another setting, so that the upstream is replaced.
    config.deployments[NAME].connections = 64 + progress.round;
    await writeFile(gateway.configFile, stringify(config));
    process.kill(gateway.pid, 'SIGHUP');
  };
  /** The upstream changes over to the password that was `next`. */
  const rotate = async (): Promise<void> => {
    const { round } = progress;
    simulator.set(NAME, { accounts: accountOf(round) });
    await exchangeSecrets(folder, passwordOf(round), passwordOf(round + 1));
  };
  const reset = (): void => {
    progress.resets += 1;
    relay.resetAll();
  };

  return {
    async round() {
      progress.round += 1;
      const { round } = progress;
      const reloaded = random() < 0.5 ? gateways : gateways.filter((_, at) => at === round % PROCESSES);
      const before = reloaded.map((gateway) => changesOf(gateway, `deployments.${NAME}`));
      const faults = [() => Promise.all(reloaded.map(reload)), rotate, async () => reset()];
      const order = faults.map((fault) => ({ fault, at: random() })).sort((x, y) => x.at - y.at);
      lastFaultsAt = performance.now();
      await Promise.all(order.map(({ fault }) => fault()));
      const isReloaded = (each: GatewayProcess, at: number): boolean =>
        changesOf(each, `deployments.${NAME}`) > (before[at] ?? 0);
      await until(() => reloaded.every(isReloaded), STEP_LIMIT_MS);
      await until(
        () => gateways.every((gateway) => changesOf(gateway, `credentials.${NAME}`) >= round),
        STEP_LIMIT_MS,
      );
      lastTakenOverAt = performance.now();
      // The first one of each client may have been under way before.
      const sent = [...load.served];
      const isServed = (count: number, at: number): boolean =>
        (load.served[at] ?? 0) > count + SERVED_BETWEEN;
      await until(() => sent.every(isServed), STEP_LIMIT_MS);
    },
    async steady(requests) {
      await until(() => arrivals.inARow >= requests, STEP_LIMIT_MS);
    },
    async report() {
      const unready = await end();
      const { challenges, refused } = simulator.counts(NAME);
      const errors = gateways.flatMap(({ logged }) =>
        logged.filter(({ level }) => level === 'error').map(({ msg, reason }) => `${msg} ${reason ?? ''}`),
      );
      return {
        rounds: progress.round,
        requests: load.requests,
        failures: load.failures,
        duplicates: arrivals.duplicates,
        authorizations: arrivals.authorizations,
        challenges,
        wrong: refused['wrong-response'],
        slowestMs: load.slowestMs,
        unready,
        steadyAfterMs: {
          faults: Math.max(0, arrivals.lastUnsteadyAt - lastFaultsAt),
          takenOver: Math.max(0, arrivals.lastUnsteadyAt - lastTakenOverAt),
        },
        errors: [...new Set(errors)],
      };
    },
    close,
  };
}

/** Files as Kubernetes mounts a secret: a link that is exchanged leads to all of them at once. */
export async function exchangeSecrets(folder: string, password: string, next: string): Promise<void> {
  const version = await mkdtemp(join(folder, 'version-'));
  await writeFile(join(version, 'password'), password, { mode: 0o600 });
  await writeFile(join(version, 'next'), next, { mode: 0o600 });
  await symlink(version, join(folder, 'new'));
  await rename(join(folder, 'new'), join(folder, 'now'));
}

/** The credential, as the configuration has it, whose password and next password are in such files. */
export function mountedCredential(folder: string): Record<string, unknown> {
  const file = (name: string) => ({ file: join(folder, 'now', name) });
  return {
    username: { value: 'demo-user' },
    password: file('password'),
    next: { password: file('next') },
  };
}
