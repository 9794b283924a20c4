import {
  type ConfigurationState,
  type DeploymentState,
  type GatewayState,
  isEgressMissing,
  type SinkState,
  type WorkersState,
} from './state.ts';
import type { State } from './view.ts';
import { WORDS } from './words.ts';

/** The JSON of `/readyz`. */
export interface Readiness {
  /** The state of the gateway, in the words of the console. */
  readonly status: State;
  readonly checks: readonly Check[];
}

interface Check {
  readonly name: string;
  readonly ok: boolean;
  /** The errors and their effects; empty when ok. */
  readonly detail: string;
  /** Absent when ok. */
  readonly state?: State;
  /** The next step; absent when ok. */
  readonly next?: string;
  /** A warning although the check is ok; absent if there is none. */
  readonly warning?: string;
  /** The state of each address of a deployment's upstream. */
  readonly addresses?: readonly string[];
}

/** Something that is wrong now. */
export interface Problem {
  readonly reason: string;
  /** The next step. */
  readonly next: string;
}

/** A check with its errors apart. */
interface CheckResult extends Pick<Check, 'name' | 'warning' | 'addresses'> {
  readonly errors: readonly Problem[];
  /** True if requests are served in spite of the errors. */
  readonly serves: boolean;
}

const { check: words, next } = WORDS;

/** Returns the content of `/readyz`. */
export function readiness(state: GatewayState): Readiness {
  const checks = checksOf(state).map(checkView);
  const status = !state.serves ? 'down' : checks.every(({ ok }) => ok) ? 'ok' : 'degraded';
  return { status, checks };
}

function checksOf(state: GatewayState): CheckResult[] {
  return [...gatewayChecks(state), ...state.deployments.map(deploymentCheck)];
}

function gatewayChecks(state: GatewayState): CheckResult[] {
  const { serves, workers, configuration, sinks } = state;
  const own = [
    ...dataPlaneChecks(state),
    ...sinks.map(sinkCheck).reverse(),
    ofConfiguration(configuration),
    ...(workers === null ? [] : [workersCheck(workers)]),
    ...sharedChecks(state),
  ];
  return own.map((check) => ({ ...check, serves }));
}

function checkView({ name, errors, serves, ...rest }: CheckResult): Check {
  const ok = errors.length === 0;
  return {
    name,
    ok,
    detail: errors.map(({ reason }) => reason).join('; '),
    ...(!ok && {
      state: serves ? 'degraded' : 'down',
      next: [...new Set(errors.map((each) => each.next))].join('; '),
    }),
    ...rest,
  };
}

const INDENT = ' '.repeat(10);

/** Formats readiness as text: a line for each check, then the status. */
export function readinessText({ status, checks }: Readiness): string {
  const lines = checks.flatMap(({ name, ok, state = 'ok', detail, next: step, warning, addresses = [] }) =>
    [
      `${state.padEnd(8)}  ${name}${ok ? '' : `: ${detail}`}`,
      step === undefined ? [] : `${INDENT}-> ${step}`,
      warning === undefined ? [] : `${INDENT}${warning}`,
      addresses.map((address) => `${INDENT}${address}`),
    ].flat(),
  );
  return `${[...lines, status].join('\n')}\n`;
}

/** Returns the errors of the gateway itself. */
export function gatewayErrors(state: GatewayState): Problem[] {
  return gatewayChecks(state).flatMap(({ errors }) => errors);
}

/** Returns the warnings of the gateway and of its deployments. */
export function warningsOf(state: GatewayState): string[] {
  return checksOf(state).flatMap(({ warning }) => warning ?? []);
}

export function deploymentErrors(state: DeploymentState): Problem[] {
  return [...credentialErrors(state), ...upstreamErrors(state)];
}

/** Returns the check of the configuration, which no worker knows of. */
export function configurationCheck(state: ConfigurationState): Check {
  return checkView({ ...ofConfiguration(state), serves: true });
}

type OwnCheck = Omit<CheckResult, 'serves'>;

function ofConfiguration({ refused, unreadable, needsRestart }: ConfigurationState): OwnCheck {
  return {
    name: 'configuration',
    errors: [
      ...problems(given(refused), words.configurationRefused, next.configurationRefused),
      ...problems(given(unreadable), words.credentialsUnreadable, next.credentialsUnreadable),
    ],
    ...(needsRestart.length > 0 && { warning: words.needsRestart(needsRestart) }),
  };
}

function dataPlaneChecks({ stage }: GatewayState): OwnCheck[] {
  if (stage === 'absent') return [];
  const errors = stage === 'serving' ? [] : [{ reason: words[stage], next: next[stage] }];
  return [{ name: 'data-plane', errors }];
}

/** The checks of what the data planes share. */
function sharedChecks({ stage, storeUp, storeFailing, audit }: GatewayState): OwnCheck[] {
  if (stage === 'absent') return [];
  const down = { reason: words.storeDown(storeFailing), next: next.storeDown };
  return [
    { name: 'store', errors: storeUp === false ? [down] : [] },
    {
      name: 'audit',
      errors: [
        ...problems(audit?.failing, words.auditFailing, next.auditFailing),
        ...problems(audit?.retentionHeld, words.retentionHeld, next.retentionHeld),
      ],
    },
  ];
}

function sinkCheck({ name, failing, rejected }: SinkState): OwnCheck {
  return {
    name: `audit-sink-${name}`,
    errors: problems(given(failing), words.sinkFailing, rejected ? next.sinkRejected : next.sinkFailing),
  };
}

/** The check of the workers, and of the primary's own audit log. */
function workersCheck({ serving, configured, audit }: WorkersState): OwnCheck {
  const missing = { reason: words.workersMissing(serving, configured), next: next.workersMissing };
  return {
    name: 'workers',
    errors: [
      ...(serving < configured ? [missing] : []),
      ...problems(audit?.failing, words.primaryAuditFailing, next.auditFailing),
      ...problems(audit?.retentionHeld, words.primaryRetentionHeld, next.retentionHeld),
    ],
  };
}

function given(reason: string | null): string[] {
  return reason === null ? [] : [reason];
}

/** One problem for each reason, all with the same next step. */
function problems(
  reasons: readonly string[] = [],
  reasonOf: (reason: string) => string,
  step: string,
): Problem[] {
  return reasons.map((reason) => ({ reason: reasonOf(reason), next: step }));
}

function deploymentCheck(state: DeploymentState): CheckResult {
  const { name, serves, addresses } = state;
  const warnings = egressWarnings(state);
  return {
    name: `deployment:${name}`,
    serves,
    errors: deploymentErrors(state),
    ...(warnings.length > 0 && { warning: warnings.join('; ') }),
    addresses: addresses.map(({ address, health, age, circuit }) =>
      words.address(address, health, age, circuit),
    ),
  };
}

/** Each credential once, though several versions of it may be refused for the same reason. */
function credentialErrors({ credentials }: DeploymentState): Problem[] {
  const refused = credentials.filter(({ inUse, serves }) => inUse && !serves);
  const rejected = credentials.filter(({ inUse, serves, rejected }) => rejected && (!inUse || serves));
  const names = (of: typeof credentials): string[] => [...new Set(of.map(({ credential }) => credential))];
  return [
    ...problems(names(refused), words.credentialRefused, next.credentialRefused),
    ...problems(names(rejected), words.credentialRejected, next.credentialRejected),
  ];
}

/** Without the address that connections leave from, all addresses fail, which says nothing more. */
function upstreamErrors({ egress, addresses, pauses }: DeploymentState): Problem[] {
  const paused = pauses.map(({ credential, outcome, until }) => ({
    reason: words.paused(credential, outcome, until),
    next: next.paused,
  }));
  if (isEgressMissing(egress)) {
    return [...paused, { reason: words.egressMissing(egress.length), next: next.egressMissing }];
  }
  // One that is healthy while its circuit is half-open waits for a request.
  const failing = addresses.filter(({ health }) => health === 'failing');
  const errors = failing.map(({ address, age, circuit, reason }) => ({
    reason: words.addressFailing(address, age, circuit, reason),
    next: next.addressFailing,
  }));
  return [...paused, ...errors];
}

/** Local addresses that are passed over, unless none is left. */
function egressWarnings({ name, egress }: DeploymentState): string[] {
  if (egress.length < 2 || isEgressMissing(egress)) return [];
  return egress.flatMap(({ address, status, outcome }) =>
    status === 'missing' || status === 'refused'
      ? [words.egressPassedOver(name, address, status, outcome)]
      : [],
  );
}
