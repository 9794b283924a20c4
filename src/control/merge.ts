import type { ClientUse, LimitUseView, RefusalView } from './client-view.ts';
import {
  type AddressCheck,
  type Check,
  conditionWith,
  type PauseCheck,
  type Readiness,
} from './readiness.ts';
import type { ConsoleReport, DeploymentFacts } from './snapshot.ts';
import type {
  AddressView,
  AuditView,
  ChainView,
  ConnectionsView,
  CredentialView,
  ErrorView,
  NonceView,
  TlsView,
} from './view.ts';

/** The state of one data plane: plain data, in which nothing is undefined. */
export interface PlaneReport extends ConsoleReport {
  readonly readiness: Readiness;
}

/** The report of a worker, with the number that names it. */
export interface WorkerReport extends PlaneReport {
  readonly worker: number;
}

/** Distinct errors that are kept. */
const ERRORS = 50;

/** The worst first. */
const HEALTH = ['failing', 'unknown', 'healthy'] as const satisfies readonly AddressView['health'][];
const CIRCUIT = ['open', 'half-open', 'closed'] as const satisfies readonly AddressView['circuit'][];
const CHAIN = ['altered', 'unchecked', 'checking', 'intact'] as const satisfies readonly ChainView['state'][];
const CREDENTIAL = [
  'refused',
  'rejected by the upstream',
  'waits for the upstream',
  'waits to be tried',
  'kept as fallback',
  'in use',
] as const satisfies readonly CredentialView['state'][];
const POLICY = ['single-use', 'exclusive', 'shared'] as const satisfies readonly NonceView['policy'][];

/** Merges the reports of workers, whose order does not matter. Without one, the gateway is unready. */
export function mergeReports(reports: readonly WorkerReport[]): PlaneReport {
  const inOrder = reports.toSorted((a, b) => a.worker - b.worker);
  const readiness = mergeReadiness(inOrder.map((report) => report.readiness));
  const facts = inOrder.flatMap(({ condition }) => condition.deployments);
  return {
    readiness,
    condition: conditionWith(
      readiness,
      mergeBy(facts, ({ name }) => name, mergeFacts),
    ),
    errors: mergeErrors(inOrder.flatMap(({ errors }) => errors)),
    audit: mergeAudit(inOrder.flatMap(({ audit }) => audit ?? [])),
    storeUp: mergeStoreUp(inOrder.map(({ storeUp }) => storeUp)),
  };
}

/** Redis is reachable if it is for all. */
function mergeStoreUp(all: readonly (boolean | null)[]): boolean | null {
  const known = all.filter((up) => up !== null);
  return known.length === 0 ? null : known.every(Boolean);
}

/** `unready` if no worker serves, `degraded` if one of them is not ready. */
function mergeReadiness(all: readonly Readiness[]): Readiness {
  const isServed = all.some(({ status }) => status !== 'unready');
  const isReady = all.every(({ status }) => status === 'ready');
  return {
    status: !isServed ? 'unready' : isReady ? 'ready' : 'degraded',
    checks: mergeBy(
      all.flatMap(({ checks }) => checks),
      ({ name }) => name,
      mergeChecks,
    ),
  };
}

function mergeChecks(checks: readonly [Check, ...Check[]]): Check {
  const upstreams = checks.flatMap(({ upstream }) => upstream ?? []);
  const addresses = upstreams.flatMap((upstream) => upstream.addresses);
  const pauses = upstreams.flatMap((upstream) => upstream.pauses);
  return {
    name: checks[0].name,
    ok: checks.every(({ ok }) => ok),
    errors: distinct(checks.flatMap(({ errors }) => errors)),
    warnings: distinct(checks.flatMap(({ warnings }) => warnings)),
    ...(upstreams.length > 0 && {
      upstream: {
        egressPresent: upstreams.every(({ egressPresent }) => egressPresent),
        addresses: mergeBy(addresses, ({ address }) => address, mergeAddressChecks),
        pauses: mergeBy(pauses, ({ credential, outcome }) => `${credential} ${outcome}`, latestPause),
      },
    }),
  };
}

function mergeAddresses(views: readonly [AddressView, ...AddressView[]]): AddressView {
  const health = worst(
    HEALTH,
    views.map((view) => view.health),
  );
  const ages = views.filter((view) => view.health === health).map(({ age }) => age);
  return {
    address: views[0].address,
    health,
    age: Math.max(...ages),
    circuit: worst(
      CIRCUIT,
      views.map(({ circuit }) => circuit),
    ),
  };
}

function mergeAddressChecks(checks: readonly [AddressCheck, ...AddressCheck[]]): AddressCheck {
  const merged = mergeAddresses(checks);
  const oldest = checks.find(({ health, age }) => health === merged.health && age === merged.age);
  return { ...merged, reason: oldest?.reason ?? '' };
}

function latestPause(pauses: readonly [PauseCheck, ...PauseCheck[]]): PauseCheck {
  return pauses.reduce((a, b) => (b.until > a.until ? b : a));
}

function mergeFacts(facts: readonly [DeploymentFacts, ...DeploymentFacts[]]): DeploymentFacts {
  const [{ name, origin, error }] = facts;
  const credentials = facts.flatMap((each) => each.credentials);
  const addresses = facts.flatMap((each) => each.addresses);
  const certificateExpiresAt = least(facts.map((each) => each.certificateExpiresAt));
  const tls = mergeTls(facts.flatMap((each) => each.tls ?? []));
  return {
    name,
    origin,
    error,
    serving: facts.some(({ serving }) => serving),
    connections: mergeConnections(facts.map(({ connections }) => connections)),
    nonce: mergeNonces(facts.map(({ nonce }) => nonce)),
    credentials: mergeBy(credentials, (each) => `${each.name} ${each.version}`, mergeCredentials),
    addresses: mergeBy(addresses, ({ address }) => address, mergeAddresses),
    outcomes: distinct(facts.flatMap(({ outcomes }) => outcomes)),
    ...(certificateExpiresAt !== undefined && { certificateExpiresAt }),
    ...(tls !== undefined && { tls }),
  };
}

function mergeConnections(views: readonly ConnectionsView[]): ConnectionsView {
  const sum = (name: keyof ConnectionsView): number => views.reduce((total, view) => total + view[name], 0);
  return { open: sum('open'), busy: sum('busy'), queued: sum('queued'), limit: sum('limit') };
}

/** The chain whose first certificate expires first. */
function mergeTls(views: readonly TlsView[]): TlsView | undefined {
  const expiryOf = ({ chain }: TlsView): number => chain[0]?.expiresAt ?? Number.POSITIVE_INFINITY;
  return views.toSorted((a, b) => expiryOf(a) - expiryOf(b))[0];
}

/** The strictest policy, the youngest nonce, the shortest lifetime. */
function mergeNonces(nonces: readonly NonceView[]): NonceView {
  const age = least(nonces.map((nonce) => nonce.age));
  const lifetime = least(nonces.map((nonce) => nonce.lifetime));
  return {
    policy: worst(
      POLICY,
      nonces.map(({ policy }) => policy),
    ),
    ...(age !== undefined && { age }),
    ...(lifetime !== undefined && { lifetime }),
  };
}

function mergeCredentials(views: readonly [CredentialView, ...CredentialView[]]): CredentialView {
  const [{ name, version }] = views;
  const role = views.find((view) => view.role !== undefined)?.role;
  const changedAt = least(views.map((view) => view.changedAt));
  return {
    name,
    version,
    state: worst(
      CREDENTIAL,
      views.map(({ state }) => state),
    ),
    refused: views.some(({ refused }) => refused),
    ...(role !== undefined && { role }),
    ...(changedAt !== undefined && { changedAt }),
  };
}

/** Adds up errors of one deployment and code. */
function mergeErrors(errors: readonly ErrorView[]): ErrorView[] {
  const merged = mergeBy(
    errors,
    ({ deployment, code }) => `${deployment} ${code}`,
    (same) => ({
      ...same.reduce((a, b) => (newestFirst(a, b) <= 0 ? a : b)),
      count: same.reduce((sum, { count }) => sum + count, 0),
    }),
  );
  return merged.sort(newestFirst).slice(0, ERRORS);
}

function newestFirst(a: ErrorView, b: ErrorView): number {
  return (
    b.lastAt - a.lastAt ||
    compare(a.deployment, b.deployment) ||
    compare(a.code, b.code) ||
    compare(a.requestId, b.requestId)
  );
}

/** Adds up the states of audit logs; null: there is none. */
export function mergeAudit(views: readonly AuditView[]): AuditView | null {
  if (views.length === 0) return null;
  const failing = distinct(views.flatMap((view) => view.failing ?? []));
  return {
    ...(failing.length > 0 && { failing: failing.join('; ') }),
    records: views.reduce((sum, { records }) => sum + records, 0),
    failures: views.reduce((sum, { failures }) => sum + failures, 0),
    chain: mergeChains(views.map(({ chain }) => chain)),
  };
}

function mergeChains(chains: readonly ChainView[]): ChainView {
  const state = worst(
    CHAIN,
    chains.map((chain) => chain.state),
  );
  const those = chains.filter((chain) => chain.state === state);
  const checkedAt = least(those.map((chain) => chain.checkedAt));
  return {
    state,
    detail: distinct(those.map(({ detail }) => detail)).join(' '),
    ...(checkedAt !== undefined && { checkedAt }),
  };
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

/** Returns the first of these states that occurs. */
function worst<State>(states: readonly NoInfer<State>[], occurring: readonly State[]): State {
  return occurring.reduce((a, b) => (states.indexOf(b) < states.indexOf(a) ? b : a));
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

/** Merges what processes know of a client. Their limits are shared, so the one that knows of the most use is right. */
export function mergeClientUse(uses: readonly ClientUse[]): ClientUse {
  const limits = uses.flatMap((use) => use.limits ?? []);
  const byCode = Map.groupBy(
    uses.flatMap(({ refusals }) => refusals),
    ({ code }) => code,
  );
  return {
    limits: limits.length === 0 ? null : limits.reduce(mostUsed),
    refusals: Array.from(byCode.values(), added).sort((a, b) => b.lastAt - a.lastAt),
  };
}

function mostUsed(a: LimitUseView, b: LimitUseView): LimitUseView {
  return {
    rate: a.rate && b.rate && { ...a.rate, left: Math.min(a.rate.left, b.rate.left) },
    concurrent: a.concurrent &&
      b.concurrent && {
        ...a.concurrent,
        inFlight: Math.max(a.concurrent.inFlight, b.concurrent.inFlight),
      },
    daily: a.daily && b.daily && { ...a.daily, used: Math.max(a.daily.used, b.daily.used) },
  };
}

function added(same: readonly RefusalView[]): RefusalView {
  const last = same.reduce((a, b) => (b.lastAt > a.lastAt ? b : a));
  return { ...last, count: same.reduce((sum, { count }) => sum + count, 0) };
}
