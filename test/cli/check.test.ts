import { copyFile, mkdir, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { rootCertificates } from 'node:tls';
import { beforeEach, describe, expect, test } from '@jest/globals';
import { served } from '../config/issue-lines.ts';
import { useFolders } from '../support/audit-log.ts';
import { gateway } from '../support/program.ts';

const makeFolder = useFolders();
let folder: string;
beforeEach(async () => {
  folder = await makeFolder();
});

async function configFile(text: string): Promise<string> {
  const file = join(folder, 'gateway.yaml');
  await writeFile(file, served(text));
  return file;
}

const deployment = (more = '') =>
  `deployments:\n  d: { baseUrl: "https://a.example", match: { host: a }, credential: a${more} }\n`;

test('the minimal configuration is ok', async () => {
  const environment = { JOURNAL_A_USER: 'me', JOURNAL_A_API_KEY: 'hunter2' };
  expect(await gateway(['check', '--config', 'config/minimal.yaml'], environment)).toEqual({
    status: 0,
    stdout: 'config/minimal.yaml: ok — 1 deployment, 1 credential\n',
    stderr: '',
  });
});

test('the documented example is ok once its secrets are there', async () => {
  const file = join(folder, 'example.yaml');
  await copyFile('config/example.yaml', file);
  await mkdir(join(folder, 'secrets'));
  await writeFile(join(folder, 'secrets', 'journal-a'), 'hunter2\n', { mode: 0o600 });
  await writeFile(join(folder, 'secrets', 'audit-key'), `${'a1'.repeat(32)}\n`, { mode: 0o600 });
  expect(await gateway(['check', '--config', file], { JOURNAL_A_USER: 'me' })).toEqual({
    status: 0,
    stdout: `${file}: ok — 2 deployments, 1 credential\n`,
    stderr: '',
  });
});

test('every fault of the configuration is a line on stdout', async () => {
  const file = await configFile(`credentials: {}\n${deployment(', timeouts: { total: 0s }')}lisen: {}\n`);
  expect(await gateway(['check', '--config', file])).toEqual({
    status: 2,
    stdout: [
      `${file}:3:70 deployments.d.credential: names a credential that does not exist: describe it under credentials`,
      `${file}:3:92 deployments.d.timeouts.total: 0s is out of range: write a duration from 1ms to 24d`,
      `${file}:4:1 lisen: does not exist: the nearest key is listen`,
      '',
    ].join('\n'),
    stderr: '',
  });
});

test('every secret and file that is missing is a line with its place', async () => {
  const file = await configFile(
    `credentials:\n  a:\n    username: { env: NOT_SET }\n    password: { file: none }\n${deployment(', tls: { caFile: ca.pem }')}`,
  );
  await writeFile(join(folder, 'ca.pem'), '-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n');
  expect(await gateway(['check', '--config', file])).toEqual({
    status: 2,
    stdout: [
      `${file}:3:15 credentials.a.username: the environment variable NOT_SET is not set: set it for this process`,
      `${file}:4:15 credentials.a.password: ${folder}/none does not exist: create it, or name another file`,
      `${file}:6:88 deployments.d.tls.caFile: ${folder}/ca.pem holds no certificate: name a readable file in PEM form`,
      '',
    ].join('\n'),
    stderr: '',
  });
});

test('a password in the configuration is ok with a warning that does not quote it', async () => {
  const file = await configFile(
    `credentials:\n  a: { username: { value: me }, password: { value: hunter2 } }\n${deployment()}`,
  );
  expect(await gateway(['check', '--config', file])).toEqual({
    status: 0,
    stdout: `${file}:2:43 credentials.a.password: is written in the configuration itself: use env, file or sealed (warning)\n${file}: ok — 1 deployment, 1 credential\n`,
    stderr: '',
  });
});

test.each([
  ['hunter2 ', 'has white space at an end'],
  ['\thunter2\n', 'has white space at an end'],
  ['hunter2\n\n', 'has white space at an end'],
  ['user\nhunter2\n', 'has more than one line'],
  ['hunter2\r\n', undefined],
  ['hunt er2', undefined],
])('a file with %j is ok, with a warning that does not quote it: %s', async (content, reason) => {
  const file = await configFile(
    `credentials:\n  a: { username: { value: me }, password: { file: secret } }\n${deployment()}`,
  );
  await writeFile(join(folder, 'secret'), content, { mode: 0o600 });
  const warning = `${file}:2:43 credentials.a.password: ${reason}: all of it is the password; remove what does not belong to it (warning)\n`;
  expect(await gateway(['check', '--config', file])).toEqual({
    status: 0,
    stdout: `${reason === undefined ? '' : warning}${file}: ok — 1 deployment, 1 credential\n`,
    stderr: '',
  });
});

test('a user name with white space at an end is ok, with a warning', async () => {
  const parts = (name: string) => `username: { env: ${name} }, password: { env: P }`;
  const credential = `{ ${parts('U')}, next: { ${parts('N')} } }`;
  const file = await configFile(`credentials:\n  a: ${credential}\n${deployment()}`);
  const { stdout } = await gateway(['check', '--config', file], { U: 'me ', P: 'hunter2', N: ' you' });
  const message =
    'has white space at an end: all of it is the user name; remove what does not belong to it (warning)';
  expect(stdout).toBe(
    `${file}:2:18 credentials.a.username: ${message}\n${file}:2:70 credentials.a.next.username: ${message}\n${file}: ok — 1 deployment, 1 credential\n`,
  );
});

test('the password of a next version has such a warning, too, at its own place', async () => {
  const file = await configFile(
    `credentials:\n  a: { username: { env: U }, password: { env: P }, next: { password: { env: N } } }\n${deployment()}`,
  );
  const { stdout } = await gateway(['check', '--config', file], { U: 'me', P: 'hunter2 ', N: 'hunter3 ' });
  expect(stdout.match(/credentials\S+ has white space at an end/g)).toEqual([
    'credentials.a.password: has white space at an end',
    'credentials.a.next.password: has white space at an end',
  ]);
  const renamed = await configFile(
    `credentials:\n  a: { username: { env: U }, password: { env: P }, next: { username: { env: N } } }\n${deployment()}`,
  );
  const { stdout: once } = await gateway(['check', '--config', renamed], { U: 'me', P: ' x', N: 'you' });
  expect(once.match(/credentials\S+ has white space at an end/g)).toHaveLength(1);
});

test('a listener without TLS for other machines is ok with a warning, beside one with TLS', async () => {
  const rest = `credentials: { a: { username: { env: U }, password: { file: none } } }
clients: [{ id: c, identify: { addresses: [10.0.0.1] }, allow: [{ deployment: d }] }]
${deployment()}`;
  const plain = '{ address: 0.0.0.0, port: 1 }';
  const check = async (listen: string) => {
    const file = await configFile(`listen: ${listen}\n${rest}`);
    const { status, stdout } = await gateway(['check', '--no-secrets', '--config', file]);
    return [status, stdout.replaceAll(`${file}:`, '')];
  };
  const ok = ' ok — 1 deployment, 1 credential\n';
  expect(await check(plain)).toEqual([0, ok]);
  expect(await check(`[${plain}, { address: "unix:/a" }]`)).toEqual([0, ok]);
  const tls = '{ tls: { certFile: none, keyFile: none } }';
  expect(await check(`[${tls}, { address: 127.0.0.1, port: 1 }]`)).toEqual([0, ok]);
  expect(await check(`[${tls}, ${plain}]`)).toEqual([
    0,
    `1:54 listen[1]: is plain HTTP for other machines, beside a listener with TLS: others on the network can read keys and tokens of clients; give tls, or listen on 127.0.0.1 (warning)\n${ok}`,
  ]);
});

test('a receiver of the audit log that gets header fields without TLS is ok with a warning', async () => {
  const check = async (endpoint: string, headers: string) => {
    const file = await configFile(`audit:
  directory: audit
  keyFile: none
  sinks: [{ name: s, otlp: { endpoint: "${endpoint}", headers: ${headers} } }]
credentials: { a: { username: { env: U }, password: { file: none } } }
${deployment()}`);
    const { status, stdout } = await gateway(['check', '--no-secrets', '--config', file]);
    return [status, stdout.replaceAll(`${file}:`, '')];
  };
  const ok = ' ok — 1 deployment, 1 credential\n';
  const token = '{ authorization: { env: TOKEN } }';
  expect(await check('https://collector.internal:4318/v1/logs', token)).toEqual([0, ok]);
  expect(await check('http://localhost:4318/v1/logs', token)).toEqual([0, ok]);
  expect(await check('http://collector.internal:4318/v1/logs', '{}')).toEqual([0, ok]);
  expect(await check('http://collector.internal:4318/v1/logs', token)).toEqual([
    0,
    `4:40 audit.sinks[0].otlp.endpoint: is not encrypted: others on the network can read the header fields, and the audit log; write https:// (warning)\n${ok}`,
  ]);
});

test('a file of the second listener is named with its place', async () => {
  const file = await configFile(
    `listen:\n  - {}\n  - { port: 1, tls: { certFile: none, keyFile: none } }\ncredentials: { a: { username: { env: HOME }, password: { env: HOME } } }\n${deployment()}`,
  );
  const { status, stdout } = await gateway(['check', '--config', file], { HOME: '/' });
  expect([status, stdout]).toEqual([
    2,
    expect.stringMatching(/:3:33 listen\[1\]\.tls\.certFile: .*\n.*:3:48 listen\[1\]\.tls\.keyFile: /),
  ]);
});

test('a certificate authority of one or more certificates is ok', async () => {
  await writeFile(join(folder, 'ca.pem'), `# ours\n${rootCertificates.slice(0, 2).join('\n')}\n`);
  const file = await configFile(
    `credentials: { a: { username: { env: U }, password: { env: P } } }\n${deployment(', tls: { caFile: ca.pem }')}`,
  );
  const { status, stdout } = await gateway(['check', '--config', file], { U: 'me', P: 'hunter2' });
  expect([status, stdout]).toEqual([0, `${file}: ok — 1 deployment, 1 credential\n`]);
});

test('a certificate authority that does not exist is a fault', async () => {
  const file = await configFile(
    `credentials: { a: { username: { env: U }, password: { env: P } } }\n${deployment(', tls: { caFile: none.pem }')}`,
  );
  const { status, stdout } = await gateway(['check', '--config', file], { U: 'me', P: 'hunter2' });
  expect([status, stdout]).toEqual([
    2,
    `${file}:3:88 deployments.d.tls.caFile: ${folder}/none.pem does not exist: create it, or name another file\n`,
  ]);
});

test('a configuration that does not exist is a fault', async () => {
  const file = join(folder, 'none.yaml');
  expect(await gateway(['check', '--config', file])).toEqual({
    status: 2,
    stdout: `${file}:1:1 (file): there is no such file: name an existing one with --config\n`,
    stderr: '',
  });
});

describe('check --no-secrets', () => {
  const text = served(
    `credentials:\n  a: { username: { env: NOT_SET }, password: { value: hunter2 }, next: { password: { file: none } } }
audit: { directory: /proc/none, keyFile: none }
listen: { tls: { certFile: none, keyFile: none } }
${deployment(', tls: { caFile: none }')}`,
  );
  const warning =
    ':2:46 credentials.a.password: is written in the configuration itself: use env, file or sealed';

  test('reads no secret and no other file', async () => {
    const file = await configFile(text);
    expect(await gateway(['check', '--no-secrets', '--config', file])).toEqual({
      status: 0,
      stdout: `${file}${warning} (warning)\n${file}: ok — 1 deployment, 1 credential\n`,
      stderr: '',
    });
    const { status, stdout } = await gateway(['check', '--config', file]);
    expect([status, stdout.trim().split('\n').length]).toEqual([2, 7]);
  });

  test('reports issues of the file itself', async () => {
    const file = await configFile(`${text}\nlisen: {}\n`);
    const { status, stdout } = await gateway(['check', '--no-secrets', '--config', file]);
    expect([status, stdout]).toEqual([
      2,
      expect.stringContaining('lisen: does not exist: the nearest key is listen\n'),
    ]);
  });
});

describe('check --config -', () => {
  const stdin = (input: string, ...args: string[]) => gateway(['check', '--config', '-', ...args], {}, input);

  test('reads stdin', async () => {
    const { status, stdout } = await stdin(served(deployment()), '--no-secrets');
    expect([status, stdout]).toEqual([
      2,
      expect.stringMatching(
        /^stdin:2:\d+ deployments\.d\.credential: names a credential that does not exist/,
      ),
    ]);
    const right = `credentials: { a: { username: { env: U }, password: { file: none } } }\n${deployment()}anonymous: true\n`;
    expect((await stdin(right, '--no-secrets')).stdout).toBe('stdin: ok — 1 deployment, 1 credential\n');
    // File names are relative to the current folder.
    expect((await stdin(right)).stdout).toContain(
      `credentials.a.password: ${process.cwd()}/none does not exist`,
    );
  });

  test('refuses other text than UTF-8', async () => {
    const child = ['check', '--config', '-', '--no-secrets'];
    const { status, stdout } = await gateway(child, {}, Buffer.from([0xc3, 0x28]));
    expect([status, stdout]).toEqual([2, 'stdin:1:1 (file): is not UTF-8 text: save it as UTF-8\n']);
  });
});

test('control characters of the file are escaped', async () => {
  const file = join(folder, 'gateway.yaml');
  await writeFile(file, '"a\\e[2J\\u009b8m\\u202e": 1\n');
  for (const form of [[], ['--json']]) {
    const { status, stdout } = await gateway(['check', '--config', file, ...form]);
    expect(status).toBe(2);
    expect(stdout).toContain('\\u001b[2J\\u009b8m\\u202e');
    expect(stdout.replaceAll('\n', '')).not.toMatch(/[\p{Cc}\p{Cf}]/u);
  }
});

test('check --json prints issues and warnings for programs', async () => {
  const file = await configFile(
    `credentials: { a: { username: { value: me }, password: { value: hunter2 } } }\n${deployment()}`,
  );
  const ended = await gateway(['check', '--json', '--config', file]);
  expect([ended.status, JSON.parse(ended.stdout)]).toEqual([
    0,
    {
      valid: true,
      file,
      issues: [],
      warnings: [
        {
          file,
          line: 1,
          column: 56,
          path: 'credentials.a.password',
          message: 'is written in the configuration itself: use env, file or sealed',
        },
      ],
    },
  ]);
  await writeFile(file, 'anonymous: 1\n');
  const wrong = await gateway(['check', '--json', '--config', file]);
  expect([wrong.status, JSON.parse(wrong.stdout)]).toEqual([
    2,
    {
      valid: false,
      file,
      issues: [
        expect.objectContaining({ line: 1, column: 12, path: 'anonymous', message: 'must be true or false' }),
        expect.objectContaining({ path: 'deployments' }),
      ].toReversed(),
      warnings: [],
    },
  ]);
});

test('check warns of an access log that is a folder, and of flight records in a file', async () => {
  const file = await configFile(
    `log: { access: { file: . }, flightRecords: gateway.yaml }\ncredentials: { a: { username: { env: U }, password: { env: P } } }\n${deployment()}`,
  );
  const { status, stdout, stderr } = await gateway(['check', '--config', file], { U: 'me', P: 'hunter2' });
  const [access, records] = `${stdout}${stderr}`.replaceAll(dirname(file), 'FOLDER').split('\n');
  expect([status, access, records]).toEqual([
    0,
    'FOLDER/gateway.yaml:1:16 log.access: FOLDER is a folder: name a file, or no line can be written (warning)',
    'FOLDER/gateway.yaml:1:44 log.flightRecords: FOLDER/gateway.yaml cannot be used: FOLDER/gateway.yaml is not a folder; name another one (warning)',
  ]);
});

test('check warns of folders that do not exist, which sockets and the access log need', async () => {
  const file = await configFile(
    `listen: [{ port: 1 }, { address: "unix:/missing/a.sock" }]\ncontrol: { address: "unix:/missing/b.sock" }\nlog: { access: { file: nowhere/access.log } }\ncredentials: { a: { username: { env: U }, password: { env: P } } }\n${deployment()}`,
  );
  const { status, stdout, stderr } = await gateway(['check', '--config', file], { U: 'me', P: 'hunter2' });
  expect([
    status,
    `${stdout}${stderr}`
      .replaceAll(`${dirname(file)}/`, '')
      .split('\n')
      .slice(0, 3),
  ]).toEqual([
    0,
    [
      'gateway.yaml:1:34 listen[1].address: is in the folder /missing, which does not exist: create it, or the gateway does not start (warning)',
      'gateway.yaml:2:21 control.address: is in the folder /missing, which does not exist: create it, or the gateway does not start (warning)',
      'gateway.yaml:3:16 log.access: is in the folder nowhere, which does not exist: create it, or no line can be written (warning)',
    ],
  ]);
});
