import { cpuUsage, memoryUsage, pid, resourceUsage, uptime } from 'node:process';
import { z } from 'zod';
import type { Audit, RecentRecord } from '../audit/audit.ts';
import type { Clock } from '../base/clock.ts';
import { errorCode } from '../base/error-code.ts';
import { getOrInsert } from '../base/maps.ts';
import type { NoncePool } from '../challenges/pool.ts';
import type { Config } from '../config/schema.ts';
import type { AuditLines } from '../control/snapshot.ts';
import {
  type AuditState,
  type CredentialVersionState,
  type DeploymentState,
  isEgressMissing,
  mergeConnections,
  mergeNonces,
  type WorkerState,
} from '../control/state.ts';
import type { AuditLine, ErrorState, ListenerView, NonceView, ProcessView } from '../control/view.ts';
import type { RecentError } from '../gateway/error-log.ts';
import type { Listener } from '../gateway/listener.ts';
import type { AppSetup } from '../setup/setup.ts';
import type { CredentialState } from '../upstream/upstream-address.ts';
import type { ServedDeployment } from './deployments.ts';

interface WorkerParts {
  /** Number of the worker; left out: this process serves itself. */
  readonly worker?: number | undefined;
  readonly stage: ProcessView['stage'];
  readonly storeUp: boolean;
  readonly storeFailing: readonly string[];
  readonly audit: Audit;
  readonly setup: AppSetup;
  readonly listeners: readonly Listener[];
  readonly deployments: readonly ServedDeployment[];
  readonly errors: readonly RecentError[];
  readonly clock: Clock;
}

/** Reads the state of a data plane from its parts. */
export async function workerState(parts: WorkerParts): Promise<WorkerState> {
  const { worker = 0, stage, storeUp, audit, setup, errors, clock } = parts;
  const deployments = await Promise.all(
    parts.deployments.map((each) => deploymentState(each, setup, clock.now())),
  );
  const serves =
    stage === 'serving' &&
    !audit.refusing &&
    deployments.some(canServe) &&
    reaches(deployments, setup.config.readiness);
  const listeners = parts.listeners.filter(({ name }) => name !== '').map(listenerView);
  return {
    worker,
    stage,
    serves,
    storeUp: setup.redis === undefined ? null : storeUp,
    storeFailing: parts.storeFailing,
    audit: auditState(audit),
    processes: [processView(worker, stage, serves, listeners)],
    listeners,
    deployments,
    errors: errors.map((error) => errorState(error, clock)),
  };
}

function processView(
  worker: number,
  stage: ProcessView['stage'],
  serves: boolean,
  listeners: readonly ListenerView[],
): ProcessView {
  const { user, system } = cpuUsage();
  return {
    worker,
    pid,
    stage,
    serves,
    startedAt: Math.round(Date.now() - uptime() * 1000),
    memory: residentMemory(),
    cpuSeconds: Math.round((user + system) / 10_000) / 100,
    connections: listeners.reduce((sum, { connections }) => sum + connections, 0),
  };
}

/** Returns the resident memory in bytes; without /proc, as in a chroot, or a free file, the most that it has been. */
function residentMemory(): number {
  try {
    return memoryUsage.rss();
  } catch (error) {
    if (errorCode(error) === '') throw error;
    return resourceUsage().maxRSS * 1024;
  }
}

function listenerView({ name, tls, connections }: Listener): ListenerView {
  return {
    address: name,
    connections,
    tls: tls === undefined ? 'none' : tls.clientCa === undefined ? 'server' : 'mutual',
    ...(tls !== undefined && { certificateExpiresAt: tls.expires * 1000 }),
  };
}

/** Returns the state of an audit log; null: nothing is recorded. */
export function auditState(audit: Audit): AuditState | null {
  if (!audit.enabled) return null;
  const { counts, failing, retentionHeld, integrityError } = audit;
  return {
    records: counts.records,
    failures: counts.failures,
    failing: listOf(failing),
    retentionHeld: listOf(retentionHeld),
    integrityErrors: listOf(integrityError),
  };
}

/** `now`: on the gateway's clock, in milliseconds. */
async function deploymentState(
  { name, upstream }: ServedDeployment,
  setup: AppSetup,
  now: number,
): Promise<DeploymentState> {
  const { preferred, outcomes } = upstream;
  const { credentials } = preferred;
  const { tlsSeen } = preferred.connections;
  const egress = await upstream.egress.states();
  const addresses = upstream.addressesInUse.map(({ address, exchanges, state: { status, age, reason } }) => ({
    address,
    health: status.health,
    age: age / 1000,
    circuit: status.circuit,
    reason,
    exchanges,
  }));
  return {
    name,
    origin: setup.config.deployments[name]?.baseUrl.join(', ') ?? '',
    serves: credentials.some(isServing) && addresses.some(isReachable),
    connections: mergeConnections(upstream.addresses.map(({ connections: { stats } }) => stats)),
    nonce: mergeNonces(upstream.addresses.flatMap(({ pools }) => pools.map((pool) => nonceView(pool, now)))),
    credentials: credentials.map((each) => credentialState(each, setup)),
    addresses,
    outcomes: outcomes?.names ?? [],
    pauses: (outcomes?.pauses ?? []).map(({ credential = '', outcome, remainingMs }) => ({
      credential,
      outcome,
      until: Date.now() + remainingMs,
    })),
    egress,
    ...(tlsSeen !== undefined && { tls: tlsSeen }),
  };
}

function nonceView({ policy, known, lifetimeMs }: NoncePool, now: number): NonceView {
  return {
    policy,
    ...(known !== undefined && { age: (now - known.obtainedAt) / 1000 }),
    ...(lifetimeMs !== undefined && { lifetime: lifetimeMs / 1000 }),
  };
}

function credentialState(state: CredentialState, { credentials }: AppSetup): CredentialVersionState {
  const { credential, version } = state;
  const set = credentials.get(credential);
  const isCurrent = set?.current.version === version;
  const known = isCurrent ? set.current : set?.next?.version === version ? set.next : undefined;
  return {
    ...state,
    ...(known !== undefined && { role: isCurrent ? 'current' : 'next' }),
    ...(known?.changedAt !== undefined && { changedAt: known.changedAt.getTime() }),
  };
}

/** Converts the time from the gateway's clock, which has no date. */
function errorState({ title: _, at, ...error }: RecentError, clock: Clock): ErrorState {
  return { ...error, lastAt: Date.now() - (clock.now() - at) };
}

/** True if requests can leave, and the upstream does not refuse every version of every credential. */
function canServe({ egress, credentials }: DeploymentState): boolean {
  return !isEgressMissing(egress) && credentials.some(isServing);
}

function isServing({ inUse, serves }: CredentialState): boolean {
  return inUse && serves;
}

function reaches(deployments: readonly DeploymentState[], wanted: Config['readiness']): boolean {
  const isReached = ({ addresses }: DeploymentState): boolean => addresses.some(isReachable);
  if (wanted === 'any-upstream') return deployments.some(isReached);
  return wanted === 'gateway' || deployments.every(isReached);
}

function isReachable({ health }: DeploymentState['addresses'][number]): boolean {
  return health !== 'failing';
}

function listOf<T>(value: T | undefined): T[] {
  return value === undefined ? [] : [value];
}

/** Returns the versions in use of each credential. */
export function versionsInUse(all: readonly CredentialState[]): ReadonlyMap<string, ReadonlySet<string>> {
  const versions = new Map<string, Set<string>>();
  for (const { credential, version, inUse } of all) {
    if (inUse) getOrInsert(versions, credential, () => new Set<string>()).add(version);
  }
  return versions;
}

/** The deployments at which a version is in use. */
export function usedAt(
  deployments: readonly DeploymentState[],
  credential: string,
  version: string,
): string[] {
  const isUsed = (each: CredentialVersionState): boolean =>
    each.inUse && each.credential === credential && each.version === version;
  return deployments.flatMap(({ name, credentials }) => (credentials.some(isUsed) ? [name] : []));
}

const text = z.string().default('');

/** The fields of a record for the console; admin records have few of them. */
const shown = z.object({
  kind: text,
  requestId: text,
  client: text,
  deployment: text,
  site: text,
  operation: text,
  method: text,
  path: text,
  status: z.number().default(0),
  code: text,
  event: text,
});

/** Returns the lines after this position, oldest first (0: all that are kept), and the position after them. */
export function auditLines(audit: Audit, from: number): AuditLines {
  const { records, position } = audit.recent.since(from);
  return { lines: records.map(lineOf), position };
}

function lineOf({ seq, at, record }: RecentRecord): AuditLine {
  const { event, operation, ...line } = shown.parse(JSON.parse(`{${record}`));
  return { seq, time: new Date(at).toISOString(), ...line, operation: operation || event };
}
