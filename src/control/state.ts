import { findingText, type PlacedFinding } from '../audit/findings.ts';
import { statusOfCode } from '../base/errors.ts';
import { NONCE_POLICIES } from '../challenges/store/store.ts';
import type { ConnectionStats } from '../transport/connection.ts';
import type { EgressState } from '../upstream/egress-addresses.ts';
import type { CredentialState } from '../upstream/upstream-address.ts';
import type { AddressView, ErrorState, ListenerView, NonceView, ProcessView, TlsView } from './view.ts';

/** Distinct failures, and refusals, that are kept. */
const MAX_ERRORS = 50;

/** `absent`: no worker has reported. The worst first. */
const STAGES = ['draining', 'starting', 'absent', 'serving'] as const;
type Stage = (typeof STAGES)[number];

/**
 * The state of the data plane of a worker, or of several merged: plain data, in which nothing is undefined. Enums
 * and numbers; the only sentences are reasons of errors, which others have written.
 */
export interface WorkerState {
  /** Number of the worker; 0: this process serves itself. */
  readonly worker: number;
  readonly stage: Stage;
  /**
   * True if requests are served: as many upstreams are reachable as `readiness` wants, and nothing else is in the way.
   */
  readonly serves: boolean;
  /** Whether Redis is reachable; null: none is configured. */
  readonly storeUp: boolean | null;
  /** Why Redis is not reachable, as far as that is known. */
  readonly storeFailing: readonly string[];
  /** null: no audit log is configured. */
  readonly audit: AuditState | null;
  /** This process; of merged states all of them, by number. */
  readonly processes: readonly ProcessView[];
  /** Those that are open, in the order of the configuration. */
  readonly listeners: readonly ListenerView[];
  readonly deployments: readonly DeploymentState[];
  /** Recent errors, the newest first. */
  readonly errors: readonly ErrorState[];
}

/** The state of the whole gateway at one moment. */
export interface GatewayState extends WorkerState {
  /** null: this process serves itself. */
  readonly workers: WorkersState | null;
  readonly configuration: ConfigurationState;
  readonly sinks: readonly SinkState[];
}

/** The state that the primary has beside its workers. */
export interface WorkersState {
  /** Running and configured workers. */
  readonly serving: number;
  readonly configured: number;
  /** The primary's own log; null: no audit log is configured. */
  readonly audit: AuditState | null;
}

export interface ConfigurationState {
  /** Why the last configuration was refused; null: it was not. */
  readonly refused: string | null;
  /** Why credentials cannot be read again, so that their current versions stay; null: all can. */
  readonly unreadable: string | null;
  /** Keys that differ in the file, and that only a restart changes. */
  readonly needsRestart: readonly string[];
}

export interface SinkState {
  readonly name: string;
  /** Why it fails; null: it does not. */
  readonly failing: string | null;
  /** True: a log is not a continuation of what the witness has cosigned. */
  readonly rejected: boolean;
}

/** The audit log of one process, or of several. Lists of reasons are empty while there is none. */
export interface AuditState {
  readonly records: number;
  readonly failures: number;
  /** Why nothing can be written. */
  readonly failing: readonly string[];
  /** Why old segments are not removed. */
  readonly retentionHeld: readonly string[];
  /** Found in the newest segment at the start. */
  readonly integrityErrors: readonly PlacedFinding[];
}

export interface DeploymentState {
  readonly name: string;
  readonly origin: string;
  /** True if an address is reachable and the upstream accepts a credential. */
  readonly serves: boolean;
  /** Of all addresses. */
  readonly connections: ConnectionStats;
  readonly nonce: NonceView;
  /** At the preferred address, from the local address in use; `addresses` are seen from there, too. */
  readonly credentials: readonly CredentialVersionState[];
  readonly addresses: readonly AddressView[];
  /** Names of the configured outcomes. */
  readonly outcomes: readonly string[];
  readonly pauses: readonly PauseState[];
  /** The addresses of `egress.localAddress`, in the order of the configuration; empty: the system chooses. */
  readonly egress: readonly EgressState[];
  readonly tls?: TlsView;
}

export interface CredentialVersionState extends CredentialState {
  /** Its place in the configuration; undefined: it has left its sources, and is kept as a fallback. */
  readonly role?: 'current' | 'next';
  /** Unix milliseconds. */
  readonly changedAt?: number;
}

export interface PauseState {
  /** Empty: the whole deployment. */
  readonly credential: string;
  readonly outcome: string;
  /** Unix milliseconds. */
  readonly until: number;
}

/** The worst first. */
const HEALTH = ['failing', 'unknown', 'healthy'] as const satisfies readonly AddressView['health'][];
const CIRCUIT = ['open', 'half-open', 'closed'] as const satisfies readonly AddressView['circuit'][];
export const EGRESS = [
  'missing',
  'refused',
  'in-use',
  'standby',
] as const satisfies readonly EgressState['status'][];
const CREDENTIAL = ['refused', 'rejected', 'waiting', 'candidate', 'fallback', 'in-use'] as const;

/** The status of a credential version: its state, or that its trial failed. */
export function statusOf({ state, rejected }: CredentialState): CredentialState['state'] | 'rejected' {
  return rejected ? 'rejected' : state;
}

/** Errors and audit counts of workers that serve no more. */
export interface FormerState {
  readonly errors: readonly ErrorState[];
  /** Without reasons why their logs failed at the end; null: they had none. */
  readonly audit: AuditState | null;
}

export const NO_FORMER: FormerState = { errors: [], audit: null };

/** Adds the last states of workers that serve no more. */
export function addFormer(former: FormerState, states: readonly WorkerState[]): FormerState {
  const ended = states.flatMap(({ audit }) => audit ?? []);
  const audits = [former.audit ?? [], ...ended].flat();
  const errors = mergeErrors([...former.errors, ...states.flatMap((state) => state.errors)]);
  return {
    errors,
    audit: audits.length === 0 ? null : { ...mergeAudits(audits), failing: [], retentionHeld: [] },
  };
}

/**
 * Merges the states of workers, whose order does not matter. Of one, it is that one. `former`: of workers that serve no
 * more.
 */
export function mergeStates(states: readonly WorkerState[], former: FormerState = NO_FORMER): WorkerState {
  const inOrder = states.toSorted((a, b) => a.worker - b.worker);
  const deployments = inOrder.flatMap((state) => state.deployments);
  const audits = [...inOrder, former].flatMap(({ audit }) => audit ?? []);
  return {
    worker: inOrder[0]?.worker ?? 0,
    stage: inOrder.length === 0 ? 'absent' : worst(STAGES, inOrder, ({ stage }) => stage),
    serves: inOrder.some(({ serves }) => serves),
    storeUp: every(inOrder.map(({ storeUp }) => storeUp)),
    storeFailing: distinct(inOrder.flatMap(({ storeFailing }) => storeFailing)),
    audit: audits.length === 0 ? null : mergeAudits(audits),
    processes: inOrder.flatMap(({ processes }) => processes),
    listeners: mergeBy(
      inOrder.flatMap(({ listeners }) => listeners),
      ({ address }) => address,
      mergeListeners,
    ),
    deployments: mergeBy(deployments, ({ name }) => name, mergeDeployments),
    errors: mergeErrors([...inOrder, former].flatMap(({ errors }) => errors)),
  };
}

/** Adds up the states of audit logs, of which there is at least one. */
export function mergeAudits(audits: readonly AuditState[]): AuditState {
  const findings = audits.flatMap(({ integrityErrors }) => integrityErrors);
  return {
    records: audits.reduce((sum, { records }) => sum + records, 0),
    failures: audits.reduce((sum, { failures }) => sum + failures, 0),
    failing: distinct(audits.flatMap(({ failing }) => failing)),
    retentionHeld: distinct(audits.flatMap(({ retentionHeld }) => retentionHeld)),
    integrityErrors: mergeBy(findings, findingText, ([first]) => first),
  };
}

/** In an upgrade, workers may have read another certificate: the one that expires first counts. */
function mergeListeners(views: readonly [ListenerView, ...ListenerView[]]): ListenerView {
  const connections = views.reduce((sum, each) => sum + each.connections, 0);
  const certificateExpiresAt = least(views.map((each) => each.certificateExpiresAt));
  return { ...views[0], connections, ...(certificateExpiresAt !== undefined && { certificateExpiresAt }) };
}

function mergeDeployments(states: readonly [DeploymentState, ...DeploymentState[]]): DeploymentState {
  const [{ name, origin }] = states;
  const credentials = states.flatMap((each) => each.credentials);
  const addresses = states.flatMap((each) => each.addresses);
  const pauses = states.flatMap((each) => each.pauses);
  const tls = mergeTls(states.flatMap((each) => each.tls ?? []));
  return {
    name,
    origin,
    serves: states.some(({ serves }) => serves),
    connections: mergeConnections(states.map(({ connections }) => connections)),
    nonce: mergeNonces(states.map(({ nonce }) => nonce)),
    credentials: mergeBy(
      credentials,
      ({ credential, version }) => `${credential} ${version}`,
      mergeCredentials,
    ),
    addresses: mergeBy(addresses, ({ address }) => address, mergeAddresses),
    outcomes: distinct(states.flatMap(({ outcomes }) => outcomes)),
    pauses: mergeBy(pauses, ({ credential, outcome }) => `${credential} ${outcome}`, latestPause),
    egress: mergeBy(
      states.flatMap(({ egress }) => egress),
      ({ address }) => address,
      worstEgress,
    ),
    ...(tls !== undefined && { tls }),
  };
}

function mergeAddresses(states: readonly [AddressView, ...AddressView[]]): AddressView {
  const health = worst(HEALTH, states, (each) => each.health);
  const oldest = states.filter((each) => each.health === health).reduce((a, b) => (b.age > a.age ? b : a));
  const circuit = worst(CIRCUIT, states, (each) => each.circuit);
  return { ...oldest, circuit, exchanges: states.reduce((sum, { exchanges }) => sum + exchanges, 0) };
}

function worstEgress(states: readonly [EgressState, ...EgressState[]]): EgressState {
  const status = worst(EGRESS, states, (each) => each.status);
  return states.find((each) => each.status === status) ?? states[0];
}

/** True if this host has none of the local addresses that are configured: then every request fails. */
export function isEgressMissing(egress: readonly EgressState[]): boolean {
  return egress.length > 0 && egress.every(({ status }) => status === 'missing');
}

function latestPause(pauses: readonly [PauseState, ...PauseState[]]): PauseState {
  return pauses.reduce((a, b) => (b.until > a.until ? b : a));
}

/** Adds up connections of several addresses, or processes. */
export function mergeConnections(all: readonly ConnectionStats[]): ConnectionStats {
  const sum = (name: keyof ConnectionStats): number => all.reduce((total, each) => total + each[name], 0);
  return {
    connected: sum('connected'),
    free: sum('free'),
    running: sum('running'),
    pending: sum('pending'),
    limit: sum('limit'),
  };
}

/** The chain whose first certificate expires first. */
function mergeTls(views: readonly TlsView[]): TlsView | undefined {
  return views.toSorted((a, b) => a.chain[0].expiresAt - b.chain[0].expiresAt)[0];
}

/** The strictest policy, the youngest nonce, the shortest lifetime: of the pools of a process, or of several processes. */
export function mergeNonces(nonces: readonly NonceView[]): NonceView {
  const policies = new Set(nonces.map(({ policy }) => policy));
  const age = least(nonces.map((nonce) => nonce.age));
  const lifetime = least(nonces.map((nonce) => nonce.lifetime));
  return {
    policy: NONCE_POLICIES.findLast((policy) => policies.has(policy)) ?? NONCE_POLICIES[0],
    ...(age !== undefined && { age }),
    ...(lifetime !== undefined && { lifetime }),
  };
}

/** In use if it is in one process; the upstream accepts it if it does in all. */
function mergeCredentials(
  states: readonly [CredentialVersionState, ...CredentialVersionState[]],
): CredentialVersionState {
  const [{ credential, version }] = states;
  const status = worst(CREDENTIAL, states, statusOf);
  const { state, rejected } = states.find((each) => statusOf(each) === status) ?? states[0];
  const role = states.find((each) => each.role !== undefined)?.role;
  const changedAt = least(states.map((each) => each.changedAt));
  return {
    credential,
    version,
    state,
    rejected,
    inUse: states.some(({ inUse }) => inUse),
    serves: states.every(({ serves }) => serves),
    ...(role !== undefined && { role }),
    ...(changedAt !== undefined && { changedAt }),
  };
}

/** Adds up errors of one deployment and code; the newest first. Refusals, which a client causes, displace no failures. */
function mergeErrors(errors: readonly ErrorState[]): ErrorState[] {
  const merged = mergeBy(
    errors,
    ({ deployment, code }) => `${deployment} ${code}`,
    (same) => ({
      ...same.reduce((a, b) => (newestFirst(a, b) <= 0 ? a : b)),
      count: same.reduce((sum, { count }) => sum + count, 0),
    }),
  );
  const newest = merged.sort(newestFirst);
  const isFailure = ({ code }: ErrorState): boolean => statusOfCode(code) >= 500;
  const failures = newest.filter(isFailure).slice(0, MAX_ERRORS);
  const refusals = newest.filter((error) => !isFailure(error)).slice(0, MAX_ERRORS);
  return [...failures, ...refusals].sort(newestFirst);
}

function newestFirst(a: ErrorState, b: ErrorState): number {
  return (
    b.lastAt - a.lastAt ||
    compare(a.deployment, b.deployment) ||
    compare(a.code, b.code) ||
    compare(a.requestId, b.requestId)
  );
}

/** Merges the items of each key; the keys keep the order in which they appear first. */
function mergeBy<Item>(
  items: readonly Item[],
  keyOf: (item: Item) => string,
  merge: (items: readonly [Item, ...Item[]]) => Item,
): Item[] {
  const groups = Map.groupBy(items, keyOf);
  return Array.from(groups.values(), (group) => merge(group as [Item, ...Item[]]));
}

/** Returns the first of these values that an item has. */
function worst<Value, Item>(
  values: readonly NoInfer<Value>[],
  items: readonly Item[],
  of: (item: Item) => Value,
): Value {
  return items.map(of).reduce((a, b) => (values.indexOf(b) < values.indexOf(a) ? b : a));
}

/** Whether it is true wherever it is known; null: it is known nowhere. */
function every(all: readonly (boolean | null)[]): boolean | null {
  const known = all.filter((each) => each !== null);
  return known.length === 0 ? null : known.every(Boolean);
}

function least(values: readonly (number | undefined)[]): number | undefined {
  const known = values.filter((value) => value !== undefined);
  return known.length === 0 ? undefined : Math.min(...known);
}

function distinct(texts: readonly string[]): string[] {
  return [...new Set(texts)];
}

function compare(a: string, b: string): number {
  return a < b ? -1 : Number(a > b);
}
