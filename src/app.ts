import type { AddressInfo } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import { isNativeError } from 'node:util/types';
import { changesOf } from './app/changes.ts';
import { consoleSource } from './app/console.ts';
import { type AppSetup, buildDeployments, gatewayOptions, offerCredentials } from './app/deployments.ts';
import { warnOfMissingAddresses } from './app/egress.ts';
import { sameFixtures } from './app/fixtures.ts';
import { observe, readiness } from './app/health.ts';
import { buildIdentification } from './app/identity.ts';
import { limitsOptions, openLimits } from './app/limits.ts';
import { followListenTls } from './app/listen-tls.ts';
import { tellRotation } from './app/rotation.ts';
import { openStore } from './app/store.ts';
import { uncaughtErrors } from './app/uncaught.ts';
import { type Audit, noAudit } from './audit/audit.ts';
import type { Clock } from './base/clock.ts';
import type { Log } from './base/log.ts';
import { reportError } from './base/report-error.ts';
import type { SpentBuffers } from './base/spent-buffers.ts';
import { runAtOnce, runInSlices, slices } from './base/steps.ts';
import { NoncePools } from './challenges/pools.ts';
import { NONCE_POLICIES, type NoncePolicy } from './challenges/store.ts';
import type { ListenTls } from './config/listen-tls.ts';
import { CONSOLE_PACE, type ConsolePace } from './control/console.ts';
import { ControlPlane, type Readiness } from './control/control.ts';
import type { CredentialSet } from './credentials/credentials.ts';
import { type Deployment, Gateway } from './gateway/gateway.ts';
import { Listener } from './gateway/listener.ts';
import { type BuildInfo, Metrics } from './metrics/metrics.ts';
import type { Tracing } from './tracing/tracing.ts';
import { BodyMemory } from './upstream/body.ts';
import { CredentialSelectors, type DeploymentRotation } from './upstream/credential-selectors.ts';
import type { CredentialNews } from './upstream/credential-version.ts';
import type { Upstream } from './upstream/upstream.ts';

export type { AppSetup } from './app/deployments.ts';

export interface AppExternals {
  readonly clock: Clock;
  readonly log: Log;
  readonly build: BuildInfo;
  readonly spent: SpentBuffers;
  /** The user of this process; undefined: owners of files are not checked. */
  readonly uid: number | undefined;
  /** Where it is recorded who got what; the app closes it. Left out: nothing is recorded. */
  readonly audit?: Audit;
  /** Undefined: nothing is traced. */
  readonly tracing: Tracing | undefined;
  /** Where the built page of the console is. */
  readonly consoleFolder: string;
  readonly consolePace?: ConsolePace;
}

export interface App {
  /** Opens both planes; resolves to where they listen. Rejects when a port cannot be had. */
  start(): Promise<{ listen: AddressInfo; control: AddressInfo }>;
  /** Takes over a new setup, or keeps the one in force if `load` rejects, and says so. */
  reload(load: () => Promise<AppSetup>): Promise<void>;
  /** What the sources of a credential hold now: what is new is tried before it is used. */
  offer(set: CredentialSet): void;
  /** An error that reached no caller: counted, and logged with its stack. Never throws. */
  uncaught(error: unknown): void;
  /**
   * Ends as a load balancer needs it: says that it is not ready, serves for `drain.delay`, accepts no more connections
   * and tells the open ones to close, then closes everything. `close` cuts it short.
   */
  drain(): Promise<void>;
  /** Refuses new requests, finishes those under way and closes everything; can be called again. */
  close(): Promise<void>;
}

/** The composition root: builds every part and hands each what it needs. */
export function createApp(setup: AppSetup, externals: AppExternals): App {
  const { clock, log, tracing, audit = noAudit } = externals;
  log.level = setup.config.log.level;
  const metrics = new Metrics(externals.build, externals.tracing !== undefined);
  let storeUp = setup.redis === undefined;
  const store = openStore(setup.redis, metrics, log, (up) => {
    storeUp = up;
  });
  const onPolicyStep = (deployment: string, policy: NoncePolicy, from: NoncePolicy): void => {
    metrics.noncePolicySteps.inc({ deployment, policy });
    if (NONCE_POLICIES.indexOf(policy) > NONCE_POLICIES.indexOf(from)) {
      log.warn(
        { deployment, policy, from },
        'nonce reuse refused by the upstream; switching to a stricter policy',
      );
    } else {
      log.info(
        { deployment, policy, from },
        'nonce reuse accepted by the upstream; switching to a freer policy',
      );
    }
    audit.admin('nonce-policy', { deployment, policy, from });
  };
  const onCrossProcess = (deployment: string, works: boolean): void => {
    if (works)
      log.info({ deployment }, 'nonces of other processes accepted by the upstream; sharing them again');
    else log.warn({ deployment }, 'nonces of other processes refused by the upstream; not sharing them');
  };
  const onRotation = (rotation: DeploymentRotation): void => {
    tellRotation(rotation, metrics, log);
    audit.admin('credential-rotation', { ...rotation });
  };
  const onStanding = ({ refused, ...which }: CredentialNews): void =>
    audit.admin(refused ? 'credential-refused' : 'credential-accepted', which);
  const told = { onPolicyStep, onCrossProcess, onRotation, onStanding };
  const pools = new NoncePools(store);
  const selectors = new CredentialSelectors({ pools, clock, metrics, tracing, ...told });
  const bodyMemory = new BodyMemory(setup.config.listen.limits.bodyMemory);
  const upstreamExternals = { selectors, clock, metrics, bodyMemory };
  let deployments: readonly Deployment[] = runAtOnce(buildDeployments(setup, upstreamExternals, []));
  let listening: { address: string; port: number } = setup.config.listen;
  /** Upstreams that were replaced, and have requests under way that no reload waits for. */
  const retiring = new Set<Promise<void>>();
  const retire = (upstreams: Iterable<Upstream>): void => {
    const closed = closeAll(upstreams).catch(reportError);
    retiring.add(closed);
    void closed.then(() => retiring.delete(closed));
  };
  let live = false;
  let inForce = setup;
  let closing: Promise<void> | undefined;
  const hurry = new AbortController();
  let configuredAt = Date.now();

  const limits = openLimits(setup, clock, metrics, log);
  const identityExternals = { clock, log, metrics };
  let identification = runAtOnce(buildIdentification(setup.config, identityExternals));
  const gateway = new Gateway(gatewayOptions(setup, deployments, identification), {
    audit,
    clock,
    log,
    metrics,
    tracing,
    spent: externals.spent,
    limits,
  });
  const listener = new Listener(gateway, {
    ...setup.config.listen.limits,
    tls: setup.listenTls,
    isShared: (address) => identification.isShared(address),
    onRefused: (limit) => metrics.connectionsRefused.inc({ limit }),
  });
  const renew = (tls: ListenTls | undefined): void => {
    if (tls === undefined) return;
    listener.renewTls(tls);
    metrics.listenCertificateExpiry.set(tls.expires);
  };
  let stopFollowing: (() => void) | undefined;
  const uncaught = uncaughtErrors(log, clock, metrics);
  const ready = (): Promise<Readiness> =>
    readiness(
      !live ? 'starting' : closing === undefined ? 'serving' : 'draining',
      storeUp,
      audit,
      deployments,
    );
  const control = new ControlPlane({
    tokenSha256: setup.config.control.tokenSha256,
    registry: metrics.registry,
    observe: () => observe(metrics, deployments, audit),
    live: () => live,
    readiness: ready,
    console: consoleSource({
      metrics,
      build: externals.build,
      clock,
      audit,
      setup: () => inForce,
      configuredAt: () => configuredAt,
      storeUp: () => storeUp,
      readiness: ready,
      deployments: () => deployments,
      faults: () => gateway.recentFaults,
    }),
    consoleFolder: externals.consoleFolder,
    pace: externals.consolePace ?? CONSOLE_PACE,
    onError: (error) => log.error({ cause: String(error) }, 'the control plane failed to answer'),
    offer: () => ({ version: externals.build.version, listen: listening, deployments }),
  });

  return {
    async start() {
      await Promise.all([limits.restore(), restoreAll(deployments)]);
      const addresses = await openPlanes(setup.config, listener, control).catch(async (error) => {
        await audit.close();
        throw error;
      });
      listening = addresses.listen;
      live = true;
      await warnOfMissingAddresses(log, deployments);
      const { version, node } = externals.build;
      audit.admin('start', { version, node, deployments: deployments.map(({ name }) => name) });
      metrics.configLastReload.setToCurrentTime();
      metrics.listenCertificateExpiry.set(setup.listenTls?.expires ?? 0);
      stopFollowing = followListenTls(setup.config.listen.tls, { log, uid: externals.uid, renew });
      return addresses;
    },

    async reload(load) {
      const running = deployments;
      const built: Deployment[] = [];
      try {
        const next = await load();
        await runInSlices(buildDeployments(next, upstreamExternals, running, built));
        const known = new Set(running.map(({ upstream }) => upstream));
        await restoreAll(built.filter(({ upstream }) => !known.has(upstream)));
        const identify = await runInSlices(buildIdentification(next.config, identityExternals));
        const options = gatewayOptions(next, built, identify);
        const limit = await runInSlices(limits.prepare(limitsOptions(next.config)));
        // In one go: a request sees the old configuration or the new one.
        deployments = built;
        identification = identify;
        gateway.configure(options);
        limit();
        renew(next.listenTls);
        audit.configure(next.config.audit);
        configuredAt = Date.now();
        const pause = slices();
        for (const each of built) {
          offerCredentials(next, each);
          await pause();
        }
        await limits.restore();
        log.level = next.config.log.level;
        metrics.configReloads.inc({ result: 'success' });
        metrics.configLastReload.setToCurrentTime();
        await warnOfMissingAddresses(log, built);
        const changed = await runInSlices(changesOf(inForce, next));
        inForce = next;
        audit.admin('reload', { result: 'success', changed });
        log.info({ deployments: built.map(({ name }) => name), changed }, 'configuration reloaded');
        if (!sameFixtures(setup.config, next.config)) {
          log.warn('listen, control, redis and audit cannot change while running: restart for that');
        }
      } catch (error) {
        metrics.configReloads.inc({ result: 'failure' });
        const reason = isNativeError(error) ? error.message : String(error);
        audit.admin('reload', { result: 'failure' });
        log.error({ reason }, 'the new configuration was refused; the one in force stays');
      }
      const unused = new Set([...running, ...built].map(({ upstream }) => upstream));
      for (const { upstream } of deployments) unused.delete(upstream);
      retire(unused);
    },

    offer(set) {
      audit.admin('credential-read', { credential: set.name });
      const credentials = new Map(inForce.credentials).set(set.name, set);
      inForce = { ...inForce, credentials };
      for (const { upstream } of deployments) {
        upstream.connections.offer(set);
        if (upstream.uses(set.name)) upstream.offer(set);
      }
    },

    uncaught,

    drain() {
      closing ??= (async () => {
        const { delay, timeout } = inForce.config.drain;
        if (live) await drainListener(listener, delay, timeout, hurry.signal);
        else await listener.close(0);
        live = false;
        stopFollowing?.();
        await Promise.all([...deployments.map(({ upstream }) => upstream.close()), ...retiring]);
        await Promise.all([store.close(), limits.close()]);
        await control.close();
        await audit.close('stop');
      })();
      return closing;
    },

    close() {
      hurry.abort();
      return this.drain();
    },
  };
}

/** Takes over nonces that other processes share. */
async function restoreAll(deployments: readonly Deployment[]): Promise<void> {
  const pause = slices();
  const restored: Promise<void>[] = [];
  for (const { upstream } of deployments) {
    restored.push(upstream.restore());
    await pause();
  }
  await Promise.all(restored);
}

/** In slices: each has connections to destroy. */
async function closeAll(upstreams: Iterable<Upstream>): Promise<void> {
  const pause = slices();
  const closed: Promise<void>[] = [];
  for (const upstream of upstreams) {
    closed.push(upstream.close());
    await pause();
  }
  await Promise.all(closed);
}

/** Resolves when no connection is left. The signal skips the delay and closes connections without a request. */
async function drainListener(
  listener: Listener,
  delayMs: number,
  timeoutMs: number,
  hurry: AbortSignal,
): Promise<void> {
  await delay(delayMs, undefined, { signal: hurry }).catch(() => undefined);
  const close = (): void => void listener.close(timeoutMs);
  if (hurry.aborted) close();
  else hurry.addEventListener('abort', close, { once: true });
  await listener.drain(timeoutMs);
}

async function openPlanes(
  { listen, control: controlled }: AppSetup['config'],
  listener: Listener,
  control: ControlPlane,
) {
  return {
    listen: await listener.listen(listen.address, listen.port),
    control: await control.listen(controlled.address, controlled.port).catch(async (error) => {
      await listener.close(0);
      throw error;
    }),
  };
}
