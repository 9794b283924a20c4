import { maxOpenFiles } from '../base/open-files.ts';
import type { Steps } from '../base/steps.ts';
import { Throttle } from '../base/throttle.ts';
import { MemoryChallengeStore } from '../challenges/store/memory.ts';
import {
  RedisChallengeStore,
  type RedisStoreOptions,
  type RejectionReason,
} from '../challenges/store/redis.ts';
import type { ChallengeStore } from '../challenges/store/store.ts';
import { formatPath } from '../config/issues.ts';
import { listenerPath, sharedSettings } from '../config/listen.ts';
import type { Config } from '../config/schema.ts';
import { ConnectionLimits, withinFiles } from '../gateway/connection-limits.ts';
import type { Gateway } from '../gateway/gateway.ts';
import { Listener } from '../gateway/listener.ts';
import { Identification } from '../identity/identification.ts';
import { Tokens } from '../identity/tokens.ts';
import { Limits, type LimitsOptions } from '../limits/limits.ts';
import { RedisLimitStore } from '../limits/redis.ts';
import type { LimitSettings, LimitStore } from '../limits/store.ts';
import type { AppSetup } from '../setup/setup.ts';
import { CredentialRegistry, type RegistryDeps } from '../upstream/credential-registry.ts';
import { CheckPace } from '../upstream/health-check.ts';
import type { ProcessParts } from './compose.ts';
import type { SharedUpstreamDeps } from './deployments.ts';

/*
 * The stores, limits, identification and upstreams of a data plane, connected with log, metrics and audit log.
 */

/** Makes the parts that all upstreams of a process share; their events go to log, metrics and audit log. */
export function openUpstreamDeps(
  store: ChallengeStore,
  deps: Omit<ProcessParts, 'build' | 'merged'> & Pick<SharedUpstreamDeps, 'bodyMemory'>,
): SharedUpstreamDeps {
  const { clock, tracing, recorder, metrics, bodyMemory } = deps;
  const credentials = new CredentialRegistry({ store, clock, tracing, recorder, ...credentialEvents(deps) });
  return { credentials, clock, metrics, bodyMemory, checkPace: new CheckPace(clock), ...addressEvents(deps) };
}

type CredentialEvents = Pick<RegistryDeps, 'onPolicyStep' | 'onBound' | 'onRotation' | 'onHealth'>;

function credentialEvents({
  audit,
  clock,
  flightFiles,
  log,
  metrics,
}: Pick<ProcessParts, 'audit' | 'clock' | 'flightFiles' | 'log' | 'metrics'>): CredentialEvents {
  const steps = new Throttle(clock, MAX_THROTTLED);
  return {
    onPolicyStep: (deployment, policy, from) => {
      metrics.noncePolicySteps.inc({ deployment, policy });
      const which = { deployment, policy, from };
      // An upstream whose realm changes with each challenge has its policy learned anew each time.
      const suppressed = steps.admit(`${deployment} ${policy}`);
      if (suppressed !== undefined)
        log.warn(
          { ...which, suppressed },
          'nonce reuse refused by the upstream; switching to a stricter policy',
        );
      audit.admin('nonce-policy', which);
    },
    onBound: (deployment) =>
      log.warn({ deployment }, 'nonces of other processes refused by the upstream; not sharing them'),
    onRotation: (rotation) => {
      const { deployment, credential, result } = rotation;
      metrics.credentialRotations.inc({ deployment, credential, result });
      if (result === 'promoted') log.info(rotation, 'credential version promoted: the upstream accepted it');
      else if (result === 'waiting') log.info(rotation, 'next credential version not accepted yet: it waits');
      else log.error(rotation, 'new credential version rejected by the upstream; the old one stays in use');
      audit.admin('credential-rotation', { ...rotation });
    },
    onHealth: ({ refused, ...which }) => {
      audit.admin(refused ? 'credential-refused' : 'credential-accepted', which);
      if (refused) flightFiles.write('credential-refused');
    },
  };
}

function addressEvents({
  log,
}: Pick<ProcessParts, 'log'>): Pick<SharedUpstreamDeps, 'onAddress' | 'onPause' | 'onEgress'> {
  return {
    onAddress: ({ before, after, reason, deployment, address: upstreamAddress, egress }) => {
      // `address` is that of a client in other lines.
      const which = { deployment, upstreamAddress, egress };
      if (after.circuit === 'open')
        log.warn({ ...which, reason }, 'circuit opened: most exchanges with the upstream fail');
      else if (after.circuit === 'closed' && before.circuit !== 'closed')
        log.info(which, 'circuit closed: the upstream responds again');
      else if (after.health === before.health)
        log.debug(which, 'circuit half-open: one request tries whether the upstream is back');
      else if (after.health === 'failing') log.warn({ ...which, reason }, 'upstream address failing');
      else log[before.health === 'unknown' ? 'debug' : 'info'](which, 'upstream address healthy');
    },
    onPause: ({ ms, ...which }) => {
      if (ms > 0)
        log.warn({ ...which, ms }, 'upstream paused by an outcome of its response; refusing requests');
      else log.info(which, 'pause of the upstream ended');
    },
    onEgress: ({ status, outcome, deployment, address: egress }) => {
      const which = { deployment, egress };
      if (status === 'missing') log.warn(which, 'egress address not on this host; passing it over');
      else if (status === 'refused')
        log.warn({ ...which, outcome }, 'egress address refused by the upstream; passing it over');
      else log.info({ ...which, status }, 'egress address usable again');
    },
  };
}

/** The stores that processes of one machine share without Redis. */
export interface SharedStores {
  readonly challenges: ChallengeStore;
  readonly openLimits: () => LimitStore;
}

interface StoreDeps extends Pick<ProcessParts, 'metrics' | 'log'> {
  readonly stores: SharedStores | undefined;
  /** Called when Redis becomes reachable or unreachable, or another reason is known. */
  readonly onUp: (up: boolean, reason: string | undefined) => void;
}

/**
 * Opens the store in Redis, or else the one that is shared with other processes, or one in memory. Logs when Redis
 * becomes reachable or unreachable, and why, not each failed call.
 */
export function openStore(
  redis: RedisStoreOptions | undefined,
  { stores, metrics, log, onUp }: StoreDeps,
): ChallengeStore {
  const { storeUp, storeErrors } = metrics;
  storeUp.set(redis === undefined ? 1 : 0);
  if (redis === undefined) return stores?.challenges ?? new MemoryChallengeStore();
  return new RedisChallengeStore(redis, {
    onUp: (up, reason) => {
      storeUp.set(up ? 1 : 0);
      onUp(up, reason);
      if (up) log.info('Redis reachable; nonces are shared');
      else log.warn({ reason }, 'Redis unreachable; nonces are not shared, requests are served');
    },
    onError: (operation) => storeErrors.inc({ operation }),
    onRejected: tellRejections(metrics, log),
  });
}

/** Counts rejected values in Redis, and logs each kind and reason once. */
function tellRejections(
  { storeRejections }: ProcessParts['metrics'],
  log: ProcessParts['log'],
): (kind: string, reason: RejectionReason) => void {
  const logged = new Set<string>();
  return (kind, reason) => {
    storeRejections.inc({ kind, reason });
    const which = `${kind} ${reason}`;
    if (logged.has(which)) return;
    logged.add(which);
    log.warn(
      { kind, reason },
      'value in Redis rejected and removed; no gateway with these keys wrote it, unless a clock was set',
    );
  };
}

interface LimitsDeps extends Pick<ProcessParts, 'clock' | 'metrics' | 'log'> {
  /** Undefined: without Redis, this process shares nothing. */
  readonly stores: SharedStores | undefined;
}

/** Creates the limits, shared through Redis or else with other processes of the machine, if there are any. */
export function openLimits(
  { config, redis }: Pick<AppSetup, 'config' | 'redis'>,
  { stores, clock, metrics, log }: LimitsDeps,
): Limits {
  const reject = tellRejections(metrics, log);
  const onRejected = (): void => reject('limits', 'malformed');
  return new Limits(limitsOptions(config), {
    clocks: { now: () => clock.now(), epoch: () => Date.now() },
    metrics,
    openStore: redis ? () => new RedisLimitStore(redis, onRejected) : stores?.openLimits,
  });
}

/** Returns the limits in a configuration. */
export function limitsOptions({ clients, deployments }: Config): LimitsOptions {
  return {
    clients: limited(clients.map(({ id, limits }) => [id, limits])),
    deployments: limited(Object.entries(deployments).map(([name, { limits }]) => [name, limits])),
  };
}

function limited(
  all: readonly (readonly [name: string, limits: LimitSettings | undefined])[],
): ReadonlyMap<string, LimitSettings> {
  return new Map(all.flatMap(([name, limits]) => (limits === undefined ? [] : [[name, limits] as const])));
}

/**
 * Builds the identification of clients, and starts to fetch the keys of the token issuers. `running`: that of the active
 * configuration, which may have keys already.
 */
export function* buildIdentification(
  { clients, jwt, anonymous, listen }: Config,
  { log, metrics }: Pick<ProcessParts, 'log' | 'metrics'>,
  running?: Identification,
): Steps<Identification> {
  const tokens = new Tokens(jwt?.issuers ?? [], (issuer, reachable, reason) => {
    if (reachable) log.info({ issuer }, 'keys of a token issuer fetched again');
    else log.warn({ issuer, reason }, 'keys of a token issuer cannot be fetched; check jwksUrl');
  });
  void tokens.prefetch(running?.tokens);
  const { trustedProxies, forwardedHeader } = sharedSettings(listen);
  return yield* Identification.build(
    { clients, anonymous, trustedProxies, forwardedHeader },
    { tokens, onRefusal: (proof) => metrics.identificationRefusals.inc({ proof }), now: () => Date.now() },
  );
}

/** Proxies and reasons whose log lines are throttled. */
const MAX_THROTTLED = 50;

interface ListenersDeps extends Pick<ProcessParts, 'clock' | 'log' | 'metrics'> {
  /** True if many clients may share an address, such as a trusted proxy's. */
  readonly isShared: (address: string) => boolean;
}

/** Creates the listeners of a setup, which share their limits. None listens yet. */
export function createListeners(
  { config, listenTls }: AppSetup,
  gateway: Gateway,
  { clock, log, metrics, isShared }: ListenersDeps,
): Listener[] {
  const { limits } = sharedSettings(config.listen);
  const files = maxOpenFiles();
  const bounds = withinFiles(limits, files);
  const { connections } = bounds;
  if (connections < limits.connections)
    log.warn(
      { files, connections },
      'listen.limits.connections lowered: the process may open few files; raise ulimit -n',
    );
  const shared = new ConnectionLimits({ ...bounds, isShared });
  const proxyHeaders = new Throttle(clock, MAX_THROTTLED);
  return config.listen.map(
    (settings, index) =>
      new Listener(gateway, {
        ...limits,
        listener: index,
        place: settings,
        path: formatPath(listenerPath(config.listen, index)),
        limits: shared,
        tls: listenTls[index],
        onRefused: (limit, listener) => metrics.connectionsRefused.inc({ limit, listener }),
        proxyProtocol: settings.proxyProtocol,
        onProxyHeader: (reason, proxy, listener) => {
          metrics.proxyHeadersRefused.inc({ reason, listener });
          const suppressed = proxyHeaders.admit(`${proxy} ${reason}`);
          if (suppressed !== undefined)
            log.warn({ proxy, reason, suppressed }, 'connection without a valid PROXY header closed');
        },
      }),
  );
}
