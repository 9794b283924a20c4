import { once } from 'node:events';
import { copyFile, rm, symlink, writeFile } from 'node:fs/promises';
import { Agent, type IncomingMessage, request } from 'node:http';
import { join } from 'node:path';
import { connect } from 'node:tls';
import { expect, test } from '@jest/globals';
import { useFolders } from '../../support/audit-log.ts';
import { closing } from '../../support/closing.ts';
import { startGatewayProcess } from '../../support/gateway-process.ts';
import { createTestAuthority, writeTlsFiles } from '../../support/issued-certificates.ts';
import { TOKEN_HASHES } from '../../support/operator.ts';
import { gateway as run, SOURCE_PROGRAM } from '../../support/program.ts';
import { openScene } from '../../support/scene.ts';
import { freePort } from '../../support/server-process.ts';
import { authors } from '../../support/simulator.ts';
import { until } from '../../support/until.ts';
import {
  allowNobody,
  isThere,
  isWhole,
  metric,
  readiness,
  reload,
  rewrite,
  startClients,
  statusOnNewConnection,
  untilReplaced,
  useSharedFleet,
} from './shared-fleet.ts';

const folderOf = useFolders();
const { sharedFleet, takeFleet } = useSharedFleet();

test('a worker that ends holds only what it has accepted: each connection gets a response or is closed', async () => {
  const scene = await sharedFleet();
  for (let round = 0; round < 2; round += 1) {
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

test('an upgrade to a program that is missing or incomplete keeps the old workers, and one line of the log says why', async () => {
  const folder = await folderOf();
  const program = join(folder, 'digest-gateway.js');
  await symlink(SOURCE_PROGRAM, program);
  const upstream = { origin: 'https://127.0.0.1:9' };
  await using gateway = await startGatewayProcess({ upstream }, { workers: 2 }, { program });
  const old = await gateway.workers();
  const failures = () =>
    gateway.logged.flatMap(({ msg, reason }) =>
      msg === 'upgrade failed; keeping the old workers' ? [String(reason)] : [],
    );
  await rm(program);
  process.kill(gateway.pid, 'SIGUSR2');
  await until(() => failures().length === 1);
  await copyFile(SOURCE_PROGRAM, program);
  process.kill(gateway.pid, 'SIGUSR2');
  await until(() => failures().length === 2);
  expect(failures()).toEqual([
    `a worker cannot be started: ${program} does not exist; install the program there`,
    expect.stringMatching(/^worker \d cannot be started: the program cannot be loaded: .*main\.ts/),
  ]);
  expect(gateway.printed.filter((line) => !line.startsWith('{'))).toEqual([]);
  expect(await gateway.workers()).toEqual(old);
  await rm(program);
  await symlink(SOURCE_PROGRAM, program);
  process.kill(gateway.pid, 'SIGUSR2');
  await until(async () => {
    const now = await gateway.workers();
    return now.length === 2 && now.every((pid) => !old.includes(pid));
  });
});

test('an upgrade that a shutdown ends is not called a failure', async () => {
  const upstream = { origin: 'https://127.0.0.1:9' };
  await using gateway = await startGatewayProcess({ upstream }, { workers: 2, drain: { delay: '0s' } });
  process.kill(gateway.pid, 'SIGUSR2');
  await until(() => gateway.logged.some(({ msg }) => msg === 'upgrade: starting new workers'));
  process.kill(gateway.pid, 'SIGTERM');
  expect(await gateway.ended).toBe(0);
  expect(gateway.logged.filter(({ level }) => level === 'error')).toEqual([]);
});

test('workers start where the program was named without its extension', async () => {
  const program = SOURCE_PROGRAM.replace(/\.js$/, '');
  const upstream = { origin: 'https://127.0.0.1:9' };
  const started = { runner: [process.execPath], program };
  await using gateway = await startGatewayProcess({ upstream }, { workers: 2 }, started);
  expect(await gateway.workers()).toHaveLength(2);
});

test('a reload holds in old workers of an upgrade, too, which serve open connections until they leave', async () => {
  const top = {
    listen: { port: 0, limits: { keepAliveTimeout: '100s' } },
    drain: { timeout: '100s' },
    control: { port: 0, ...TOKEN_HASHES },
  };
  await using scene = await openScene({ workers: 2, top });
  const { gateway } = scene;
  const agent = new Agent({ keepAlive: true, maxSockets: 1 });
  closing.push(() => agent.destroy());
  const ask = async () => {
    const sent = request(`${gateway.origin}${authors}`, { agent }).end();
    const [response]: [IncomingMessage] = (await once(sent, 'response')) as never;
    response.resume();
    await once(response, 'end');
    return { status: response.statusCode, reused: sent.reusedSocket };
  };
  expect(await ask()).toEqual({ status: 200, reused: false });
  process.kill(gateway.pid, 'SIGUSR2');
  const upgraded = 'upgrade: the new workers serve; the old ones drain';
  await until(() => gateway.logged.some(({ msg }) => msg === upgraded));
  await allowNobody(scene);
  expect(await reload(scene)).toBe(200);
  expect(await ask()).toEqual({ status: 401, reused: true });
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

test('SIGTERM: clients that leave in time notice nothing', async () => {
  await using scene = await openScene({ workers: 2, top: { drain: { delay: '100s', timeout: '20s' } } });
  const clients = startClients(scene, 6);
  await until(() => (clients.outcomes['200'] ?? 0) > 20);
  const drained = scene.gateway.drain();
  await until(async () => (await readiness(scene)).status === 'down');
  expect((await fetch(`${scene.gateway.control}/livez`)).status).toBe(200);
  expect(Object.keys(await clients.stop())).toEqual(['200']);
  // Another signal skips the rest of the delay.
  await scene.gateway.drain();
  await drained;
  expect(await scene.gateway.ended).toBe(0);
  expect(scene.gateway.logged.map(({ msg }) => msg)).toContain('stopped');
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
