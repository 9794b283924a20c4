import { randomBytes } from 'node:crypto';
import dns from 'node:dns';
import { writeFile } from 'node:fs/promises';
import { syncBuiltinESMExports } from 'node:module';
import { join } from 'node:path';
import { beforeEach, expect, test } from '@jest/globals';
import { stringify } from 'yaml';
import { startSubmissions, withSites } from '../doctor/doctor-scene.ts';
import { useFolders } from '../support/audit-log.ts';
import { closing } from '../support/closing.ts';
import { gateway, runProgram } from '../support/program.ts';

const makeFolder = useFolders();
let folder: string;
beforeEach(async () => {
  folder = await makeFolder();
});

/** A configuration with the simulator as `d`, and beside it what nobody answers for. */
async function configFile(more: Record<string, unknown> = {}): Promise<string> {
  const simulator = await startSubmissions();
  const { origin } = simulator.deployments.submissions;
  await writeFile(join(folder, 'ca.pem'), simulator.ca);
  const deployment = {
    baseUrl: origin,
    match: { host: 'd.internal' },
    tls: { caFile: 'ca.pem' },
    ...withSites('demo'),
  };
  const unreachable = { baseUrl: 'https://127.0.0.1:1', match: { host: 'e.internal' }, credential: 'd' };
  const file = join(folder, 'gateway.yaml');
  const config = {
    anonymous: true,
    credentials: { d: { username: { value: 'demo-user' }, password: { env: 'PASSWORD' } } },
    deployments: { d: deployment, e: unreachable },
    ...more,
  };
  // YAML has no undefined.
  await writeFile(file, stringify(JSON.parse(JSON.stringify(config))));
  return file;
}

const environment = { PASSWORD: 'demo-api-key' };

test('all well: exit status 0, and no colours where there is no terminal', async () => {
  const file = await configFile();
  const { status, stdout, stderr } = await gateway(
    ['doctor', '--config', file, '--deployment', 'd'],
    environment,
  );
  expect([status, stderr]).toEqual([0, '']);
  expect(stdout.replace(/127\.0\.0\.1:\d+|expires .* left/g, '…').split('\n')).toEqual([
    'd  https://…  HEAD /api/manuscripts/v2/submissions/full/contributors/authors/submissionids?site_name=demo',
    '  ok    egress        from 127.0.0.1, chosen by the system',
    '  ok    tls           TLSv1.3, issued by CN=Simulator CA, …',
    '  ok    challenge     realm "ExampleApiService", MD5, no qop, stale false',
    expect.stringMatching(/^ {2}ok {4}clock/),
    '  ok    credential d  accepted',
    '  ok    access demo   HTTP 400, not refused',
    '  ok    nonce d       accepted a second time, no nextnonce',
    '',
    'All is well.',
    '',
  ]);
});

test('colours are for who asks for them', async () => {
  const file = await configFile();
  const args = ['doctor', '--config', file, '--deployment', 'd'];
  const coloured = await runProgram(args, { ...environment, FORCE_COLOR: '1' });
  expect(coloured.stdout).toContain('  \u001b[32mok\u001b[39m    egress ');
  const plain = await runProgram(args, { ...environment, NO_COLOR: '1' });
  expect(plain.stdout).not.toContain('\u001b');
});

test('something wrong: exit status 1, and one deployment does not hide another', async () => {
  const file = await configFile();
  const { status, stdout, stderr } = await gateway(['doctor', '--config', file], environment);
  expect([status, stderr]).toEqual([1, '']);
  expect(stdout).toMatch(/^ {2}fail {2}connection /m);
  expect(stdout).toContain('[connection-refused]\n');
  expect(stdout).toMatch(/^ {2}ok {4}credential d /m);
  expect(stdout).toMatch(/\n1 failure\.\n$/);
});

test('--json is one document with the same content', async () => {
  const redis = { url: 'redis://127.0.0.1:1' };
  await writeFile(join(folder, 'audit.key'), randomBytes(32).toString('hex'), { mode: 0o600 });
  const file = await configFile({ redis, audit: { directory: folder, keyFile: 'audit.key' } });
  const { status, stdout } = await gateway(['doctor', '--config', file, '--json'], {
    ...environment,
    PASSWORD: 'mistyped',
  });
  expect(status).toBe(1);
  const report = JSON.parse(stdout);
  expect(report).toMatchObject({
    mark: 'fail',
    failures: 3,
    gateway: [
      { check: 'redis', problem: 'redis-unreachable' },
      { check: 'audit', mark: 'ok', saw: expect.stringContaining(folder) },
    ],
  });
  expect(report.deployments[0].findings.at(-1)).toEqual({
    check: 'credential',
    subject: 'd',
    mark: 'fail',
    problem: 'credential-refused',
    saw: expect.any(String),
    advice: expect.any(String),
  });
  expect(stdout).not.toContain('mistyped');
});

test('warnings alone: exit status 0', async () => {
  const simulator = await startSubmissions();
  const { origin } = simulator.deployments.submissions;
  await writeFile(join(folder, 'ca.pem'), simulator.ca);
  const file = join(folder, 'gateway.yaml');
  await writeFile(
    file,
    `anonymous: true
credentials: { d: { username: { value: demo-user }, password: { env: PASSWORD } } }
deployments: { d: { baseUrl: "${origin}", match: { pathPrefix: /none/ }, credential: d, tls: { caFile: ca.pem } } }
`,
  );
  const { status, stdout } = await gateway(['doctor', '--config', file], environment);
  expect(status).toBe(0);
  expect(stdout).toContain('[probe-not-served]');
  expect(stdout).toMatch(/\n1 warning\.\n$/);
});

test('a name that name servers do not answer for is looked up once at a time: each lookup takes a thread', async () => {
  const { lookup } = dns;
  const { lookup: promised } = dns.promises;
  closing.push(async () => {
    Object.assign(dns, { lookup });
    dns.promises.lookup = promised;
    syncBuiltinESMExports();
  });
  const asked: string[] = [];
  const silent = (name: string, ...rest: unknown[]): void => {
    if (name.endsWith('.test')) asked.push(name);
    else Reflect.apply(lookup, dns, [name, ...rest]);
  };
  const marks = Object.getOwnPropertyDescriptors(lookup);
  Object.assign(dns, { lookup: Object.defineProperties(silent, marks) });
  dns.promises.lookup = ((name: string) => {
    asked.push(name);
    return new Promise(() => undefined);
  }) as unknown as typeof promised;
  syncBuiltinESMExports();
  const elsewhere = (host: string) => ({
    baseUrl: 'https://upstream.test',
    match: { host },
    credential: 'd',
    egress: { localAddress: '203.0.113.7' },
  });
  const deployments = { e: elsewhere('e.internal'), f: elsewhere('f.internal') };
  const file = await configFile({ redis: { url: 'redis://redis.test:6379' }, deployments });
  const { stdout } = await gateway(['doctor', '--config', file], environment);
  expect(stdout).toContain('[redis-unreachable]');
  expect(stdout).toContain('[address-not-here]');
  // For Redis once by ioredis and once by doctor, whose options differ.
  expect(asked.filter((name) => name === 'redis.test').length).toBeLessThan(3);
  expect(asked.filter((name) => name === 'upstream.test')).toHaveLength(1);
});

test('a deployment that does not exist is wrong usage', async () => {
  const file = await configFile();
  expect(await gateway(['doctor', '--config', file, '--deployment', 'x'], environment)).toEqual({
    status: 2,
    stdout: '',
    stderr: 'Name a deployment of the configuration: d, e\n',
  });
});

test('a configuration that is wrong is exit status 2, and nothing is asked', async () => {
  const file = await configFile({ lisen: {} });
  const { status, stdout, stderr } = await gateway(['doctor', '--config', file], environment);
  expect([status, stdout]).toEqual([2, '']);
  expect(stderr).toMatch(/ lisen: .*\blisten$/m);
});
