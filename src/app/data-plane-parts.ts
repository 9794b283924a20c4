import type { Audit } from '../audit/audit.ts';
import type { Clock } from '../base/clock.ts';
import type { Log } from '../base/log.ts';
import { maxOpenFiles } from '../base/open-files.ts';
import type { Steps } from '../base/steps.ts';
import { Throttle } from '../base/throttle.ts';
import { MemoryChallengeStore } from '../challenges/store/memory.ts';
import {
  RedisChallengeStore,
  type RedisStoreOptions,
  type RejectionReason,
} from '../challenges/store/redis.ts';
import type { ChallengeStore, NoncePolicy } from '../challenges/store/store.ts';
import { formatPath } from '../config/issues.ts';
import { listenerPath, sharedSettings } from '../config/listen.ts';
import type { Config } from '../config/schema.ts';
import { ConnectionLimits, withinFiles } from '../gateway/connection-limits.ts';
import type { Gateway } from '../gateway/gateway.ts';
import { Listener } from '../gateway/listener.ts';
import type { FlightRecorder } from '../handshake/flight-recorder.ts';
import { Identification } from '../identity/identification.ts';
import { Tokens } from '../identity/tokens.ts';
import { Limits, type LimitsOptions } from '../limits/limits.ts';
import { RedisLimitStore } from '../limits/redis.ts';
import type { LimitSettings, LimitStore } from '../limits/store.ts';
import type { Metrics } from '../metrics/metrics.ts';
import type { RedisOptions } from '../redis/connection.ts';
import type { AppSetup } from '../setup/setup.ts';
import type { Tracing } from '../tracing/tracing.ts';
import { CredentialRegistry } from '../upstream/credential-registry.ts';
import type { EgressNews } from '../upstream/egress-addresses.ts';
import { CheckPace } from '../upstream/health-check.ts';
import type { PauseNews } from '../upstream/outcomes.ts';
import type { CredentialNews, RotationNews } from '../upstream/rotation.ts';
import type { AddressChange } from '../upstream/upstream-address.ts';
import type { SharedUpstreamDeps } from './deployments.ts';
import type { FlightFiles } from './flight-files.ts';

/*
 * The stores, limits, identification and upstreams of a data plane, connected with log, metrics and audit log.
 */

interface EventSinks {
  readonly audit: Audit;
  readonly flightFiles: Pick<FlightFiles, 'write'>;
  readonly log: Log;
  readonly metrics: Metrics;
}

/** Makes the parts that all upstreams of a process share; their events go to log, metrics and audit log. */
export function openUpstreamDeps(
  store: ChallengeStore,
  deps: EventSinks &
    Pick<SharedUpstreamDeps, 'clock' | 'bodyMemory'> & {
      readonly tracing: Tracing | undefined;
      readonly recorder: FlightRecorder;
    },
): SharedUpstreamDeps {
  const { audit, log, metrics, flightFiles, clock, tracing, recorder, bodyMemory } = deps;
  const events = new UpstreamEvents({ audit, log, metrics, flightFiles });
  const credentials = new CredentialRegistry({ store, clock, tracing, recorder, ...events });
  return { credentials, clock, metrics, bodyMemory, checkPace: new CheckPace(clock), ...events };
}

/** Reports events of upstreams and their credentials to log, metrics and audit log. */
class UpstreamEvents {
  readonly #sinks: EventSinks;

  constructor(sinks: EventSinks) {
    this.#sinks = sinks;
  }

  /** Called when the reuse policy of a deployment's nonces becomes stricter. */
  readonly onPolicyStep = (deployment: string, policy: NoncePolicy, from: NoncePolicy): void => {
    const { audit, log, metrics } = this.#sinks;
    metrics.noncePolicySteps.inc({ deployment, policy });
    const which = { deployment, policy, from };
    log.warn(which, 'nonce reuse refused by the upstream; switching to a stricter policy');
    audit.admin('nonce-policy', which);
  };

  /** Called when the upstream turns out to bind nonces to the process that obtained them. */
  readonly onBound = (deployment: string): void => {
    this.#sinks.log.warn(
      { deployment },
      'nonces of other processes refused by the upstream; not sharing them',
    );
  };

  /** Called when a candidate is promoted or refused, or has to wait. */
  readonly onRotation = (rotation: RotationNews): void => {
    const { audit, log, metrics } = this.#sinks;
    const { deployment, credential, result } = rotation;
    metrics.credentialRotations.inc({ deployment, credential, result });
    if (result === 'promoted') log.info(rotation, 'credential version promoted: the upstream accepted it');
    else if (result === 'waiting') log.info(rotation, 'next credential version not accepted yet: it waits');
    else log.error(rotation, 'new credential version rejected by the upstream; the old one stays in use');
    audit.admin('credential-rotation', { ...rotation });
  };

  /** Called when the status of an address changes. */
  readonly onAddress = ({ before, after, reason, ...which }: AddressChange): void => {
    const { log } = this.#sinks;
    if (after.circuit === 'open')
      log.warn({ ...which, reason }, 'circuit opened: most exchanges with the upstream fail');
    else if (after.circuit === 'closed' && before.circuit !== 'closed')
      log.info(which, 'circuit closed: the upstream responds again');
    else if (after.health === before.health)
      log.debug(which, 'circuit half-open: one request tries whether the upstream is back');
    else if (after.health === 'failing') log.warn({ ...which, reason }, 'upstream address failing');
    else log[before.health === 'unknown' ? 'debug' : 'info'](which, 'upstream address healthy');
  };

  /** Called when the upstream refuses a credential version, or accepts it again. */
  readonly onHealth = ({ refused, ...which }: CredentialNews): void => {
    const { audit, flightFiles } = this.#sinks;
    audit.admin(refused ? 'credential-refused' : 'credential-accepted', which);
    if (refused) flightFiles.write('credential-refused');
  };

  /** Called when an outcome pauses a deployment or one of its credentials, and after its end. */
  readonly onPause = ({ ms, ...which }: PauseNews): void => {
    const { log } = this.#sinks;
    if (ms > 0)
      log.warn({ ...which, ms }, 'upstream paused by an outcome of its response; refusing requests');
    else log.info(which, 'pause of the upstream ended');
  };

  /** Called when one of several local addresses can be used no more, or again. */
  readonly onEgress = ({ status, outcome, ...which }: EgressNews): void => {
    const { log } = this.#sinks;
    if (status === 'missing') log.warn(which, 'egress address not on this host; passing it over');
    else if (status === 'refused')
      log.warn({ ...which, outcome }, 'egress address refused by the upstream; passing it over');
    else log.info({ ...which, status }, 'egress address usable again');
  };
}

/** The stores that processes of one machine share without Redis. */
export interface SharedStores {
  readonly challenges: ChallengeStore;
  readonly openLimits: () => LimitStore;
}

interface StoreDeps {
  readonly stores: SharedStores | undefined;
  readonly metrics: Metrics;
  readonly log: Log;
  /** Called when Redis becomes reachable or unreachable. */
  readonly onUp: (up: boolean) => void;
}

/**
 * Opens the store in Redis, or else the one that is shared with other processes, or one in memory. Logs when Redis
 * becomes reachable or unreachable, not each failed call.
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
      onUp(up);
      if (up) log.info('Redis reachable; nonces are shared');
      else log.warn({ reason }, 'Redis unreachable; nonces are not shared, requests are served');
    },
    onError: (operation) => storeErrors.inc({ operation }),
    onRejected: tellRejections(metrics, log),
  });
}

/** Counts rejected values in Redis, and logs each kind and reason once. */
function tellRejections(
  { storeRejections }: Metrics,
  log: Log,
): (kind: string, reason: RejectionReason) => void {
  const logged = new Set<string>();
  return (kind, reason) => {
    storeRejections.inc({ kind, reason });
    const which = `${kind} ${reason}`;
    if (logged.has(which)) return;
    logged.add(which);
    log.warn({ kind, reason }, 'value in Redis rejected and removed; no gateway with these keys wrote it');
  };
}

interface LimitsSetup {
  readonly config: Config;
  /** Undefined without Redis. */
  readonly redis: RedisOptions | undefined;
}

interface LimitsDeps {
  /** Undefined: without Redis, this process shares nothing. */
  readonly stores: SharedStores | undefined;
  readonly clock: Clock;
  readonly metrics: Metrics;
  readonly log: Log;
}

/** Creates the limits, shared through Redis or else with other processes of the machine, if there are any. */
export function openLimits({ config, redis }: LimitsSetup, deps: LimitsDeps): Limits {
  const { stores, clock, metrics, log } = deps;
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

interface IdentityDeps {
  readonly log: Log;
  readonly metrics: Metrics;
}

/**
 * Builds the identification of clients, and starts to fetch the keys of the token issuers. `running`: that of the active
 * configuration, which may have keys already.
 */
export function* buildIdentification(
  { clients, jwt, anonymous, listen }: Config,
  { log, metrics }: IdentityDeps,
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

interface ListenersDeps {
  readonly clock: Clock;
  readonly log: Log;
  readonly metrics: Metrics;
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
