import type { DeploymentFacts, GatewayCondition } from './snapshot.ts';
import { span } from './span.ts';
import type { AddressView } from './view.ts';

/** One check of the readiness: plain data that can be sent to another process. */
export interface Check {
  readonly name: string;
  readonly ok: boolean;
  /** The errors and their effects, besides those that `upstream` shows. */
  readonly errors: readonly string[];
  /** Warnings although the check is ok. */
  readonly warnings: readonly string[];
  /** Only of a deployment. */
  readonly upstream?: UpstreamCheck;
}

/** The state of everything that can keep requests from the upstream of a deployment. */
export interface UpstreamCheck {
  /** False if this host does not have the address of `egress.localAddress`: then all addresses fail. */
  readonly egressPresent: boolean;
  readonly addresses: readonly AddressCheck[];
  readonly pauses: readonly PauseCheck[];
}

export interface AddressCheck extends AddressView {
  /** Why it is failing; empty otherwise. */
  readonly reason: string;
}

export interface PauseCheck {
  /** Empty: the whole deployment. */
  readonly credential: string;
  readonly outcome: string;
  /** Unix milliseconds. */
  readonly until: number;
}

export interface Readiness {
  /** `degraded`: a check fails, but requests are served. */
  readonly status: 'ready' | 'degraded' | 'unready';
  readonly checks: readonly Check[];
}

/** The JSON of `/readyz`. */
export interface ReadinessView {
  readonly status: Readiness['status'];
  readonly checks: readonly CheckView[];
}

export interface CheckView {
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

/** Returns the name of a deployment's check. */
export function checkOf(deployment: string): string {
  return `${DEPLOYMENT}${deployment}`;
}

/** Creates a check with at most one error. */
export function simpleCheck(name: string, error?: string): Check {
  return { name, ok: error === undefined, errors: error === undefined ? [] : [error], warnings: [] };
}

/** Creates the check of a deployment. */
export function deploymentCheck(
  deployment: string,
  errors: readonly string[],
  upstream: UpstreamCheck,
): Check {
  const isServing =
    upstream.egressPresent && upstream.pauses.length === 0 && upstream.addresses.every(isWell);
  return { name: checkOf(deployment), ok: errors.length === 0 && isServing, errors, warnings: [], upstream };
}

/** Returns the errors of a check in one line; empty when ok. */
export function detailOf({ errors, upstream }: Check): string {
  return [...errors, ...(upstream === undefined ? [] : upstreamErrors(upstream))].join('; ');
}

export function readinessView({ status, checks }: Readiness): ReadinessView {
  return {
    status,
    checks: checks.map((check) => ({
      name: check.name,
      ok: check.ok,
      detail: detailOf(check),
      ...(check.warnings.length > 0 && { warning: check.warnings.join('; ') }),
      ...(check.upstream && { addresses: check.upstream.addresses.map(addressText) }),
    })),
  };
}

/** Formats readiness as text: a line for each check, then the status. */
export function readinessText(readiness: Readiness): string {
  const { status, checks } = readinessView(readiness);
  const lines = checks.flatMap(({ name, ok, detail, warning, addresses = [] }) => [
    ok ? `ok     ${name}` : `wrong  ${name}: ${detail}`,
    ...(warning === undefined ? [] : [`         ${warning}`]),
    ...addresses.map((address) => `         ${address}`),
  ]);
  return `${[...lines, status].join('\n')}\n`;
}

/** Returns what the console shows of a readiness, with the facts of each deployment. */
export function conditionWith(
  { status, checks }: Readiness,
  deployments: readonly Omit<DeploymentFacts, 'error'>[],
): GatewayCondition {
  const byName = new Map(checks.map((check) => [check.name, check]));
  const own = checks.filter(({ name, ok }) => !ok && !name.startsWith(DEPLOYMENT));
  return {
    failedChecks: own.map(detailOf),
    warnings: checks.flatMap(({ warnings }) => warnings),
    served: status !== 'unready',
    deployments: deployments.map((facts) => {
      const check = byName.get(checkOf(facts.name));
      return { ...facts, error: check === undefined ? '' : detailOf(check) };
    }),
  };
}

function upstreamErrors({ egressPresent, addresses, pauses }: UpstreamCheck): string[] {
  const ofAddresses = egressPresent
    ? addresses.filter((each) => !isWell(each)).map(addressError)
    : ['the address of egress.localAddress is not on this host: add it to an interface'];
  return [...pauses.map(pauseText), ...ofAddresses];
}

/** One that is healthy while its circuit is half-open waits for a request. */
function isWell({ health }: AddressCheck): boolean {
  return health !== 'failing';
}

function addressError({ address, age, circuit, reason }: AddressCheck): string {
  const state = circuit === 'closed' ? '' : ` (circuit ${circuit})`;
  return `${address} has been failing for ${span(age)}${state}: ${reason}`;
}

function addressText({ address, health, age, circuit }: AddressCheck): string {
  return `${address} ${health} for ${span(age)}, circuit ${circuit}`;
}

function pauseText({ credential, outcome, until }: PauseCheck): string {
  const which = credential === '' ? '' : `requests with the credential ${credential} are `;
  return `${which}paused until ${new Date(until).toISOString()}, by outcome ${outcome}`;
}
