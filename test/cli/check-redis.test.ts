import { chmod, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { beforeEach, expect, test } from '@jest/globals';
import { Secret } from '../../src/base/secret.ts';
import { readSetup } from '../../src/setup/setup.ts';
import { createCertificates } from '../../src/simulator/certificates.ts';
import { served } from '../config/issue-lines.ts';
import { CREDENTIALS, DEPLOYMENTS } from '../config/texts.ts';
import { useFolders } from '../support/audit-log.ts';
import { gateway } from '../support/program.ts';

const environment = { U: 'me', P: 'hunter2', REDIS_PASSWORD: 'hunter3' };

const makeFolder = useFolders();
let folder: string;
beforeEach(async () => {
  folder = await makeFolder();
});

async function configFile(redis: string): Promise<string> {
  const file = join(folder, 'gateway.yaml');
  await writeFile(file, served(`${CREDENTIALS}\n${DEPLOYMENTS}\nredis: ${redis}\n`));
  return file;
}

test('the password and the authority of Redis are read', async () => {
  const { ca } = await createCertificates();
  await writeFile(join(folder, 'ca.pem'), ca);
  const file = await configFile(
    '{ url: "rediss://redis.internal", username: u, password: { env: REDIS_PASSWORD }, tls: { caFile: ca.pem } }',
  );
  const { redis } = await readSetup(file, { environment });
  expect(redis).toEqual({
    servers: { kind: 'single', address: { host: 'redis.internal', port: 6379 }, database: 0 },
    username: 'u',
    password: expect.any(Secret),
    keyPrefix: 'digest-gateway',
    timeoutMs: 100,
    keys: [],
    tls: { ca },
  });
  expect(redis?.password?.reveal()).toBe('hunter3');
});

test('Sentinels have a password of their own', async () => {
  await writeFile(join(folder, 'sentinel'), 'hunter4\n', { mode: 0o600 });
  const file = await configFile(
    '{ sentinels: ["a:1"], name: m, sentinelUsername: s, sentinelPassword: { file: sentinel } }',
  );
  const { redis } = await readSetup(file, { environment });
  expect([redis?.sentinelUsername, redis?.sentinelPassword?.reveal()]).toEqual(['s', 'hunter4']);
  expect([redis?.username, redis?.password]).toEqual([undefined, undefined]);
});

test('TLS without an authority of its own trusts those of Node.js', async () => {
  const { redis } = await readSetup(await configFile('{ url: "rediss://a" }'), { environment });
  expect(redis?.tls).toEqual({ ca: undefined });
});

test('without TLS there is none, and without redis nothing', async () => {
  const { redis } = await readSetup(await configFile('{ url: "redis://a" }'), { environment });
  expect(redis).toMatchObject({ username: undefined, password: undefined, tls: undefined });
  const file = join(folder, 'without.yaml');
  await writeFile(file, served(`${CREDENTIALS}\n${DEPLOYMENTS}\n`));
  expect((await readSetup(file, { environment })).redis).toBeUndefined();
});

test('every secret and file of Redis that is missing is a line with its place', async () => {
  const file = await configFile(
    '{ sentinels: ["a:1"], name: m, password: { env: NOT_SET }, sentinelPassword: { file: none }, tls: { caFile: none.pem } }',
  );
  expect(await gateway(['check', '--config', file], environment)).toEqual({
    status: 2,
    stdout: [
      `${file}:3:49 redis.password: the environment variable NOT_SET is not set: set it for this process`,
      `${file}:3:85 redis.sentinelPassword: ${folder}/none does not exist: create it, or name another file`,
      `${file}:3:116 redis.tls.caFile: ${folder}/none.pem does not exist: create it, or name another file`,
      '',
    ].join('\n'),
    stderr: '',
  });
});

test('a password of Redis in the configuration is ok with a warning that does not quote it', async () => {
  const file = await configFile('{ url: "redis://a", password: { value: hunter3 } }');
  expect(await gateway(['check', '--config', file], environment)).toEqual({
    status: 0,
    stdout: `${file}:3:38 redis.password: is written in the configuration itself: use env, file or sealed (warning)\n${file}: ok — 1 deployment, 1 credential\n`,
    stderr: '',
  });
});

test('the keys that sign values are read, up to three of them', async () => {
  const keys = ['a', 'b', 'c'].map((digit) => digit.repeat(64));
  await writeFile(join(folder, 'keys'), `${keys.join('\n')}\n`, { mode: 0o600 });
  const file = await configFile('{ url: "redis://a", keyFile: keys }');
  const { redis } = await readSetup(file, { environment });
  expect(new Set(redis?.keys.map(({ id }) => id)).size).toBe(3);
  expect(JSON.stringify(redis?.keys)).not.toContain('aaaa');
});

test.each([
  ['that others can read', 'a'.repeat(64), 0o644, 'can be read by others: run chmod 600 on it'],
  ['that others can write', 'a'.repeat(64), 0o620, 'can be written by others: run chmod 600 on it'],
  [
    'with a short key',
    'abc',
    0o600,
    'does not hold 1 to 3 keys of 64 hex digits, one a line: correct it, or move it away and make one with',
  ],
  [
    'with four keys',
    Array(4).fill('a'.repeat(64)).join('\n'),
    0o600,
    'does not hold 1 to 3 keys of 64 hex digits, one a line: correct it, or move it away and make one with',
  ],
])('a file of keys %s is refused', async (_, content, mode, problem) => {
  await writeFile(join(folder, 'keys'), content);
  await chmod(join(folder, 'keys'), mode);
  const file = await configFile('{ url: "redis://a", keyFile: keys }');
  const { status, stdout } = await gateway(['check', '--config', file], environment);
  expect([status, stdout]).toEqual([2, expect.stringContaining(`redis.keyFile: ${folder}/keys ${problem}`)]);
});
