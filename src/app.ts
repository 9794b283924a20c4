import type { AddressInfo } from 'node:net';
import { isNativeError } from 'node:util/types';
import { limitsOptions, openLimits } from './app/limits.ts';
import type { Clock } from './base/clock.ts';
import type { Log } from './base/log.ts';
import type { SpentBuffers } from './base/spent-buffers.ts';
import { MemoryChallengeStore } from './challenges/memory.ts';
import { openRedisStore } from './challenges/redis.ts';
import type { RedisOptions } from './challenges/redis-connection.ts';
import { type ChallengeStore, NONCE_POLICIES, type NoncePolicy } from './challenges/store.ts';
import { credentialOf } from './config/deployment.ts';
import type { Config } from './config/schema.ts';
import { ControlPlane, type Readiness } from './control/control.ts';
import type { CredentialSet } from './credentials/credentials.ts';
import { type Deployment, Gateway, type GatewayOptions } from './gateway/gateway.ts';
import { identifier } from './gateway/identify.ts';
import { Listener } from './gateway/listener.ts';
import { Routes } from './gateway/routes.ts';
import { type BuildInfo, Metrics } from './metrics/metrics.ts';
import { compileRules } from './policy/rules.ts';
import { Upstream } from './upstream/upstream.ts';

/** How long a shutdown waits for requests under way, in milliseconds. */
const DRAIN_MS = 30_000;

/** A configuration with everything that it names, read and found right. */
export interface AppSetup {
  readonly config: Config;
  readonly credentials: ReadonlyMap<string, CredentialSet>;
  /** PEM by name of the deployment. */
  readonly authorities: ReadonlyMap<string, string>;
  /** undefined: without Redis. */
  readonly redis: RedisOptions | undefined;
}

export interface AppExternals {
  readonly clock: Clock;
  readonly log: Log;
  readonly build: BuildInfo;
  readonly spent: SpentBuffers;
}

export interface App {
  /** Opens both planes; resolves to where they listen. Rejects when a port cannot be had. */
  start(): Promise<{ listen: AddressInfo; control: AddressInfo }>;
  /** Takes over a new setup, or keeps the one in force if `load` rejects, and says so. */
  reload(load: () => Promise<AppSetup>): Promise<void>;
  /** Finishes the requests under way and closes everything; can be called again. */
  close(): Promise<void>;
}

/** The composition root: builds every part and hands each what it needs. */
export function createApp(setup: AppSetup, externals: AppExternals): App {
  const { clock, log } = externals;
  const metrics = new Metrics(externals.build);
  let storeUp = setup.redis === undefined;
  const store = openStore(setup.redis, metrics, log, (up) => {
    storeUp = up;
  });
  const onPolicyStep = (deployment: string, policy: NoncePolicy): void => {
    metrics.noncePolicySteps.inc({ deployment, policy });
    log.warn(
      { deployment, policy },
      'the upstream refuses nonces that are used as before: more careful from now on',
    );
  };
  const onNoncesApart = (deployment: string): void => {
    log.warn(
      { deployment },
      'the upstream refuses nonces that another process obtained: not shared from now on',
    );
  };
  const upstreamExternals = { store, clock, metrics, onPolicyStep, onNoncesApart };
  let deployments = buildDeployments(setup, upstreamExternals);
  store.onChange((key) => {
    for (const { upstream } of deployments) if (upstream.key === key) void upstream.adopt();
  });
  let listening: { address: string; port: number } = setup.config.listen;
  let live = false;
  let closing: Promise<void> | undefined;

  const limits = openLimits(setup, clock, metrics);
  const gateway = new Gateway(gatewayOptions(setup, deployments), {
    clock,
    log,
    metrics,
    spent: externals.spent,
    limits,
  });
  const listener = new Listener(gateway);
  const control = new ControlPlane({
    tokenSha256: setup.config.control.tokenSha256,
    registry: metrics.registry,
    observe: () => observeNonces(metrics, deployments),
    live: () => live,
    readiness: () => readiness(live, storeUp, deployments),
    offer: () => ({ version: externals.build.version, listen: listening, deployments }),
  });

  return {
    async start() {
      await Promise.all([limits.restore(), ...deployments.map(({ upstream }) => upstream.restore())]);
      const { listen, control: controlled } = setup.config;
      const opened = await listener.listen(listen.address, listen.port);
      listening = opened;
      const addresses = {
        listen: opened,
        control: await control.listen(controlled.address, controlled.port).catch(async (error) => {
          await listener.close(0);
          throw error;
        }),
      };
      live = true;
      metrics.configLastReload.setToCurrentTime();
      return addresses;
    },

    async reload(load) {
      try {
        const next = await load();
        const old = deployments;
        const built = buildDeployments(next, upstreamExternals);
        await Promise.all(built.map(({ upstream }) => upstream.restore()));
        deployments = built;
        gateway.configure(gatewayOptions(next, built));
        limits.configure(limitsOptions(next.config));
        await limits.restore();
        metrics.configReloads.inc({ result: 'success' });
        metrics.configLastReload.setToCurrentTime();
        log.info({ deployments: built.map(({ name }) => name) }, 'configuration reloaded');
        if (!sameFixtures(setup.config, next.config)) {
          log.warn('listen, control and redis cannot change while running: restart for that');
        }
        await Promise.all(old.map(({ upstream }) => upstream.close()));
      } catch (error) {
        metrics.configReloads.inc({ result: 'failure' });
        const reason = isNativeError(error) ? error.message : String(error);
        log.error({ reason }, 'the new configuration was refused; the one in force stays');
      }
    },

    close() {
      closing ??= (async () => {
        live = false;
        await listener.close(DRAIN_MS);
        await Promise.all(deployments.map(({ upstream }) => upstream.close()));
        await Promise.all([store.close(), limits.close()]);
        await control.close();
      })();
      return closing;
    },
  };
}

type UpstreamExternals = ConstructorParameters<typeof Upstream>[1];

function buildDeployments(setup: AppSetup, externals: UpstreamExternals): Deployment[] {
  const { deployments } = setup.config;
  return Object.entries(deployments).map(([name, deployment]) => {
    const credential = setup.credentials.get(credentialOf(deployment))?.current;
    if (credential === undefined) throw new TypeError(`no credential was read for deployment ${name}`);
    const upstream = new Upstream(
      {
        deployment: name,
        origin: deployment.baseUrl,
        credential,
        algorithms: deployment.digest.algorithms,
        noncePolicy: deployment.digest.noncePolicy,
        renewAhead: deployment.digest.renewAhead,
        connections: deployment.connections,
        timeouts: deployment.timeouts,
        totalTimeout: deployment.timeouts.total,
        body: deployment.body,
        tls: { ca: setup.authorities.get(name), minVersion: deployment.tls.minVersion },
      },
      externals,
    );
    const rules = compileRules(name, deployment, deployments);
    const { pathPrefix, host } = deployment.match;
    return { name, host: pathPrefix === undefined ? host : undefined, rules, upstream };
  });
}

function gatewayOptions({ config }: AppSetup, deployments: readonly Deployment[]): GatewayOptions {
  const routes = deployments.flatMap((deployment) => {
    const settings = config.deployments[deployment.name];
    return settings ? [{ deployment, match: { ...settings.match, baseUrl: settings.baseUrl } }] : [];
  });
  return { identify: identifier(config.anonymous), routes: new Routes(routes) };
}

function sameFixtures(a: Config, b: Config): boolean {
  return JSON.stringify([a.listen, a.control, a.redis]) === JSON.stringify([b.listen, b.control, b.redis]);
}

/** Redis, or the memory of this process alone. Tells of Redis when it comes and goes, never of each call. */
function openStore(
  redis: RedisOptions | undefined,
  { storeUp, storeErrors }: Metrics,
  log: Log,
  onUp: (up: boolean) => void,
): ChallengeStore {
  storeUp.set(redis === undefined ? 1 : 0);
  if (redis === undefined) return new MemoryChallengeStore();
  return openRedisStore(redis, {
    onUp: (up, reason) => {
      storeUp.set(up ? 1 : 0);
      onUp(up);
      if (up) log.info('Redis is there: nonces are shared');
      else log.warn({ reason }, 'Redis is not there: nonces are not shared, and everything else goes on');
    },
    onError: (operation) => storeErrors.inc({ operation }),
  });
}

function readiness(live: boolean, storeUp: boolean, deployments: readonly Deployment[]): Readiness {
  const planes = {
    name: 'data-plane',
    ok: live,
    detail: live ? '' : 'does not take requests: starting, or shutting down',
  };
  const store = {
    name: 'store',
    ok: storeUp,
    detail: storeUp ? '' : 'Redis is not there: nonces are not shared with other replicas',
  };
  const upstreams = deployments.map(({ name, upstream: { credentialRefused } }) => ({
    name: `deployment:${name}`,
    ok: !credentialRefused,
    detail: credentialRefused ? 'the upstream refuses the credential: check user name and password' : '',
  }));
  const served = live && upstreams.some(({ ok }) => ok);
  const checks = [planes, store, ...upstreams];
  const status = !served ? 'unready' : checks.every(({ ok }) => ok) ? 'ready' : 'degraded';
  return { status, checks };
}

function observeNonces(metrics: Metrics, deployments: readonly Deployment[]): void {
  const { nonceAge, nonceLifetime, noncePolicy } = metrics;
  for (const { name: deployment, upstream } of deployments) {
    nonceAge.remove({ deployment });
    nonceLifetime.remove({ deployment });
    for (const policy of NONCE_POLICIES) {
      noncePolicy.set({ deployment, policy }, policy === upstream.noncePolicy ? 1 : 0);
    }
    const { nonceAgeMs, nonceLifetimeMs } = upstream;
    if (nonceAgeMs !== undefined) nonceAge.set({ deployment }, nonceAgeMs / 1000);
    if (nonceLifetimeMs !== undefined) nonceLifetime.set({ deployment }, nonceLifetimeMs / 1000);
  }
}
