import { chmod, chown, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { stringify } from 'yaml';
import { ConfigError } from '../../src/config/issues.ts';
import { readSetup } from '../../src/setup/setup.ts';
import { createTestAuthority } from '../support/issued-certificates.ts';
import { gateway } from '../support/program.ts';

const uid = process.geteuid?.() ?? 0;

/** Where the configuration names each file. */
const CERTIFICATES = {
  'gateway.pem': 'listen.tls.certFile',
  'clients.pem': 'listen.tls.clientCaFile',
  'upstream.pem': 'deployments.d.tls.caFile',
  'client.pem': 'deployments.d.tls.certFile',
  'proxy.pem': 'deployments.d.egress.proxy.caFile',
  'redis.pem': 'redis.tls.caFile',
};
const KEYS = { 'gateway.key': 'listen.tls.keyFile', 'client.key': 'deployments.d.tls.keyFile' };
const FILES = { ...CERTIFICATES, ...KEYS };

let folder: string;
let configFile: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'tls-files-'));
  configFile = join(folder, 'gateway.yaml');
  const authority = await createTestAuthority();
  const [own, client] = await Promise.all([authority.server(), authority.client()]);
  const contents = { 'gateway.pem': own.cert, 'gateway.key': own.key, 'client.pem': client.cert };
  for (const [name, content] of Object.entries({ ...contents, 'client.key': client.key })) {
    await writeFile(join(folder, name), content);
  }
  for (const name of ['clients.pem', 'upstream.pem', 'proxy.pem', 'redis.pem']) {
    await writeFile(join(folder, name), authority.ca);
  }
  for (const name of Object.keys(FILES)) await chmod(join(folder, name), name in KEYS ? 0o600 : 0o644);
  await writeFile(configFile, configWith('gateway.key'));
});
afterAll(() => rm(folder, { recursive: true }));

function configWith(keyFile: unknown): string {
  return stringify({
    listen: { port: 0, tls: { certFile: 'gateway.pem', keyFile, clientCaFile: 'clients.pem' } },
    control: { port: 0 },
    redis: { url: 'rediss://127.0.0.1:1', tls: { caFile: 'redis.pem' } },
    anonymous: true,
    credentials: { c: { username: { env: 'U' }, password: { env: 'P' } } },
    deployments: {
      d: {
        baseUrl: 'https://upstream.invalid',
        match: { pathPrefix: '/' },
        credential: 'c',
        tls: { caFile: 'upstream.pem', certFile: 'client.pem', keyFile: 'client.key' },
        egress: { proxy: { url: 'https://proxy.invalid:3129', caFile: 'proxy.pem' } },
      },
    },
  });
}

const environment = { U: 'me', P: 'hunter2' };

/** Issues of the configuration, without their places in the file. */
async function issuesAs(user = uid): Promise<string[]> {
  const setup = await readSetup(configFile, { environment, uid: user }).catch((error: unknown) => {
    if (error instanceof ConfigError) return error;
    throw error;
  });
  if (!(setup instanceof ConfigError)) return [];
  return setup.issues.map(({ path, message }) => `${path}: ${message.replace(`${folder}/`, '')}`);
}

/** Does `body` while the file has another mode. */
async function withMode<T>(name: string, mode: number, body: () => Promise<T>): Promise<T> {
  await chmod(join(folder, name), mode);
  try {
    return await body();
  } finally {
    await chmod(join(folder, name), name in KEYS ? 0o600 : 0o644);
  }
}

describe('the mode of a file of TLS', () => {
  test.each(Object.entries(CERTIFICATES))(
    '%s may be read by everyone, and written by nobody else',
    async (name, path) => {
      expect(await withMode(name, 0o444, () => issuesAs())).toEqual([]);
      for (const mode of [0o664, 0o646, 0o666]) {
        const message = `${path}: ${name} can be written by others: run chmod go-w on it`;
        expect(await withMode(name, mode, () => issuesAs())).toEqual([message]);
      }
    },
  );

  test.each(Object.entries(KEYS))(
    '%s may be read by its group alone, and written by nobody else',
    async (name, path) => {
      for (const mode of [0o400, 0o440, 0o640])
        expect(await withMode(name, mode, () => issuesAs())).toEqual([]);
      for (const mode of [0o644, 0o604]) {
        const message = `${path}: ${name} can be read by others: run chmod 600 on it, or write { file: NAME, readableByOthers: true }`;
        expect(await withMode(name, mode, () => issuesAs())).toEqual([message]);
      }
      for (const mode of [0o620, 0o602, 0o666]) {
        const message = `${path}: ${name} can be written by others: run chmod 600 on it`;
        expect(await withMode(name, mode, () => issuesAs())).toEqual([message]);
      }
    },
  );

  test('a key that an orchestrator made readable is taken where the configuration says so', async () => {
    await writeFile(configFile, configWith({ file: 'gateway.key', readableByOthers: true }));
    try {
      expect(await withMode('gateway.key', 0o444, () => issuesAs())).toEqual([]);
      expect(await withMode('gateway.key', 0o646, () => issuesAs())).toEqual([
        'listen.tls.keyFile: gateway.key can be written by others: run chmod go-w on it',
      ]);
    } finally {
      await writeFile(configFile, configWith('gateway.key'));
    }
  });
});

test.each(Object.entries(FILES))('%s of another user is refused', async (name, path) => {
  // Root is trusted by everyone, so root makes the file somebody else's.
  const owner = uid === 0 ? 65_534 : uid;
  const file = join(folder, name);
  const group = process.getgid?.() ?? 0;
  await chown(file, owner, group);
  try {
    expect(await issuesAs(owner)).toEqual([]);
    expect(await issuesAs(uid === 0 ? uid : uid + 1)).toContain(
      `${path}: ${name} belongs to another user (uid ${owner}), who could exchange it: run this as the user of the service, or make that user or root its owner`,
    );
  } finally {
    await chown(file, uid, group);
  }
});

test.each(['check', 'serve'])('%s ends with status 2 and one sentence for each file', async (command) => {
  const { status, stdout, stderr } = await withMode('gateway.key', 0o644, () =>
    withMode('clients.pem', 0o666, () => gateway([command, '--config', configFile], environment)),
  );
  expect(status).toBe(2);
  const printed = `${stdout}${stderr}`.trim().split('\n');
  const lines = command === 'serve' ? printed.map((line) => String(JSON.parse(line).msg)) : printed;
  expect(
    lines.map((line) => line.replace(/^.*?gateway\.yaml:\d+:\d+ /, '').replace(`${folder}/`, '')),
  ).toEqual([
    'listen.tls.keyFile: gateway.key can be read by others: run chmod 600 on it, or write { file: NAME, readableByOthers: true }',
    'listen.tls.clientCaFile: clients.pem can be written by others: run chmod go-w on it',
  ]);
});
