import { hash } from 'node:crypto';
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { parse } from 'yaml';
import { CREDENTIALS, DEPLOYMENTS } from '../config/texts.ts';
import { AUDIT_KEY, openTestAudit, recordAccess, recordsIn } from '../support/audit-log.ts';
import { parseConfig } from '../support/parsed-config.ts';
import { gateway } from '../support/program.ts';

const KEY = /dgk_[\da-f]{40}/g;

describe('client add', () => {
  test('prints a key once, and lines that the configuration takes as they are', async () => {
    const args = ['--address', '10.1.0.0/16', '--address', '2001:db8::1', '--key'];
    const { status, stdout, stderr } = await gateway(['client', 'add', 'reporting', ...args]);
    expect([status, stderr]).toEqual([0, '']);
    const keys = stdout.match(KEY) ?? [];
    expect(keys).toHaveLength(1);
    const lines = stdout.slice(stdout.indexOf('clients:'));
    const { clients } = parseConfig(`${CREDENTIALS}\n${DEPLOYMENTS}\n${lines}`, 'c.yaml');
    expect(JSON.parse(JSON.stringify(clients))).toEqual([
      {
        id: 'reporting',
        identify: {
          addresses: ['10.1.0.0/16', '2001:db8::1/128'],
          apiKeySha256: [hash('sha256', keys[0] ?? '')],
        },
        allow: [],
      },
    ]);
  });

  test('makes no key for a client that its address tells', async () => {
    const { status, stdout } = await gateway(['client', 'add', 'batch', '--address', '10.1.0.0/16']);
    expect([status, stdout.match(KEY)]).toEqual([0, null]);
    const lines = stdout.slice(stdout.indexOf('clients:'));
    const { clients } = parseConfig(`${CREDENTIALS}\n${DEPLOYMENTS}\n${lines}`, 'c.yaml');
    expect(JSON.parse(JSON.stringify(clients))).toEqual([
      { id: 'batch', identify: { addresses: ['10.1.0.0/16'] }, allow: [] },
    ]);
    const json = await gateway(['client', 'add', 'batch', '--address', '::1', '--json']);
    expect(JSON.parse(json.stdout)).toEqual({
      client: { id: 'batch', identify: { addresses: ['::1/128'] } },
    });
  });

  test.each([
    ['9999-12-31', '9999-12-31'],
    ['9999-12-31T12:00:00+02:00', '9999-12-31T10:00:00Z'],
  ])('prints lines of a key with an end: %s', async (expires, written) => {
    const args = ['--address', '10.1.0.0/16', '--expires', expires];
    const { stdout } = await gateway(['client', 'add', 'partner', ...args]);
    const [key = ''] = stdout.match(KEY) ?? [];
    const lines = stdout.slice(stdout.indexOf('clients:'));
    expect(parse(lines).clients[0].identify.apiKeys).toEqual([
      { sha256: hash('sha256', key), expires: written },
    ]);
    const { clients } = parseConfig(`${CREDENTIALS}\n${DEPLOYMENTS}\n${lines}`, 'c.yaml');
    expect(clients[0]?.identify.apiKeys?.[0]?.expires).toBe(Date.parse(expires));
  });

  test('makes another key each time', async () => {
    const [first, second] = await Promise.all([
      gateway(['client', 'add', 'a', '--json']),
      gateway(['client', 'add', 'a', '--json']),
    ]);
    const added = [first, second].map(({ stdout }) => JSON.parse(stdout));
    expect(added[0].apiKey).not.toBe(added[1].apiKey);
    for (const { apiKey, client } of added) {
      expect(client).toEqual({ id: 'a', identify: { apiKeySha256: hash('sha256', apiKey) } });
    }
  });

  test('is quoted right in YAML', async () => {
    const { stdout } = await gateway(['client', 'add', '0123', '--address', '::1']);
    const { clients } = parse(stdout.slice(stdout.indexOf('clients:')));
    expect(clients[0]).toMatchObject({ id: '0123', identify: { addresses: ['::1/128'] } });
  });

  test('has lines that check warns of, because a client without rules may do nothing', async () => {
    const { stdout } = await gateway(['client', 'add', 'reporting']);
    const text = `${CREDENTIALS}\n${DEPLOYMENTS}\n${stdout.slice(stdout.indexOf('clients:'))}`;
    const ended = await gateway(['check', '--config', '-', '--no-secrets'], {}, text);
    expect([ended.status, ended.stdout]).toEqual([
      0,
      'stdin:7:12 clients[0].allow: has no rule, so every request of reporting is refused: add one, such as { deployment: d } (warning)\nstdin: ok — 1 deployment, 1 credential\n',
    ]);
  });

  test.each([
    [['client', 'add'], "error: missing required argument 'name'"],
    [['client', 'add', 'a:b'], 'Write letters, digits, "-", "_" and "." only'],
    [['client', 'add', 'anonymous'], '"anonymous" is taken'],
    [['client', 'add', 'a', '--address', '10.1.2.3/16'], 'It has bits after its prefix: write 10.1.0.0/16.'],
    [['client', 'add', 'a', '--address', 'ten'], 'It is neither an address nor a network'],
    [
      ['client', 'add', 'a', '--expires', 'soon'],
      'It is not a date or time: write a date, such as 2027-03-01',
    ],
    [['client', 'add', 'a', '--expires', '2026-01-31'], 'It is over: name a time to come.'],
  ])('%j is wrong usage', async (args, message) => {
    const { status, stdout, stderr } = await gateway(args);
    expect([status, stdout]).toEqual([2, '']);
    expect(stderr).toContain(message);
  });
});

describe('a configuration with clients', () => {
  const [OLD, OLDER] = ['ab'.repeat(32), 'cd'.repeat(32)];
  let folder: string;
  let file: string;
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'client-'));
    file = join(folder, 'gateway.yaml');
    await writeFile(
      file,
      `${CREDENTIALS}
${DEPLOYMENTS}
clients:
  - id: one
    identify: { addresses: [10.1.0.0/16, "::1"], apiKeySha256: ${OLD} }
    allow: [{ deployment: d, methods: [GET, POST], parameters: { ids: { max: 5 } } }, { deployment: d, operations: ["*"] }]
  - id: two
    identify:
      apiKeySha256: [${OLDER}, "${'ef'.repeat(32)}"]
  - { id: three, identify: { jwt: { issuer: i, audience: a, claims: { groups: g } } }, allow: [{ deployment: d }] }
  - id: four
    identify: { apiKeys: [{ sha256: ${'a1'.repeat(32)}, expires: 2026-01-31, note: Berlin }, { sha256: ${'b2'.repeat(32)}, expires: 9999-12-31 }] }
    allow: [{ deployment: d, methods: [GET], ends: 2026-01-31 }]
jwt: { issuers: [{ issuer: i, jwksUrl: "https://i.example/keys" }] }
`,
    );
  });
  afterAll(() => rm(folder, { recursive: true }));

  const client = (...words: readonly string[]) => gateway(['client', ...words, '--config', file]);

  test('list tells how each client is identified and what it may do', async () => {
    expect(await client('list')).toEqual({
      status: 0,
      stdout: [
        'CLIENT  IDENTIFIED BY                                                   ALLOWED',
        'one     address 10.1.0.0/16, ::1/128                                    d: methods GET, POST; limits of ids',
        '        API key abababab…                                               d',
        'two     API key cdcdcdcd…, efefefef…                                    nothing: no rule under allow',
        'three   token issuer i, audience a, groups g                            d',
        'four    API key Berlin (ended 2026-01-31), b2b2b2b2… (ends 9999-12-31)  d: methods GET; ended 2026-01-31',
        '',
      ].join('\n'),
      stderr:
        'no audit log is configured: see the metric digest_gateway_client_last_seen_timestamp_seconds or the console for who was seen\n',
    });
  });

  describe('with an audit log', () => {
    const withLog = async (name: string): Promise<string> => {
      const place = join(folder, name);
      await mkdir(place);
      const text = `${await readFile(file, 'utf8')}audit: { directory: log, keyFile: key }\n`;
      await writeFile(join(place, 'gateway.yaml'), text);
      return place;
    };
    const list = (place: string, ...more: readonly string[]) =>
      gateway(['client', 'list', '--config', join(place, 'gateway.yaml'), ...more]);

    test('list tells when each client and each key was last seen', async () => {
      const place = await withLog('seen');
      await writeFile(join(place, 'key'), `${AUDIT_KEY}\n`, { mode: 0o600 });
      const { audit } = await openTestAudit(join(place, 'log'));
      await recordAccess(audit, { client: 'four', key: 'Berlin' });
      await recordAccess(audit, { client: 'three' });
      await audit.close();
      const [{ time = '' } = {}, { time: later = '' } = {}] = (await recordsIn(join(place, 'log'))) as {
        time: string;
      }[];
      const minute = (text: string): string => `${text.slice(0, 16)}Z`;
      const { status, stdout, stderr } = await list(place);
      expect([status, stderr]).toEqual([0, '']);
      expect(stdout.split('\n').map((line) => line.split(/ {2,}/))).toEqual([
        ['CLIENT', 'IDENTIFIED BY', 'LAST SEEN', 'ALLOWED'],
        ['one', 'address 10.1.0.0/16, ::1/128', 'never', 'd: methods GET, POST; limits of ids'],
        ['', 'API key abababab… (never seen)', 'd'],
        [
          'two',
          'API key cdcdcdcd… (never seen), efefefef… (never seen)',
          'never',
          'nothing: no rule under allow',
        ],
        ['three', 'token issuer i, audience a, groups g', minute(later), 'd'],
        [
          'four',
          `API key Berlin (ended 2026-01-31, seen ${minute(time)}), b2b2b2b2… (ends 9999-12-31, never seen)`,
          minute(time),
          'd: methods GET; ended 2026-01-31',
        ],
        [''],
      ]);
      const { clients } = JSON.parse((await list(place, '--json')).stdout);
      expect(clients[3]).toMatchObject({
        lastSeen: time,
        keys: [
          { name: 'Berlin', lastSeen: time },
          { name: 'b2b2b2b2', lastSeen: null },
        ],
      });
      expect([clients[0].lastSeen, clients[2].lastSeen]).toEqual([null, later]);

      const short = await list(place, '--seen', '0d');
      expect(short.stdout).toContain('not in 0 days');
      expect(short.stdout).toContain('Berlin (ended 2026-01-31, not seen in 0 days)');
      const wrong = await list(place, '--seen', 'long');
      expect([wrong.status, wrong.stderr]).toEqual([2, expect.stringContaining('is not a duration')]);
    });

    test('list goes without it if the key of the log cannot be read', async () => {
      const place = await withLog('without-key');
      const { status, stdout, stderr } = await list(place);
      expect(status).toBe(0);
      expect(stderr).toMatch(/^when clients were last seen is unknown, .*key does not exist/);
      expect(stdout).toMatch(/^four .* unknown +d: methods GET/m);
      const { clients } = JSON.parse((await list(place, '--json')).stdout);
      expect(clients[3]).not.toHaveProperty('lastSeen');
    });
  });

  test('list --json has every condition and rule', async () => {
    const { stdout } = await client('list', '--json');
    const { clients, anonymous } = JSON.parse(stdout);
    expect([anonymous, clients.length]).toEqual([false, 4]);
    expect(clients[3]).toMatchObject({
      identify: { apiKeys: [{ note: 'Berlin', expires: '2026-01-31' }, { expires: '9999-12-31' }] },
      allow: [{ ends: '2026-01-31' }],
    });
    expect(clients[0]).toEqual({
      id: 'one',
      identify: { addresses: ['10.1.0.0/16', '::1/128'], apiKeySha256: [OLD] },
      allow: [
        {
          deployment: 'd',
          sites: '*',
          operations: '*',
          methods: ['GET', 'POST'],
          parameters: [{ name: 'ids', max: 5 }],
        },
        { deployment: 'd', sites: '*', operations: '*', methods: '*', parameters: [] },
      ],
    });
  });

  test('list and check tell whose rules are only observed, or were', async () => {
    const observed = join(folder, 'observed.yaml');
    const day = (days: number): string => new Date(Date.now() + days * 86_400_000).toISOString().slice(0, 10);
    const [later, earlier] = [day(30), day(-1)];
    await writeFile(
      observed,
      `${CREDENTIALS}
${DEPLOYMENTS}
clients:
  - { id: on, identify: { addresses: [10.0.0.1] }, mode: { observe: true, until: ${later} } }
  - { id: over, identify: { addresses: [10.0.0.2] }, mode: { observe: true, until: ${earlier} }, allow: [{ deployment: d }] }
`,
    );
    const list = await gateway(['client', 'list', '--config', observed]);
    expect(list.stdout.split('\n')).toEqual([
      'CLIENT  IDENTIFIED BY        ALLOWED',
      `on      address 10.0.0.1/32  everything until ${later}, observing these rules:`,
      '                             nothing: no rule under allow',
      'over    address 10.0.0.2/32  d',
      '',
    ]);
    const { clients } = JSON.parse(
      (await gateway(['client', 'list', '--json', '--config', observed])).stdout,
    );
    expect(clients[0].mode).toEqual({ observe: true, until: later });
    const checked = await gateway(['check', '--no-secrets', '--config', observed]);
    expect([checked.status, checked.stdout.split('\n')]).toEqual([
      0,
      [
        `${observed}:4:58 clients[0].mode: ends ${later}: until then what the rules of on would refuse is served and recorded; take it out when they are right (warning)`,
        `${observed}:5:60 clients[1].mode: ended ${earlier}: the rules of over refuse; take it out (warning)`,
        expect.stringContaining('ok'),
        '',
      ],
    ]);
  });

  test('list shows anonymous: true', async () => {
    const text = `${CREDENTIALS}\n${DEPLOYMENTS}\nanonymous: true\n`;
    const open = join(folder, 'open.yaml');
    await writeFile(open, text);
    const { stdout } = await gateway(['client', 'list', '--config', open]);
    expect(stdout).toMatch(/^anonymous {2}\S.* {2}every deployment$/m);
  });

  test('rotate prints a key once, where its hash goes, and what to do next; the file stays as it is', async () => {
    const before = await readFile(file, 'utf8');
    const { status, stdout, stderr } = await client('rotate', 'one');
    expect([status, stderr]).toEqual([0, '']);
    const [key = '', ...more] = stdout.match(KEY) ?? [];
    expect(more).toEqual([]);
    const hex = hash('sha256', key);
    expect(stdout).toContain(` ${file}, line 5, `);
    expect(stdout).toContain('(clients[0].identify.apiKeySha256)');
    expect(stdout).toContain(`    apiKeySha256: [${hex}, ${OLD}]\n`);
    expect(stdout).toMatch(new RegExp(`^    apiKeySha256: ${hex}$`, 'm'));
    expect(await readFile(file, 'utf8')).toBe(before);
    const both = before.replace(`apiKeySha256: ${OLD}`, `apiKeySha256: [${hex}, ${OLD}]`);
    expect(parseConfig(both, file).clients[0]?.identify.apiKeySha256).toEqual([hex, OLD]);
  });

  test('rotate prints keys with their ends and notes, in place of all that were there', async () => {
    const ending = await client('rotate', 'one', '--expires', '9999-12-31');
    const [key = ''] = ending.stdout.match(KEY) ?? [];
    const hex = hash('sha256', key);
    const lines = [`    apiKeys:`, `      - {sha256: ${hex}, expires: 9999-12-31}`];
    expect(ending.stdout).toContain(` in place of what is there (clients[0].identify.apiKeySha256), `);
    expect(ending.stdout).toContain([...lines, `      - {sha256: ${OLD}}`, ''].join('\n'));
    expect(ending.stdout.endsWith(`\n\n${lines.join('\n')}\n`)).toBe(true);

    const noted = await client('rotate', 'four');
    expect(noted.stdout).toContain(` in place of what is there (clients[3].identify.apiKeys), `);
    const printed = noted.stdout.slice(noted.stdout.indexOf('    apiKeys:'), noted.stdout.indexOf('\n2. '));
    expect(parse(printed).apiKeys).toEqual([
      { sha256: expect.stringMatching(/^[\da-f]{64}$/) },
      { sha256: 'a1'.repeat(32), expires: '2026-01-31', note: 'Berlin' },
      { sha256: 'b2'.repeat(32), expires: '9999-12-31' },
    ]);
    const json = JSON.parse((await client('rotate', 'four', '--json')).stdout);
    expect(json).toMatchObject({ path: 'clients[3].identify.apiKeys', line: 12 });
    expect(json.apiKeys.slice(1)).toEqual(parse(printed).apiKeys.slice(1));
  });

  test('rotate --json is for programs, and keeps keys of a rotation that has not ended', async () => {
    const { stdout } = await client('rotate', 'two', '--json');
    const { apiKey, apiKeySha256, ...place } = JSON.parse(stdout);
    expect(place).toEqual({
      path: 'clients[1].identify.apiKeySha256',
      file: expect.stringMatching(/gateway\.yaml$/),
      line: 9,
    });
    expect(apiKeySha256).toEqual([hash('sha256', apiKey), OLDER, 'ef'.repeat(32)]);
  });

  test.each([
    [
      'none',
      /gateway\.yaml has no client none, but one, two, three, four: name one of these, or run client add none\n$/,
    ],
    [
      'three',
      /gateway\.yaml:10:\d+ clients\[2\]\.identify\.apiKeySha256: is missing: three has no API key to rotate; client add three creates one\n$/,
    ],
  ])('rotate of %s says what is missing', async (id, message) => {
    const { status, stdout, stderr } = await client('rotate', id);
    expect([status, stdout]).toEqual([2, '']);
    expect(stderr).toMatch(message);
  });
});
