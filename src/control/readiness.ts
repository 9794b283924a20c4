import {
  type AddressState,
  type AuditState,
  type ConfigurationState,
  type DeploymentState,
  type GatewayState,
  isEgressMissing,
  type SinkState,
  type WorkersState,
} from './state.ts';
import { WORDS } from './words.ts';

/** The JSON of `/readyz`. */
export interface Readiness {
  /** `degraded`: a check fails, but requests are served. */
  readonly status: 'ready' | 'degraded' | 'unready';
  readonly checks: readonly Check[];
}

interface Check {
  readonly name: string;
  readonly ok: boolean;
  /** The errors and their effects; empty when ok. */
  readonly detail: string;
  /** A warning although the check is ok; absent if there is none. */
  readonly warning?: string;
  /** The state of each address of a deployment's upstream. */
  readonly addresses?: readonly string[];
}

const DEPLOYMENT = 'deployment:';
const { check: words } = WORDS;

/** Returns the content of `/readyz`. */
export function readiness(state: GatewayState): Readiness {
  const { serves, workers, configuration, sinks, deployments } = state;
  const checks = [
    ...dataPlaneChecks(state),
    ...sinks.map(sinkCheck).reverse(),
    configurationCheck(configuration),
    ...(workers === null ? [] : [workersCheck(workers)]),
    ...sharedChecks(state),
    ...deployments.map(deploymentCheck),
  ];
  const status = !serves ? 'unready' : checks.every(({ ok }) => ok) ? 'ready' : 'degraded';
  return { status, checks };
}

/** Formats readiness as text: a line for each check, then the status. */
export function readinessText({ status, checks }: Readiness): string {
  const lines = checks.flatMap(({ name, ok, detail, warning, addresses = [] }) => [
    ok ? `ok     ${name}` : `wrong  ${name}: ${detail}`,
    ...(warning === undefined ? [] : [`         ${warning}`]),
    ...addresses.map((address) => `         ${address}`),
  ]);
  return `${[...lines, status].join('\n')}\n`;
}

/** Returns the errors of the gateway itself, of each deployment by name, and the warnings of both. */
export function errorsIn({ checks }: Readiness): {
  readonly gateway: readonly string[];
  readonly deployments: ReadonlyMap<string, string>;
  readonly warnings: readonly string[];
} {
  const failed = checks.filter(({ ok }) => !ok);
  const [theirs, own] = [
    failed.filter(({ name }) => name.startsWith(DEPLOYMENT)),
    failed.filter(({ name }) => !name.startsWith(DEPLOYMENT)),
  ];
  return {
    gateway: own.map(({ detail }) => detail),
    deployments: new Map(theirs.map(({ name, detail }) => [name.slice(DEPLOYMENT.length), detail])),
    warnings: checks.flatMap(({ warning }) => warning ?? []),
  };
}

/** Returns the check of the configuration, which no worker knows of. */
export function configurationCheck({ refused, needsRestart }: ConfigurationState): Check {
  const errors = refused === null ? [] : [words.configurationRefused(refused)];
  const warning = needsRestart.length > 0 && { warning: words.needsRestart(needsRestart) };
  return { ...checkOf('configuration', errors), ...warning };
}

function checkOf(name: string, errors: readonly string[]): Check {
  return { name, ok: errors.length === 0, detail: errors.join('; ') };
}

function dataPlaneChecks({ stage }: GatewayState): Check[] {
  if (stage === 'absent') return [];
  return [checkOf('data-plane', stage === 'serving' ? [] : [words[stage]])];
}

/** The checks of what the data planes share. */
function sharedChecks({ stage, storeUp, audit }: GatewayState): Check[] {
  if (stage === 'absent') return [];
  return [
    checkOf('store', storeUp === false ? [words.storeDown] : []),
    checkOf('audit', [
      ...(audit?.failing ?? []).map(words.auditFailing),
      ...(audit?.retentionHeld ?? []).map(words.retentionHeld),
    ]),
    ...streamChecks(audit),
  ];
}

function streamChecks(audit: AuditState | null): Check[] {
  const failing = audit?.streamFailing ?? null;
  return failing === null ? [] : [checkOf('audit-stream', failing.map(words.streamFailing))];
}

function sinkCheck({ name, failing }: SinkState): Check {
  return checkOf(`audit-sink-${name}`, failing === null ? [] : [words.sinkFailing(failing)]);
}

/** The check of the workers, and of the primary's own audit log. */
function workersCheck({ serving, configured, audit }: WorkersState): Check {
  return checkOf('workers', [
    ...(serving < configured ? [words.workersMissing(serving, configured)] : []),
    ...(audit?.failing ?? []).map(words.primaryAuditFailing),
    ...(audit?.retentionHeld ?? []).map(words.primaryRetentionHeld),
    ...(audit?.streamFailing ?? []).map(words.primaryStreamFailing),
  ]);
}

function deploymentCheck(state: DeploymentState): Check {
  const { name, addresses } = state;
  const warnings = egressWarnings(state);
  return {
    ...checkOf(`${DEPLOYMENT}${name}`, [...credentialErrors(state), ...upstreamErrors(state)]),
    ...(warnings.length > 0 && { warning: warnings.join('; ') }),
    addresses: addresses.map(({ address, health, age, circuit }) =>
      words.address(address, health, age, circuit),
    ),
  };
}

function credentialErrors({ credentials }: DeploymentState): Set<string> {
  return new Set(
    credentials.flatMap(({ credential, inUse, serves, rejected }) => {
      if (inUse && !serves) return [words.credentialRefused(credential)];
      return rejected ? [words.credentialRejected(credential)] : [];
    }),
  );
}

/** Without the address that connections leave from, all addresses fail, which says nothing more. */
function upstreamErrors({ egress, addresses, pauses }: DeploymentState): string[] {
  const paused = pauses.map(({ credential, outcome, until }) => words.paused(credential, outcome, until));
  if (isEgressMissing(egress)) return [...paused, words.egressMissing(egress.length)];
  return [...paused, ...addresses.flatMap(addressErrors)];
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

/** One that is healthy while its circuit is half-open waits for a request. */
function addressErrors({ address, health, age, circuit, reason }: AddressState): string[] {
  return health === 'failing' ? [words.addressFailing(address, age, circuit, reason)] : [];
}
