import { execFileSync } from 'node:child_process';
import { chmod, mkdir, mkdtemp, readdir, readFile, rm, truncate, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { Network } from '../../src/base/network.ts';
import { Secret } from '../../src/base/secret.ts';
import { knownKeys } from '../../src/config/cross-check.ts';
import { credentialsOf } from '../../src/config/deployment.ts';
import { loadConfig, loadLocated, loadSettings } from '../../src/config/load.ts';
import { configSchema } from '../../src/config/section-issues.ts';
import { simulatorSettings } from '../../src/simulator/settings.ts';
import { parseConfig } from '../support/parsed-config.ts';
import { served } from './issue-lines.ts';
import { CLIENTS, CREDENTIALS, DEPLOYMENTS, withMore } from './texts.ts';

const LISTEN_DEFAULTS = {
  proxyProtocol: [],
  socketMode: '0660',
  trustedProxies: [],
  forwardedHeader: 'X-Forwarded-For',
  limits: {
    headerSize: 16_384,
    headersTimeout: 10_000,
    keepAliveTimeout: 5_000,
    connections: 10_000,
    connectionsPerAddress: 1_000,
    bodyMemory: 67_108_864,
  },
};

const PIN = `${'A'.repeat(43)}=`;

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'config-'));
});
afterAll(() => rm(folder, { recursive: true }));

describe('a valid configuration', () => {
  test('has every default', () => {
    const config = parseConfig(`${CREDENTIALS}\n${DEPLOYMENTS}\n${CLIENTS}`, 'c.yaml');
    expect(config).toEqual({
      listen: [{ address: '127.0.0.1', port: 8080, ...LISTEN_DEFAULTS }],
      drain: { delay: 5_000, timeout: 30_000 },
      workers: 1,
      readiness: 'gateway',
      control: {
        address: '127.0.0.1',
        port: 8081,
        socketMode: '0660',
        actions: false,
        fourEyes: false,
        session: { idle: 1_800_000, life: 43_200_000, max: 1_000 },
      },
      clients: [{ id: 'c', identify: { addresses: [expect.any(Network)] }, allow: [] }],
      log: { level: 'info', requests: false },
      anonymous: false,
      credentials: { a: { username: { env: 'U' }, password: { env: 'P' } } },
      deployments: {
        d: {
          baseUrl: ['https://a.example'],
          match: { pathPrefix: '/a/' },
          credential: 'a',
          injectSite: false,
          forwardTrace: false,
          passOriginFields: [],
          operations: {},
          unlistedOperations: 'allow',
          restricted: { fields: [], bodyTypes: [], parameterNames: [] },
          outcomes: [],
          digest: {
            algorithms: ['SHA-512-256', 'SHA-256', 'MD5'],
            noncePolicy: 'auto',
            renewAhead: true,
            attemptsWhenRefused: 2,
          },
          tls: { minVersion: 'TLSv1.2', allowPlaintext: false },
          egress: { failback: 60_000 },
          connections: 64,
          timeouts: { connect: 5000, response: 60_000, idle: 30_000, total: 120_000 },
          retry: { attempts: 1, budget: 0.1 },
          circuit: { failures: 0.5, minimum: 20, window: 10_000, open: 5_000, statuses: [] },
          health: { interval: 10_000, failback: 30_000 },
          body: { replayUpTo: 1_048_576, max: 104_857_600, minRate: 240 },
        },
      },
    });
  });

  test('keeps what is written', () => {
    const text = [
      'listen: { address: "::1", port: 0 }',
      `control: { address: 0.0.0.0, port: 9, tokenSha256: ${'AB'.repeat(32)} }`,
      'clients:',
      '  - id: reporting',
      '    identify: { addresses: [10.0.0.1] }',
      '    allow:',
      '      - { deployment: d, sites: [x], operations: [o], methods: [GET], parameters: { ids: { max: 25, values: ["1"] } } }',
      '      - { deployment: d }',
      '  - { id: nobody, identify: { addresses: [10.0.0.2] } }',
      'anonymous: true',
      'drain: { delay: 0s, timeout: 1m }',
      'log: { level: warn, requests: true }',
      'credentials: { a: { username: { value: me }, password: { file: sub/key } } }',
      'deployments:',
      '  d:',
      '    baseUrl: ["https://Submissions.Example.org:8443", https://b.example]',
      '    match: { pathPrefix: "/%61/", host: Gateway.Internal }',
      '    siteParameter: site_name',
      '    sites: { x: { credential: a } }',
      '    injectSite: true',
      '    forwardTrace: true',
      '    operations: { o: { method: GET, path: "/a/{id}", parameters: { s: text? } }, p: { method: POST, path: /b/ } }',
      '    unlistedOperations: deny',
      '    restricted: { fields: [SOAPAction], bodyTypes: [Text/Plain], parameterNames: ["page[size]", a.b, $top] }',
      '    digest: { algorithms: [MD5] }',
      '    tls:',
      '      caFile: /etc/ca.pem',
      '      minVersion: TLSv1.3',
      `      pinSha256: ["${PIN}"]`,
      '      serverName: Other.Example',
      '      certFile: cert.pem',
      '      keyFile: key.pem',
      '      keyPassphrase: { env: KEY }',
      '    egress:',
      '      localAddress: 203.0.113.7',
      '      failback: 5m',
      '      proxy: { url: "https://p:3129", credential: a, allowPlaintext: true, caFile: p.pem }',
      '    connections: 1',
      '    timeouts: { connect: 500ms, response: 1m, idle: 1h, total: 1d }',
      '    retry: { attempts: 0, budget: 100% }',
      '    circuit: { failures: 1%, minimum: 1, window: 1m, open: 1ms, statuses: [503] }',
      '    health: { interval: off, path: /status, failback: 1s }',
      '    body: { replayUpTo: 0, max: 512B, minRate: off }',
      '    outcomes: [{ name: o, status: 500, bodyContains: x, pause: 5s, scope: credential }]',
    ].join('\n');
    expect(parseConfig(text, '/srv/gateway/c.yaml')).toEqual({
      listen: [{ address: '::1', port: 0, ...LISTEN_DEFAULTS }],
      drain: { delay: 0, timeout: 60_000 },
      workers: 1,
      readiness: 'gateway',
      control: {
        address: '0.0.0.0',
        port: 9,
        socketMode: '0660',
        tokenSha256: 'ab'.repeat(32),
        actions: false,
        fourEyes: false,
        session: { idle: 1_800_000, life: 43_200_000, max: 1_000 },
      },
      clients: [
        {
          id: 'reporting',
          identify: { addresses: [expect.any(Network)] },
          allow: [
            {
              deployment: 'd',
              sites: new Set(['x']),
              operations: new Set(['o']),
              methods: new Set(['GET']),
              parameters: [{ name: 'ids', max: 25, values: new Set(['1']) }],
            },
            { deployment: 'd', sites: '*', operations: '*', methods: '*', parameters: [] },
          ],
        },
        { id: 'nobody', identify: { addresses: [expect.any(Network)] }, allow: [] },
      ],
      log: { level: 'warn', requests: true },
      anonymous: true,
      credentials: {
        a: { username: { value: expect.any(Secret) }, password: { file: '/srv/gateway/sub/key' } },
      },
      deployments: {
        d: {
          baseUrl: ['https://Submissions.Example.org:8443', 'https://b.example'],
          match: { pathPrefix: '/%61/', host: 'gateway.internal' },
          siteParameter: 'site_name',
          sites: { x: { credential: 'a' } },
          injectSite: true,
          forwardTrace: true,
          passOriginFields: [],
          operations: {
            o: { method: 'GET', path: '/a/{id}', parameters: { s: 'text?' } },
            p: { method: 'POST', path: '/b/', parameters: {} },
          },
          unlistedOperations: 'deny',
          restricted: {
            fields: ['SOAPAction'],
            bodyTypes: ['Text/Plain'],
            parameterNames: ['page[size]', 'a.b', '$top'],
          },
          digest: { algorithms: ['MD5'], noncePolicy: 'auto', renewAhead: true, attemptsWhenRefused: 2 },
          tls: {
            caFile: '/etc/ca.pem',
            minVersion: 'TLSv1.3',
            pinSha256: [PIN],
            serverName: 'other.example',
            certFile: '/srv/gateway/cert.pem',
            keyFile: { file: '/srv/gateway/key.pem', readableByOthers: false },
            keyPassphrase: { env: 'KEY' },
            allowPlaintext: false,
          },
          egress: {
            localAddress: ['203.0.113.7'],
            failback: 300_000,
            proxy: {
              url: 'https://p:3129',
              credential: 'a',
              allowPlaintext: true,
              caFile: '/srv/gateway/p.pem',
            },
          },
          connections: 1,
          timeouts: { connect: 500, response: 60_000, idle: 3_600_000, total: 86_400_000 },
          retry: { attempts: 0, budget: 1 },
          circuit: { failures: 0.01, minimum: 1, window: 60_000, open: 1, statuses: [503] },
          health: { interval: undefined, path: '/status', failback: 1_000 },
          body: { replayUpTo: 0, max: 512, minRate: 0 },
          outcomes: [{ name: 'o', status: [500], bodyContains: 'x', pause: 5000, scope: 'credential' }],
        },
      },
    });
  });

  test.each([
    'https://a.example',
    'https://10.0.0.1:9443',
    '"https://[::1]:8443"',
    '"https://[2001:db8::1]"',
  ])('keeps the origin %s', (baseUrl) => {
    const { deployments } = parseConfig(served(withMore()).replace('https://a.example', baseUrl), 'c.yaml');
    expect(deployments['d']?.baseUrl).toEqual([baseUrl.replaceAll('"', '')]);
  });

  test('may repeat parts with anchors', () => {
    const text = withMore('timeouts: &t { idle: 1s }', 'body: { max: &m 2MiB, replayUpTo: *m }');
    const { deployments } = parseConfig(
      `${text}\n  e: { baseUrl: "https://b.example", match: { host: b }, credential: a, timeouts: *t }\n${CLIENTS}`,
      'c.yaml',
    );
    expect(deployments['e']?.timeouts).toEqual(deployments['d']?.timeouts);
    expect(deployments['d']?.body).toEqual({ max: 2_097_152, replayUpTo: 2_097_152, minRate: 240 });
  });

  test('has no entries of the prototype of objects', () => {
    const text = withMore().replace('credential: a', 'siteParameter: s\n    sites: { x: { credential: a } }');
    const config = parseConfig(served(text), 'c.yaml');
    const [deployment] = Object.values(config.deployments);
    expect([
      config.deployments['constructor'],
      config.credentials['toString'],
      deployment?.sites?.['valueOf'],
    ]).toEqual([undefined, undefined, undefined]);
  });

  test.each([
    ['credential: a', ['a']],
    [
      'siteParameter: s\n    sites: { x: { credential: b }, y: { credential: a }, z: { credential: b } }',
      ['b', 'a'],
    ],
  ])('names the credentials of a deployment, each once: %j', (lines, names) => {
    const text = served(withMore()).replace('credential: a', lines);
    const { deployments } = parseConfig(
      text.replace(
        /^credentials.*$/m,
        'credentials: { a: &c { username: { env: U }, password: { env: P } }, b: *c }',
      ),
      'c.yaml',
    );
    expect(Object.values(deployments).map(credentialsOf)).toEqual([names]);
  });
});

describe('the files of config/', () => {
  const names = readdir('config').then((all) =>
    all.filter((name) => name.endsWith('.yaml') && name !== 'simulator.yaml').sort(),
  );

  test('are valid', async () => {
    expect(await names).toEqual(expect.arrayContaining(['example.yaml', 'minimal.yaml']));
    for (const name of await names) {
      const config = await loadConfig(join('config', name));
      expect(Object.keys(config.deployments).length).toBeGreaterThan(0);
    }
  });

  test('simulator.yaml is valid', async () => {
    const { deployments } = (await loadSettings('config/simulator.yaml', simulatorSettings)).settings;
    expect(Object.keys(deployments)).toEqual(['submissions', 'abstracts']);
  });

  test.each([
    ['', '1:1 (file): is empty: give a mapping of keys to values'],
    ['host: a', '1:1 deployments: is missing: give a mapping of keys to values'],
    ['deployments: { a: }', '1:16 deployments.a: is empty: give a mapping of keys to values'],
    [
      'deployments: { a: { family: a } }',
      '1:16 deployments.a.kind: is missing: give submissions or abstracts',
    ],
    [
      'deployments: { a: { kind: abstracts } }',
      '1:16 deployments.a.family: is missing: give one plain path segment',
    ],
    [
      'deployments: { a: { kind: abstracts, family: a/b } }',
      '1:46 deployments.a.family: must be one plain path segment',
    ],
    [
      'deployments: { a b: { kind: abstracts, family: a } }',
      '1:16 deployments["a b"]: is not a name that can be used here: letters, digits and ._~- only',
    ],
    [
      'deployments: { a: { kind: abstracts, family: a, qop: } }',
      '1:49 deployments.a.qop: is empty: give one of "none"|"auth"|"auth-int"|"both"',
    ],
  ])('settings of the simulator that are wrong are named: %s', async (text, line) => {
    const file = join(folder, 'simulator.yaml');
    await writeFile(file, text);
    await expect(loadSettings(file, simulatorSettings)).rejects.toThrow(new Error(`${file}:${line}`));
  });

  test('example.yaml shows every key', async () => {
    const text = await readFile('config/example.yaml', 'utf8');
    const keys = keysUnder([]);
    expect(keys).toEqual(expect.arrayContaining(['tokenSha256', 'replayUpTo', 'caFile', 'env', 'max']));
    expect(keys.filter((key) => !new RegExp(`(^|[\\s{])${key}:`, 'm').test(text))).toEqual([]);
  });

  const schema = configSchema();

  function keysUnder(path: readonly (string | number)[]): string[] {
    const last = String(path.at(-1));
    if (['clients', 'allow', 'issuers'].includes(last)) return keysUnder([...path, 0]);
    const named = ['credentials', 'deployments', 'sites', 'operations', 'parameters'].includes(last);
    const keys = named ? ['NAME'] : knownKeys(schema, path);
    const below = keys.flatMap((key) => keysUnder([...path, key]));
    return named ? below : [...keys, ...below];
  }
});

describe('a file', () => {
  test('resolves file names against its folder', async () => {
    const file = join(folder, 'right.yaml');
    await writeFile(file, served(withMore('tls: { caFile: sub/../ca.pem }')));
    expect((await loadConfig(file)).deployments['d']?.tls.caFile).toBe(resolve(folder, 'ca.pem'));
  });

  test('that does not exist is an issue', async () => {
    const file = join(folder, 'none.yaml');
    expect(await failure(file)).toBe(
      `ConfigError: ${file}:1:1 (file): there is no such file: name an existing one with --config`,
    );
  });

  test('in a folder that does not exist is an issue of the folder', async () => {
    const file = join(folder, 'none', 'gateway.yaml');
    expect(await failure(file)).toBe(
      `ConfigError: ${file}:1:1 (file): the folder ${join(folder, 'none')} does not exist: name an existing file with --config`,
    );
    await writeFile(join(folder, 'a-file'), '');
    expect(await failure(join(folder, 'a-file', 'c.yaml'))).toContain('a part of its name is a file');
  });

  test('behind a folder that this user may not search is an issue of that folder', async () => {
    const closed = join(folder, 'closed');
    const file = join(closed, 'gateway.yaml');
    await mkdir(closed);
    await writeFile(file, '', { mode: 0o644 });
    await chmod(folder, 0o755);
    await chmod(closed, 0o600);
    const script = `
      import { loadConfig } from '${new URL('../../src/config/load.ts', import.meta.url)}';
      // Permissions do not stop root.
      if (process.getuid() === 0) process.setuid(65534);
      process.stdout.write(await loadConfig('${file}').then(() => 'read', (error) => error.message));
    `;
    const message = execFileSync(process.execPath, ['--input-type=module', '-e', script], {
      encoding: 'utf8',
    });
    await chmod(closed, 0o700);
    expect(message).toContain(`is behind the folder ${closed}, which this user may not search: give`);
  });

  test('that is a folder is an issue, whoever can write to it', async () => {
    const message = `${folder}:1:1 (file): is a folder: name the file in it with --config`;
    expect(await failure(folder)).toBe(`ConfigError: ${message}`);
    await chmod(folder, 0o777);
    await expect(loadLocated(folder, {})).rejects.toThrow(message);
  });

  test('that is too large, or has no end, is an issue', async () => {
    const large = join(folder, 'large.yaml');
    await writeFile(large, '');
    await truncate(large, 2 ** 40);
    for (const file of [large, '/dev/zero']) {
      expect(await failure(file)).toBe(
        `ConfigError: ${file}:1:1 (file): is larger than 16777216 bytes: name the right file`,
      );
    }
  });

  test('that is not UTF-8 is an issue', async () => {
    const file = join(folder, 'latin1.yaml');
    await writeFile(file, Buffer.from('# m\u00fcnchen', 'latin1'));
    expect(await failure(file)).toBe(`ConfigError: ${file}:1:1 (file): is not UTF-8 text: save it as UTF-8`);
  });

  const failure = (file: string) => loadConfig(file).then(() => 'none', String);
});
