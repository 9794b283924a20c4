import { runAtOnce, type Steps, slices } from '../base/steps.ts';
import type { Metrics } from '../metrics/metrics.ts';
import { Allowance, type Clocks, type Party, type Shortage } from './allowance.ts';
import { fieldsOf, type Limited, Permit } from './permit.ts';
import { RateLimited } from './rate-limited.ts';
import type { LimitSettings } from './settings.ts';
import { BEAT_MS, Settling } from './settling.ts';
import type { LimitStore } from './store.ts';

/** The limits that are configured, by id of the client and name of the deployment. */
export interface LimitsOptions {
  readonly clients: ReadonlyMap<string, LimitSettings>;
  readonly deployments: ReadonlyMap<string, LimitSettings>;
}

export interface LimitsExternals {
  readonly clocks: Clocks;
  readonly metrics: Metrics;
  /** Opens what processes share, once there are limits; undefined: this process is the only one. */
  readonly openStore: (() => LimitStore) | undefined;
}

/** Who may send how much. Knows only clients and deployments of the configuration, so its size has an end. */
export class Limits {
  readonly #externals: LimitsExternals;
  #clients: ReadonlyMap<string, Limited> = new Map();
  #deployments: ReadonlyMap<string, Limited> = new Map();
  #store: LimitStore | undefined;
  #beat: NodeJS.Timeout | undefined;

  constructor(options: LimitsOptions, externals: LimitsExternals) {
    this.#externals = externals;
    runAtOnce(this.prepare(options))();
  }

  /**
   * Builds new limits. What the steps come to puts them in force at once, for the requests that come from then on; what
   * was used of those that stay is not forgotten.
   */
  *prepare(options: LimitsOptions): Steps<() => void> {
    const clients = yield* this.#build('client', options.clients, this.#clients);
    const deployments = yield* this.#build('deployment', options.deployments, this.#deployments);
    return () => {
      for (const { limited, settings } of [...clients, ...deployments]) limited.allowance.change(settings);
      const before = this.#all;
      this.#clients = byName(clients);
      this.#deployments = byName(deployments);
      const after = new Set(this.#all);
      for (const limited of before) if (!after.has(limited)) limited.settling?.stop();
    };
  }

  /**
   * Hears how the limits stand, for the start and after new ones were put in force. Waits for each for 100 ms at most,
   * and never rejects.
   */
  async restore(): Promise<void> {
    const pause = slices();
    const heard: (Promise<unknown> | undefined)[] = [];
    for (const { settling } of this.#all) {
      heard.push(settling?.settle());
      await pause();
    }
    await Promise.all(heard);
  }

  /**
   * Takes what one request of the client to the deployment uses, all of it or nothing; at once. The caller
   * releases the permit when the request has ended. undefined: nothing limits it.
   * @throws RateLimited
   */
  take(client: string, deployment: string): Permit | undefined {
    const ofClient = this.#clients.get(client);
    const ofDeployment = this.#deployments.get(deployment);
    if (ofClient === undefined) {
      return ofDeployment === undefined ? undefined : this.#takeAll(client, [ofDeployment]);
    }
    return this.#takeAll(client, ofDeployment === undefined ? [ofClient] : [ofClient, ofDeployment]);
  }

  /** Settles what is left to settle and closes the store. */
  async close(): Promise<void> {
    clearInterval(this.#beat);
    await Promise.all(this.#all.map(({ settling }) => settling?.leave()));
    await this.#store?.close();
  }

  get #all(): Limited[] {
    return [...this.#clients.values(), ...this.#deployments.values()];
  }

  #takeAll(client: string, parts: readonly Limited[]): Permit {
    for (const { allowance, settling } of parts) {
      const shortage = allowance.shortage();
      if (shortage === undefined) continue;
      settling?.touch();
      this.#externals.metrics.rateLimited.inc({ client });
      throw new RateLimited(sentence(allowance.party, shortage), shortage.seconds, fieldsOf(parts));
    }
    for (const { allowance, settling } of parts) {
      allowance.take();
      settling?.touch();
    }
    return new Permit(parts);
  }

  *#build(
    party: Party,
    all: ReadonlyMap<string, LimitSettings>,
    known: ReadonlyMap<string, Limited>,
  ): Steps<Prepared[]> {
    const built: Prepared[] = [];
    for (const [name, settings] of all) {
      built.push({ name, settings, limited: known.get(name) ?? this.#limited(party, name, settings) });
      yield;
    }
    return built;
  }

  #limited(party: Party, name: string, settings: LimitSettings): Limited {
    const { clocks, metrics, openStore } = this.#externals;
    const allowance = new Allowance(party, settings, clocks);
    if (openStore === undefined) return { allowance, settling: undefined };
    this.#store ??= openStore();
    this.#beat ??= setInterval(() => {
      for (const { settling } of this.#all) settling?.beat();
    }, BEAT_MS).unref();
    const settling = new Settling({
      name: `${party}:${name}`,
      allowance,
      store: this.#store,
      clock: clocks,
      onError: () => metrics.storeErrors.inc({ operation: 'limits' }),
    });
    return { allowance, settling };
  }
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

const WHO: Readonly<Record<Party, string>> = { client: 'This client', deployment: 'This deployment' };

function sentence(party: Party, { limit }: Shortage): string {
  const who = WHO[party];
  switch (limit) {
    case 'rate':
      return `${who} has used up its rate (limits.rate).`;
    case 'concurrent':
      return `${who} has reached its number of concurrent requests (limits.concurrent).`;
    case 'daily':
      return `${who} has used up its requests of this day, UTC (limits.daily).`;
  }
}
