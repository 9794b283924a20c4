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
    this.configure(options);
  }

  /** New limits for the requests that come from now on; what was used of those that stay is not forgotten. */
  configure({ clients, deployments }: LimitsOptions): void {
    const before = this.#all;
    this.#clients = this.#build('client', clients, this.#clients);
    this.#deployments = this.#build('deployment', deployments, this.#deployments);
    const after = new Set(this.#all);
    for (const limited of before) if (!after.has(limited)) limited.settling?.stop();
  }

  /** Hears how the limits stand, for the start and after `configure`. Takes 100 ms at most and never rejects. */
  async restore(): Promise<void> {
    await Promise.all(this.#all.map(({ settling }) => settling?.settle()));
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

  #build(
    party: Party,
    settings: ReadonlyMap<string, LimitSettings>,
    known: ReadonlyMap<string, Limited>,
  ): ReadonlyMap<string, Limited> {
    const built = new Map<string, Limited>();
    for (const [name, setting] of settings) {
      const limited = known.get(name);
      limited?.allowance.change(setting);
      built.set(name, limited ?? this.#limited(party, name, setting));
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

const WHO: Readonly<Record<Party, string>> = { client: 'This client', deployment: 'This deployment' };

function sentence(party: Party, { limit }: Shortage): string {
  const who = WHO[party];
  switch (limit) {
    case 'rate':
      return `${who} has used up its rate (limits.rate).`;
    case 'concurrent':
      return `${who} has as many requests under way as it may have (limits.concurrent).`;
    case 'daily':
      return `${who} has used up its requests of this day, UTC (limits.daily).`;
  }
}
