import { randomUUID } from 'node:crypto';
import { describe, expect, test } from '@jest/globals';
import { type OpenedAudit, openTestAudit } from '../../support/audit-log.ts';
import { closedAtEnd } from '../../support/closing.ts';
import { startGatewayProcess } from '../../support/gateway-process.ts';
import { OF_PROGRAM } from '../../support/operator.ts';
import { startRedis } from '../../support/redis.ts';
import { type FleetScene, openScene } from '../../support/scene.ts';
import { authors } from '../../support/simulator.ts';
import { until } from '../../support/until.ts';
import {
  accessRecords,
  allowNobody,
  isThere,
  isWhole,
  metric,
  readiness,
  reload,
  requestsOnNewConnections,
  rewrite,
  type SharedFleet,
  startClients,
  statusOnNewConnection,
  untilReplaced,
  useSharedFleet,
} from './shared-fleet.ts';

const { sharedFleet, takeFleet } = useSharedFleet();

/** Puts a deployment that no worker has heard of in the place of the present one. */
async function withNewDeployment(fleet: SharedFleet, settings: Record<string, unknown>): Promise<void> {
  await rewrite(fleet, (config) => {
    const { submissions } = config['deployments'] as Record<string, object>;
    config['deployments'] = { [`d-${randomUUID()}`]: { ...submissions, ...settings } };
  });
  expect(await reload(fleet)).toBe(200);
}

/** Opens the audit log of the worker that has ended. */
async function openFreeLog(directory: string): Promise<OpenedAudit> {
  let opened: OpenedAudit | undefined;
  await until(async () => {
    for (const replica of ['r1@1', 'r1@2']) {
      opened ??= await openTestAudit(directory, { replica }).catch(() => undefined);
    }
    return opened !== undefined;
  });
  return opened as OpenedAudit;
}

test('two workers serve on one port as one gateway', async () => {
  const fleet = await sharedFleet();
  const { simulator } = fleet;
  expect(await fleet.gateway.workers()).toHaveLength(2);
  const counts = async (): Promise<number[]> => [
    await metric(fleet, 'digest_gateway_requests_total', { status: '200' }),
    await metric(fleet, 'digest_gateway_request_duration_seconds_count'),
    await requestsInSnapshot(fleet),
    await accessRecords(fleet),
  ];
  const before = await counts();
  simulator.reset('submissions');
  await requestsOnNewConnections(fleet, 20);
  expect(await counts()).toEqual(before.map((count) => count + 20));
  expect(await isWhole(fleet)).toBe(true);
  // Without qop, one nonce serves all processes; with it, each process has its own.
  expect(simulator.counts('submissions').challenges).toBeLessThanOrEqual(2);
});

async function requestsInSnapshot({ gateway }: FleetScene): Promise<number> {
  const snapshot = (await (
    await fetch(`${gateway.control}/api/snapshot`, { headers: OF_PROGRAM })
  ).json()) as {
    clients: { requests: number }[];
  };
  return snapshot.clients.reduce((sum, { requests }) => sum + requests, 0);
}

test('processes without Redis use one nonce without qop', async () => {
  const fleet = await sharedFleet();
  const { simulator } = fleet;
  simulator.set('submissions', { qop: 'none' });
  await withNewDeployment(fleet, {});
  simulator.reset('submissions');
  await requestsOnNewConnections(fleet, 24);
  expect(simulator.counts('submissions').challenges).toBe(1);
});

test('processes without Redis share a limit', async () => {
  const fleet = await sharedFleet();
  await withNewDeployment(fleet, { limits: { daily: 10 } });
  let served = 0;
  await until(async () => {
    const response = await fetch(`${fleet.gateway.origin}${authors}`, { headers: { connection: 'close' } });
    await response.text();
    if (response.status === 200) served += 1;
    return response.status === 429;
  });
  expect(served).toBeGreaterThanOrEqual(10);
  expect(served).toBeLessThanOrEqual(12);
});

describe('a worker that ends', () => {
  test('takes its open exchanges with it, and no other; another one takes its place', async () => {
    const scene = await sharedFleet();
    const crashes = () => metric(scene, 'digest_gateway_worker_exits_total', { reason: 'crash' });
    const [crashed, recorded] = [await crashes(), await accessRecords(scene)];
    const clients = startClients(scene, 16);
    await until(() => (clients.outcomes['200'] ?? 0) > 50);
    const [victim = 0, ...others] = await scene.gateway.workers();
    process.kill(victim, 'SIGKILL');
    const before = clients.outcomes['200'] ?? 0;
    await until(async () => {
      const now = await scene.gateway.workers();
      return now.length === 2 && !now.includes(victim) && now.some((pid) => others.includes(pid));
    });
    await until(() => isWhole(scene));
    await until(() => (clients.outcomes['200'] ?? 0) > before + 50);
    const { 200: answered = 0 } = await clients.stop();
    const failures = clients.failures.reduce((sum, count) => sum + count, 0);
    expect(Math.max(...clients.failures)).toBe(1);
    // Some connections were the other worker's.
    expect(failures).toBeLessThan(16);
    expect(await crashes()).toBe(crashed + 1);
    const accesses = (await accessRecords(scene)) - recorded;
    // A record comes before its response, so that an exchange that was cut off may have one.
    expect(accesses).toBeGreaterThanOrEqual(answered);
    expect(accesses).toBeLessThanOrEqual(answered + failures);
  });

  test('leaves its counts in the sums', async () => {
    const scene = await sharedFleet();
    const requests = () => metric(scene, 'digest_gateway_requests_total');
    const before = await requests();
    await requestsOnNewConnections(scene, 10);
    expect(await requests()).toBe(before + 10);
    const [victim = 0] = await scene.gateway.workers();
    process.kill(victim, 'SIGKILL');
    await untilReplaced(scene, victim);
    expect(await requests()).toBe(before + 10);
  });
});

test('workers end with their primary, and leave the port', async () => {
  await using scene = await takeFleet();
  const old = await scene.gateway.workers();
  await scene.gateway.kill();
  await until(async () => !(await Promise.all(old.map(isThere))).includes(true));
  const next = await sharedFleet({ port: Number(new URL(scene.gateway.origin).port) });
  expect(next.gateway.origin).toBe(scene.gateway.origin);
  await requestsOnNewConnections(next, 2);
});

test('a worker that cannot be started is tried again, and the others serve', async () => {
  const scene = await sharedFleet();
  const { length: before } = scene.gateway.logged;
  const failed = () => metric(scene, 'digest_gateway_worker_exits_total', { reason: 'start' });
  const failedBefore = await failed();
  const [victim = 0] = await scene.gateway.workers();
  // Its folder is taken before the primary can start another one.
  process.kill(scene.gateway.pid, 'SIGSTOP');
  process.kill(victim, 'SIGKILL');
  const held = await openFreeLog(scene.log);
  process.kill(scene.gateway.pid, 'SIGCONT');
  await until(() =>
    scene.gateway.logged.slice(before).some(({ msg }) => msg === 'a worker cannot be started'),
  );
  expect((await readiness(scene)).status).toBe('degraded');
  expect(await failed()).toBeGreaterThan(failedBefore);
  await requestsOnNewConnections(scene, 4);
  await held.audit.close();
  await until(() => isWhole(scene));
});

test('a worker that hangs holds no reload back, and is replaced', async () => {
  const scene = await sharedFleet();
  const hangs = () => metric(scene, 'digest_gateway_worker_exits_total', { reason: 'hang' });
  const before = await hangs();
  const [victim = 0] = await scene.gateway.workers();
  process.kill(victim, 'SIGSTOP');
  await allowNobody(scene);
  process.kill(scene.gateway.pid, 'SIGHUP');
  await until(async () => (await statusOnNewConnection(scene.gateway.origin)) === 401);
  const { logged } = scene.gateway;
  const isKilled = ({ msg }: { msg?: unknown }) => msg === 'a worker does not answer, and is killed';
  await until(() => logged.some(isKilled));
  // The reload waits for no worker that is killed.
  const reloadedAt = logged.findLastIndex(({ msg }) => msg === 'configuration reloaded');
  expect(reloadedAt).toBeGreaterThanOrEqual(0);
  expect(reloadedAt).toBeLessThan(logged.findLastIndex(isKilled));
  await untilReplaced(scene, victim);
  expect(await hangs()).toBe(before + 1);
  await requestsOnNewConnections(await sharedFleet(), 4);
});

test('a port that is taken ends the start with its reason', async () => {
  const scene = await sharedFleet();
  const port = Number(new URL(scene.gateway.origin).port);
  const second = startGatewayProcess(
    { submissions: { origin: scene.simulator.deployments.submissions.origin, ca: scene.simulator.ca } },
    { workers: 2, listen: { port } },
  );
  await expect(second).rejects.toThrow('listen.port');
});

test('replicas with workers share nonces through Redis', async () => {
  const redis = await closedAtEnd(startRedis());
  const top = { redis: { url: redis.url } };
  await using scene = await openScene({ workers: 2, behaviour: { qop: 'none' }, top });
  await until(async () => (await metric(scene, 'digest_gateway_store_up')) === 1);
  await requestsOnNewConnections(scene, 12);
  expect(scene.simulator.counts('submissions').challenges).toBe(1);
});
