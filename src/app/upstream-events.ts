import type { Audit } from '../audit/audit.ts';
import type { Log } from '../base/log.ts';
import type { ChallengeStore, NoncePolicy } from '../challenges/store/store.ts';
import type { Metrics } from '../metrics/metrics.ts';
import type { Tracing } from '../tracing/tracing.ts';
import { CredentialRegistry, type DeploymentRotation } from '../upstream/credential-registry.ts';
import type { EgressNews } from '../upstream/egress-addresses.ts';
import { CheckPace } from '../upstream/health-check.ts';
import type { PauseNews } from '../upstream/pauses.ts';
import type { CredentialNews } from '../upstream/rotation.ts';
import type { UpstreamDeps } from '../upstream/upstream.ts';
import type { AddressChange } from '../upstream/upstream-address.ts';

interface EventSinks {
  readonly audit: Audit;
  readonly log: Log;
  readonly metrics: Metrics;
}

/** What all upstreams of a process share, with the events of which it tells log, metrics and audit log. */
export function openUpstreamDeps(
  store: ChallengeStore,
  deps: EventSinks & Pick<UpstreamDeps, 'clock' | 'bodyMemory'> & { readonly tracing: Tracing | undefined },
): UpstreamDeps {
  const { audit, log, metrics, clock, tracing, bodyMemory } = deps;
  const events = new UpstreamEvents({ audit, log, metrics });
  const { onPolicyStep, onBound, onRotation, onHealth } = events;
  const { onAddress, onPause, onEgress } = events;
  const ofCredentials = { onPolicyStep, onBound, onRotation, onHealth };
  const credentials = new CredentialRegistry({ store, clock, metrics, tracing, ...ofCredentials });
  const checkPace = new CheckPace(clock);
  return { credentials, clock, metrics, bodyMemory, checkPace, onAddress, onPause, onEgress };
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
  readonly onRotation = (rotation: DeploymentRotation): void => {
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
    this.#sinks.audit.admin(refused ? 'credential-refused' : 'credential-accepted', which);
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
