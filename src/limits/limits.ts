import { GatewayError } from '../base/errors.ts';
import type { RawHeaders } from '../base/raw-headers.ts';
import { runAtOnce, type Steps, slices } from '../base/steps.ts';
import type { Metrics } from '../metrics/metrics.ts';
import { AWAKE_MS, LimitSync } from './limit-sync.ts';
import { type Clocks, type LimitScope, type LimitUse, LocalLimit, type Shortage } from './local-limit.ts';
import type { LimitSettings, LimitStore } from './store.ts';

/** The limits that are configured, by id of the client and name of the deployment. */
export interface LimitsOptions {
  readonly clients: ReadonlyMap<string, LimitSettings>;
  readonly deployments: ReadonlyMap<string, LimitSettings>;
}

export interface LimitsDeps {
  readonly clocks: Clocks;
  readonly metrics: Metrics;
  /** Opens the shared store, once there are limits; undefined: this process is the only one. */
  readonly openStore: (() => LimitStore) | undefined;
}

/** A limit with its synchronisation; undefined: there is one process only. */
interface Limited {
  readonly local: LocalLimit;
  readonly sync: LimitSync | undefined;
}

/** The place of one admitted request in its limits. */
export class Permit {
  readonly #first: Limited;
  readonly #second: Limited | undefined;
  #held = true;

  constructor(first: Limited, second: Limited | undefined) {
    this.#first = first;
    this.#second = second;
  }

  /** The lines of the current RateLimit-Policy and RateLimit. */
  get lines(): string {
    const policy = listOf('policy', this.#first, this.#second);
    const state = listOf('state', this.#first, this.#second);
    return `ratelimit-policy: ${policy}\r\nratelimit: ${state}\r\n`;
  }

  /** The request has ended; only the first call counts. */
  release(): void {
    if (!this.#held) return;
    this.#held = false;
    releaseOne(this.#first);
    if (this.#second !== undefined) releaseOne(this.#second);
  }
}

function releaseOne({ local, sync }: Limited): void {
  local.release();
  sync?.touch();
}

/** Value of RateLimit-Policy or of RateLimit (draft-ietf-httpapi-ratelimit-headers). */
function listOf(what: 'policy' | 'state', { local }: Limited, second: Limited | undefined): string {
  return second === undefined ? local[what] : `${local[what]}, ${second.local[what]}`;
}

/** RateLimit and RateLimit-Policy, flat. */
function fieldsOf(first: Limited, second: Limited | undefined): string[] {
  return ['ratelimit-policy', listOf('policy', first, second), 'ratelimit', listOf('state', first, second)];
}

/** The limits of clients and deployments. Only those of the configuration have one, so memory is bounded. */
export class Limits {
  readonly #deps: LimitsDeps;
  #clients: ReadonlyMap<string, Limited> = new Map();
  #deployments: ReadonlyMap<string, Limited> = new Map();
  #store: LimitStore | undefined;
  #beat: NodeJS.Timeout | undefined;

  constructor(options: LimitsOptions, deps: LimitsDeps) {
    this.#deps = deps;
    runAtOnce(this.prepare(options))();
  }

  /**
   * Builds new limits. The result puts them in force in one go. The usage of limits that stay still counts.
   */
  *prepare(options: LimitsOptions): Steps<() => void> {
    const clients = yield* this.#build('client', options.clients, this.#clients);
    const deployments = yield* this.#build('deployment', options.deployments, this.#deployments);
    return () => {
      for (const { limited, settings } of [...clients, ...deployments]) limited.local.change(settings);
      const before = this.#all;
      this.#clients = byName(clients);
      this.#deployments = byName(deployments);
      const after = new Set(this.#all);
      for (const limited of before) if (!after.has(limited)) limited.sync?.stop();
    };
  }

  /**
   * Takes over the usage of other processes, at the start and after a change. Waits for `redis.timeout` at most, and
   * never rejects.
   */
  async restore(): Promise<void> {
    const pause = slices();
    const heard: (Promise<unknown> | undefined)[] = [];
    for (const { sync } of this.#all) {
      heard.push(sync?.settle());
      await pause();
    }
    await Promise.all(heard);
  }

  /**
   * Admits one request of the client to the deployment, or refuses it, at once. The caller releases the permit when the
   * request has ended. undefined: no limit applies.
   * @throws GatewayError `rate-limited`, with the headers that state the limits
   */
  take(client: string, deployment: string): Permit | undefined {
    const ofClient = this.#clients.get(client);
    const ofDeployment = this.#deployments.get(deployment);
    const first = ofClient ?? ofDeployment;
    if (first === undefined) return undefined;
    const second = ofClient === undefined ? undefined : ofDeployment;
    const now = this.#deps.clocks.now();
    const shortage = first.local.shortage(client, now);
    if (shortage !== undefined) this.#refuse(client, first, shortage, fieldsOf(first, second));
    const secondShortage = second?.local.shortage(client, now);
    if (second !== undefined && secondShortage !== undefined) {
      this.#refuse(client, second, secondShortage, fieldsOf(first, second));
    }
    takeOne(first, client);
    if (second !== undefined) takeOne(second, client);
    return new Permit(first, second);
  }

  /** The use of a client's limits; undefined: it has none. */
  useOf(client: string): LimitUse | undefined {
    return this.#clients.get(client)?.local.use;
  }

  /** Reports the last usage and closes the store. */
  async close(): Promise<void> {
    clearInterval(this.#beat);
    await Promise.all(this.#all.map(({ sync }) => sync?.leave()));
    await this.#store?.close();
  }

  get #all(): Limited[] {
    return [...this.#clients.values(), ...this.#deployments.values()];
  }

  #refuse(client: string, { local, sync }: Limited, shortage: Shortage, headers: RawHeaders): never {
    sync?.touch();
    this.#deps.metrics.rateLimited.inc({ client });
    const { seconds } = shortage;
    const detail = `${sentence(local.scope, shortage)} Send the request again after ${seconds} s.`;
    throw new GatewayError('rate-limited', detail, undefined, { retryAfter: seconds, headers });
  }

  *#build(
    scope: LimitScope,
    all: ReadonlyMap<string, LimitSettings>,
    known: ReadonlyMap<string, Limited>,
  ): Steps<Prepared[]> {
    const built: Prepared[] = [];
    for (const [name, settings] of all) {
      built.push({ name, settings, limited: known.get(name) ?? this.#limited(scope, name, settings) });
      yield;
    }
    return built;
  }

  #limited(scope: LimitScope, name: string, settings: LimitSettings): Limited {
    const { clocks, metrics, openStore } = this.#deps;
    const local = new LocalLimit(scope, settings, clocks);
    if (openStore === undefined) return { local, sync: undefined };
    this.#store ??= openStore();
    this.#beat ??= setInterval(() => {
      for (const { sync } of this.#all) sync?.beat();
    }, AWAKE_MS).unref();
    const sync = new LimitSync({
      name: `${scope}:${name}`,
      local,
      store: this.#store,
      clock: clocks,
      onError: () => metrics.storeErrors.inc({ operation: 'limits' }),
    });
    return { local, sync };
  }
}

function takeOne({ local, sync }: Limited, client: string): void {
  local.take(client);
  sync?.touch();
}

/** A limit that is not in force yet. */
interface Prepared {
  readonly name: string;
  readonly settings: LimitSettings;
  readonly limited: Limited;
}

function byName(prepared: readonly Prepared[]): ReadonlyMap<string, Limited> {
  return new Map(prepared.map(({ name, limited }) => [name, limited]));
}

const WHO: Readonly<Record<LimitScope, string>> = { client: 'This client', deployment: 'This deployment' };

function sentence(scope: LimitScope, { limit }: Shortage): string {
  const who = WHO[scope];
  switch (limit) {
    case 'rate':
      return `${who} has used up its rate (limits.rate).`;
    case 'concurrent':
      return `${who} has reached its number of concurrent requests (limits.concurrent).`;
    case 'daily':
      return `${who} has used up its requests of this day, UTC (limits.daily).`;
  }
}
