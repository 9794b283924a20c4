import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { readFile, writeFile } from 'node:fs/promises';
import { request } from 'node:http';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { connect } from 'node:tls';
import { afterAll, describe, expect, test } from '@jest/globals';
import { Client } from 'undici';
import { parse, stringify } from 'yaml';
import {
  AUDIT_KEY,
  type OpenedAudit,
  openTestAudit,
  recordsIn,
  useFolders,
  useFoldersOfAll,
} from '../../support/audit-log.ts';
import { closing } from '../../support/closing.ts';
import { metricOf } from '../../support/gateway.ts';
import { startGatewayProcess } from '../../support/gateway-process.ts';
import { createTestAuthority, writeTlsFiles } from '../../support/issued-certificates.ts';
import { OF_PROGRAM, post, TOKEN_HASHES } from '../../support/operator.ts';
import { gateway as run } from '../../support/program.ts';
import { startRedis } from '../../support/redis.ts';
import { type FleetScene, openScene } from '../../support/scene.ts';
import { freePort } from '../../support/server-process.ts';
import { authors } from '../../support/simulator.ts';
import { until } from '../../support/until.ts';

const folderOf = useFolders();
const folderOfAll = useFoldersOfAll();

/** The fleet of all tests that need no settings of their own at the start. */
interface SharedFleet extends FleetScene {
  /** The directory of its audit log. */
  readonly log: string;
  /** The content of its configuration's file. */
  readonly configuration: string;
}

let shared: SharedFleet | undefined;
afterAll(async () => {
  await shared?.gateway.drain();
  expect(await shared?.gateway.ended).toBe(shared && 0);
  await shared?.[Symbol.asyncDispose]();
});

/** The shared fleet with two workers and its own configuration, which tests may change; the first test starts it. */
async function sharedFleet(listen = { port: 0 }): Promise<SharedFleet> {
  shared ??= await startShared(listen);
  const fleet = shared;
  const { configFile } = fleet.gateway;
  await until(
    async () =>
      (await fleet.gateway.workers()).length === 2 && (await metric(fleet, 'digest_gateway_workers')) === 2,
  );
  if ((await readFile(configFile, 'utf8')) !== fleet.configuration) {
    await writeFile(configFile, fleet.configuration);
    expect(await reload(fleet)).toBe(200);
  }
  await until(() => isWhole(fleet));
  return fleet;
}

/** The shared fleet for a test that ends it. */
async function takeFleet(): Promise<SharedFleet> {
  const fleet = await sharedFleet();
  shared = undefined;
  return fleet;
}

async function startShared(listen: { port: number }): Promise<SharedFleet> {
  const folder = await folderOfAll();
  const top = { listen, audit: await auditIn(folder), control: { port: 0, ...TOKEN_HASHES } };
  const scene = await openScene({ workers: 2, top });
  const configuration = await readFile(scene.gateway.configFile, 'utf8');
  return { ...scene, log: join(folder, 'log'), configuration };
}

function metric({ gateway }: FleetScene, name: string, labels: Record<string, string> = {}): Promise<number> {
  return metricOf(gateway.control, name, labels, OF_PROGRAM);
}

async function reload({ gateway }: FleetScene): Promise<number> {
  return (await post(`${gateway.control}/api/reload`, undefined, OF_PROGRAM)).status;
}

/** Milliseconds from a response to the next request of its client. */
const PAUSE_MS = 10;

/** Milliseconds that the upstream takes: most connections have an exchange under way, and few processors do. */
const EXCHANGE_MS = 50;

/** Clients that send requests until they are stopped; one connection each. */
function startClients({ gateway, simulator }: FleetScene, count: number) {
  simulator.set('submissions', { faults: [{ kind: 'delay', ms: EXCHANGE_MS }] });
  // Each connects after the one before it: one worker would accept them all if they came at once.
  const begun = Array.from({ length: count }, () => Promise.withResolvers<void>());
  const outcomes: Record<string, number> = {};
  const failures: number[] = [];
  let isGoing = true;
  const client = async (_: unknown, index: number): Promise<void> => {
    failures[index] = 0;
    await begun[index - 1]?.promise;
    const connection = new Client(gateway.origin);
    while (isGoing) {
      const outcome = await connection
        .request({ path: authors, method: 'GET' })
        .then(async ({ statusCode, body }) => {
          await body.text();
          return String(statusCode);
        })
        .catch((error) => String(error.code ?? error));
      begun[index]?.resolve();
      outcomes[outcome] = (outcomes[outcome] ?? 0) + 1;
      if (outcome !== '200') failures[index] = (failures[index] ?? 0) + 1;
      // Workers that start need the processors, too.
      await delay(PAUSE_MS);
    }
    begun[index]?.resolve();
    await connection.close();
  };
  const clients = Promise.all(Array.from({ length: count }, client));
  return {
    outcomes,
    /** Failed requests of each client. */
    failures,
    async stop() {
      isGoing = false;
      await clients;
      simulator.set('submissions', { faults: [] });
      return outcomes;
    },
  };
}

/** Settings of an audit log in a new folder. */
async function auditIn(folder: string): Promise<Record<string, unknown>> {
  const keyFile = join(folder, 'audit.key');
  await writeFile(keyFile, AUDIT_KEY, { mode: 0o600 });
  return { directory: join(folder, 'log'), keyFile, replica: 'r1', durability: 'write' };
}

/** Longer than any response takes: then the connection is lost, and nobody has closed it. */
const LOST_MS = 60_000;

/** Sends a request on a connection of its own; resolves to its status, or the error that ended the connection. */
function statusOnNewConnection(origin: string): Promise<number | string | undefined> {
  return new Promise((resolve) => {
    const signal = AbortSignal.timeout(LOST_MS);
    request(`${origin}${authors}`, { agent: false, signal }, (response) => {
      response.resume().once('close', () => resolve(response.complete ? response.statusCode : 'broken'));
    })
      .once('error', ({ code, message }: NodeJS.ErrnoException) => resolve(code ?? message))
      .end();
  });
}

/** Sends so many requests, each on a new connection. */
async function requestsOnNewConnections(scene: FleetScene, count: number): Promise<void> {
  for (let sent = 0; sent < count; sent += 1)
    expect(await statusOnNewConnection(scene.gateway.origin)).toBe(200);
}

async function readiness({
  gateway,
}: FleetScene): Promise<{ status: string; checks: { name: string; ok: boolean; detail: string }[] }> {
  return (await (await fetch(`${gateway.control}/readyz`)).json()) as never;
}

async function isWhole(scene: FleetScene): Promise<boolean> {
  // Metrics and state come from every process: while one is missing, nobody needs to ask.
  if ((await scene.gateway.workers()).length !== 2) return false;
  const { status } = await readiness(scene);
  return status === 'ready' && (await metric(scene, 'digest_gateway_workers')) === 2;
}

/** Resolves when another worker serves in the place of the one that is ended. */
async function untilReplaced(scene: FleetScene, victim: number): Promise<void> {
  await until(async () => !(await scene.gateway.workers()).includes(victim));
  await until(() => isWhole(scene));
}

/** Changes the configuration's file. */
async function rewrite(
  { gateway }: FleetScene,
  change: (config: Record<string, unknown>) => void,
): Promise<void> {
  const config = parse(await readFile(gateway.configFile, 'utf8'));
  change(config);
  await writeFile(gateway.configFile, stringify(config));
}

/** Changes it so that every request gets 401 when it is in force. */
function allowNobody(scene: FleetScene): Promise<void> {
  return rewrite(scene, (config) => {
    config['anonymous'] = false;
    config['clients'] = [
      { id: 'nobody', identify: { addresses: ['192.0.2.1'] }, allow: [{ deployment: 'submissions' }] },
    ];
  });
}

function isThere(pid: number): Promise<boolean> {
  return readFile(`/proc/${pid}/stat`).then(
    () => true,
    () => false,
  );
}

/** How many responses its workers have recorded. */
async function accessRecords({ log }: SharedFleet): Promise<number> {
  const records = await Promise.all(['r1@1', 'r1@2'].map((replica) => recordsIn(log, replica)));
  return records.flat().filter(({ kind }) => kind === 'access').length;
}

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
  return snapshot.clients[0]?.requests ?? 0;
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
  expect(await scene.gateway.workers()).toContain(victim);
  await until(() =>
    scene.gateway.logged.some(
      ({ msg, worker }) => worker !== undefined && msg === 'a worker does not answer, and is killed',
    ),
  );
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

test('a reload is active in all workers, or in none, and loses no request', async () => {
  const scene = await sharedFleet();
  const { gateway } = scene;
  const clients = startClients(scene, 4);
  for (let round = 0; round < 3; round += 1) {
    await rewrite(scene, (config) => {
      config['anonymous'] = 'perhaps';
    });
    expect(await reload(scene)).toBe(422);
    expect((await readiness(scene)).status).toBe('degraded');
    await rewrite(scene, (config) => {
      config['anonymous'] = true;
      config['log'] = { level: round % 2 === 0 ? 'debug' : 'info' };
    });
    expect(await reload(scene)).toBe(200);
  }
  expect(Object.keys(await clients.stop())).toEqual(['200']);
  await allowNobody(scene);
  expect(await reload(scene)).toBe(200);
  for (let sent = 0; sent < 6; sent += 1) {
    const response = await fetch(`${gateway.origin}${authors}`, { headers: { connection: 'close' } });
    expect(response.status).toBe(401);
    await response.text();
  }
});

test('SIGUSR2 replaces the workers, and no client notices', async () => {
  const scene = await sharedFleet();
  const old = await scene.gateway.workers();
  const requests = () => metric(scene, 'digest_gateway_requests_total');
  const counted = await requests();
  const clients = startClients(scene, 6);
  await until(() => (clients.outcomes['200'] ?? 0) > 20);
  process.kill(scene.gateway.pid, 'SIGUSR2');
  // Another one meanwhile is ignored: four workers in all have written records.
  await until(() => scene.gateway.logged.some(({ msg }) => msg === 'upgrade: starting new workers'));
  process.kill(scene.gateway.pid, 'SIGUSR2');
  await until(async () => {
    const now = await scene.gateway.workers();
    return now.length === 2 && now.every((pid) => !old.includes(pid));
  });
  const before = clients.outcomes['200'] ?? 0;
  await until(() => (clients.outcomes['200'] ?? 0) > before + 20);
  const { 200: answered, ...others } = await clients.stop();
  expect(others).toEqual({});
  await until(() => isWhole(scene));
  // The last report of a worker holds what it has counted.
  await until(async () => (await requests()) === counted + (answered ?? 0));
  const verified = await run(['audit', 'verify', '--config', scene.gateway.configFile]);
  expect(verified).toMatchObject({ status: 0, stdout: expect.stringContaining('1 replica with 4 workers') });
});

test('SIGTERM: clients that leave in time notice nothing', async () => {
  await using scene = await takeFleet();
  await rewrite(scene, (config) => {
    config['drain'] = { delay: '100s', timeout: '20s' };
  });
  expect(await reload(scene)).toBe(200);
  const clients = startClients(scene, 6);
  await until(() => (clients.outcomes['200'] ?? 0) > 20);
  const drained = scene.gateway.drain();
  await until(async () => (await readiness(scene)).status === 'unready');
  expect((await fetch(`${scene.gateway.control}/livez`)).status).toBe(200);
  expect(Object.keys(await clients.stop())).toEqual(['200']);
  // Another signal skips the rest of the delay.
  await scene.gateway.drain();
  await drained;
  expect(await scene.gateway.ended).toBe(0);
  expect(scene.gateway.logged.map(({ msg }) => msg)).toContain('stopped');
});

test('a worker that ends holds only what it has accepted: each connection gets a response or is closed', async () => {
  const scene = await sharedFleet();
  for (let round = 0; round < 3; round += 1) {
    const [victim = 0] = await scene.gateway.workers();
    process.kill(victim, 'SIGSTOP');
    const ofOthers = Array.from({ length: 10 }, () => statusOnNewConnection(scene.gateway.origin));
    expect(new Set(await Promise.all(ofOthers))).toEqual(new Set([200]));
    process.kill(victim, 'SIGCONT');
    const outcomes = Array.from({ length: 50 }, () => statusOnNewConnection(scene.gateway.origin));
    process.kill(victim, 'SIGKILL');
    for (const outcome of await Promise.all(outcomes))
      expect([200, 'broken', 'ECONNRESET']).toContain(outcome);
    await until(() => isWhole(scene));
  }
});
test('SIGTERM in an upgrade ends old and new workers', async () => {
  await using scene = await takeFleet();
  process.kill(scene.gateway.pid, 'SIGUSR2');
  await until(async () => (await scene.gateway.workers()).length > 2);
  const all = await scene.gateway.workers();
  await scene.gateway.drain();
  expect(await scene.gateway.ended).toBe(0);
  await until(async () => !(await Promise.all(all.map(isThere))).includes(true));
  // A line about one worker with a reason says that it was not closed, or ended by itself.
  const complaints = scene.gateway.logged.filter(
    ({ worker, reason }) => worker !== undefined && reason !== undefined,
  );
  expect(complaints).toEqual([]);
});

test('replicas with workers share nonces through Redis', async () => {
  const redis = await startRedis();
  closing.push(() => redis.close());
  const top = { redis: { url: redis.url } };
  await using scene = await openScene({ workers: 2, behaviour: { qop: 'none' }, top });
  await until(async () => (await metric(scene, 'digest_gateway_store_up')) === 1);
  await requestsOnNewConnections(scene, 12);
  expect(scene.simulator.counts('submissions').challenges).toBe(1);
});

test('a worker that starts after a reload serves as the others do what only a restart changes', async () => {
  const authority = await createTestAuthority();
  const files = await writeTlsFiles(await authority.server(), authority.ca);
  closing.push(() => files.remove());
  const folder = await folderOf();
  const password = join(folder, 'password');
  await writeFile(password, 'demo-password', { mode: 0o600 });
  const other = await freePort();
  await using scene = await openScene({
    workers: 2,
    top: {
      listen: { port: 0, tls: files.section },
      credentials: { extra: { username: { value: 'u' }, password: { file: password } } },
    },
  });
  const { gateway } = scene;
  const reloads = () => gateway.logged.filter(({ msg }) => msg === 'configuration reloaded').length;
  const isTls = async (): Promise<boolean> => {
    const socket = connect({
      port: Number(new URL(gateway.origin).port),
      host: '127.0.0.1',
      ca: authority.ca,
    });
    const seen = await once(socket, 'secureConnect').then(
      () => true,
      () => false,
    );
    // A reset before the server has the end of the handshake leaves it waiting for that until its timeout.
    socket.resume().end();
    if (!socket.closed) await once(socket, 'close');
    return seen;
  };
  const replaceWorkers = async (): Promise<void> => {
    for (const victim of await scene.gateway.workers()) {
      process.kill(victim, 'SIGKILL');
      await untilReplaced(scene, victim);
    }
  };
  await rewrite(scene, (config) => {
    config['listen'] = { port: other };
  });
  process.kill(gateway.pid, 'SIGHUP');
  await until(() => reloads() === 1);
  await replaceWorkers();
  for (let opened = 0; opened < 8; opened += 1) expect(await isTls()).toBe(true);
  expect(await statusOnNewConnection(`http://127.0.0.1:${other}`)).toBe('ECONNREFUSED');
  // A credential changes while the key of the certificate cannot be read.
  await writeFile(files.section.keyFile, 'no key', { mode: 0o600 });
  await writeFile(password, 'another');
  await until(() => reloads() === 2);
  await replaceWorkers();
  for (let opened = 0; opened < 8; opened += 1) expect(await isTls()).toBe(true);
});
