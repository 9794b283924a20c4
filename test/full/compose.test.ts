import { createHash } from 'node:crypto';
import { readFile, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, test } from '@jest/globals';
import { parse } from 'yaml';
import { loadConfig, loadSettings } from '../../src/config/load.ts';
import { simulatorSettings } from '../../src/simulator/settings.ts';
import { runCommand } from '../support/program.ts';
import { repository } from '../support/repository.ts';

const deploy = join(repository, 'deploy');
const read = (name: string): Promise<string> => readFile(join(repository, name), 'utf8');

const { services, volumes } = parse(await read('docker-compose.yml'));
const gateway = await loadConfig(join(deploy, 'compose/gateway.yaml'));
const { settings: simulator } = await loadSettings(join(deploy, 'compose/simulator.yaml'), simulatorSettings);
const mountsOf = (name: string): string[][] =>
  (services[name].volumes ?? []).map((mount: string) => mount.split(':'));

test('the file is what Compose understands', async () => {
  const file = join(repository, 'docker-compose.yml');
  expect(await runCommand('docker-compose', ['-f', file, 'config', '--quiet'])).toEqual({
    status: 0,
    printed: '',
  });
});

test('mounts files that exist and volumes that it declares', async () => {
  const sources = Object.keys(services)
    .flatMap(mountsOf)
    .map(([source = '']) => source);
  const files = sources.filter((source) => source.startsWith('./'));
  expect(files.length).toBeGreaterThan(5);
  for (const file of files) await stat(join(repository, file));
  expect(sources.filter((source) => !source.startsWith('./')).sort()).toEqual(
    [...Object.keys(volumes), 'simulator'].sort(),
  );
});

test('publishes on loopback only, and the ports that the services listen on', () => {
  const published: string[] = Object.values<{ ports?: string[] }>(services).flatMap(
    ({ ports = [] }) => ports,
  );
  expect(published.filter((port) => !port.startsWith('127.0.0.1:'))).toEqual([]);
  expect(services.gateway.ports).toEqual(
    [...gateway.listen, gateway.control].map(({ port }) => `127.0.0.1:${port}:${port}`),
  );
});

test('the gateway finds simulator, authority, Redis and the variables of its credentials', () => {
  const { deployments } = simulator;
  for (const [name, { baseUrl, tls }] of Object.entries(gateway.deployments)) {
    expect(baseUrl).toEqual([`https://${simulator.serverNames[0]}:${deployments[name]?.port}`]);
    expect((simulator.serverNames[0] as string) in services).toBe(true);
    const [, readAt = ''] = mountsOf('gateway').find(([source]) => source === 'simulator') ?? [];
    const [, writtenAt = ''] = mountsOf('simulator').find(([source]) => source === 'simulator') ?? [];
    expect(tls.caFile?.replace(readAt, '')).toBe(simulator.caFile?.replace(writtenAt, ''));
  }
  expect(gateway.redis?.servers).toMatchObject({ address: { host: 'redis', port: 6379 } });
  const { username, password } = gateway.credentials['demo'] ?? {};
  const named = [username, password].map((source) => (source && 'env' in source ? source.env : ''));
  const account = simulator.deployments['submissions']?.accounts[0];
  expect(named.map((name) => services.gateway.environment[name])).toEqual([
    account?.username,
    account?.password,
  ]);
});

test('Prometheus sends the token that the control plane expects', async () => {
  const token = (await read('deploy/compose/control-token')).trim();
  expect(createHash('sha256').update(token).digest('hex')).toBe(gateway.control.tokenSha256);
  const {
    scrape_configs: [job],
  } = parse(await read('deploy/prometheus/prometheus.yml'));
  expect(job.static_configs).toEqual([{ targets: [`gateway:${gateway.control.port}`] }]);
  const mounted = mountsOf('prometheus').map(([source, target]) => [source, target]);
  expect(mounted).toContainEqual([
    './deploy/compose/control-token',
    `/etc/prometheus/${job.authorization.credentials_file}`,
  ]);
});

test('builds on the image of the Dockerfile, or on the one that the environment names', async () => {
  const [, base] = /^ARG NODE_IMAGE=(\S+)$/m.exec(await read('Dockerfile')) ?? [];
  const file = join(repository, 'docker-compose.yml');
  for (const [named, wanted] of [
    ['', base],
    ['node@sha256:0', 'node@sha256:0'],
  ]) {
    const { status, printed } = await runCommand('env', [
      `NODE_IMAGE=${named}`,
      ...['docker-compose', '-f', file, 'config'],
    ]);
    expect(status).toBe(0);
    const built = parse(printed).services;
    for (const name of ['gateway', 'simulator']) {
      expect(built[name].build.args).toEqual({ NODE_IMAGE: wanted });
    }
  }
});

test('every service gives up its privileges, and images are pinned to a version', () => {
  for (const service of Object.values<Record<string, unknown>>(services)) {
    expect(service).toMatchObject({ cap_drop: ['ALL'], security_opt: ['no-new-privileges:true'] });
    if (service['build'] === undefined) expect(service['image']).toMatch(/:v?\d+\.\d+\.\d+/);
  }
});
