import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { gateway } from '../support/program.ts';

const AUTHORS = '/api/manuscripts/v2/submissions/full/contributors/authors/submissionids';

const explain = (...args: string[]) =>
  gateway(['policy', 'explain', '--config', 'config/example.yaml', ...args]);

/** For a gateway that has names. */
const explainNamed = (...args: string[]) => explainAt('{ hosts: [gw.internal] }', ...args);

async function explainAt(listen: string, ...args: string[]) {
  const file = join(folder, 'named.yaml');
  await writeFile(
    file,
    `listen: ${listen}
credentials: { a: { username: { env: U }, password: { env: P } } }
deployments:
  d: { baseUrl: "https://a.example", match: { pathPrefix: / }, credential: a }
  e: { baseUrl: "https://b.example", match: { host: a.internal }, credential: a }
clients:
  - { id: c, identify: { apiKeys: [{ sha256: ${'a'.repeat(64)}, expires: 2026-01-01 }] }, allow: [{ deployment: d }] }
anonymous: true
`,
  );
  return gateway(['policy', 'explain', '--config', file, 'GET', ...args]);
}

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'policy-'));
});
afterAll(() => rm(folder, { recursive: true }));

describe('policy explain', () => {
  test('tells which rule allows a request, and what would be sent', async () => {
    const target = `${AUTHORS}?ids=%27A-1%27&external_id=123`;
    expect(await explain('--client', 'reporting', 'GET', target)).toEqual({
      status: 0,
      stdout: [
        'allowed      by clients[0].allow[0]',
        'client       reporting',
        'known by     address 10.1.0.0/16, 2001:db8:1::/48',
        'known by     an API key',
        'deployment   submissions',
        'operation    authors-by-submission-id',
        'site         journal-a (added)',
        'credential   journal-a, named by deployments.submissions.sites.journal-a',
        `sends        GET https://submissions.example.org${AUTHORS}?site_name=journal-a&ids=%27A-1%27&external_id=123`,
        'limit        client reporting: 50 requests per second, 50 at once after a pause',
        'limit        client reporting: 20 in flight at the same time',
        'limit        deployment submissions: 50 requests per second, 100 at once after a pause',
        'limit        deployment submissions: 20 in flight at the same time',
        'limit        deployment submissions: 10000 a day, UTC',
        'site_name    = "journal-a"',
        'ids          = "\'A-1\'"',
        'external_id  = "123"',
        '',
      ].join('\n'),
      stderr: '',
    });
  });

  test('tells why a request is refused, with exit status 1', async () => {
    const { status, stdout, stderr } = await explain('--client', 'reporting', 'DELETE', AUTHORS);
    expect([status, stderr]).toEqual([1, '']);
    expect(stdout.split('\n')).toEqual([
      'refused     403 client-forbidden',
      expect.stringMatching(/^because {5}\S.*\breporting\b.*\bsubmissions\b/),
      'decided by  clients[0].allow',
      'client      reporting',
      'known by    address 10.1.0.0/16, 2001:db8:1::/48',
      'known by    an API key',
      'deployment  submissions',
      '',
    ]);
  });

  test('judges header fields and a body as the gateway does', async () => {
    const asked = ['--client', 'reporting', 'GET', `${AUTHORS}?ids=%27A-1%27&external_id=123`];
    const fields = ['X-Tenant: b', 'SOAPAction: x', 'Connection: content-type', 'Content-Type: text/plain'];
    const { stdout, status } = await explain(...asked, '--header', ...fields);
    expect([status, stdout]).toEqual([0, expect.stringMatching(/^drops {8}X-Tenant$/m)]);
    const body = await explain(...asked, '--header', ...fields, 'Content-Length: 5');
    expect([body.status, body.stdout]).toEqual([1, expect.stringContaining('400 bad-request')]);
    const named = await explain(...asked, '--header', 'X-Tenant: b', 'X-Request-Id: X-Tenant');
    expect(named.stdout).toMatch(/^drops {8}X-Tenant$/m);
    const wrong = await explain(...asked, '--header', 'X Tenant');
    expect([wrong.status, wrong.stderr]).toEqual([2, expect.stringContaining('X Tenant')]);
  });

  test.each([
    ['TRACE', [], '405 method-unsupported'],
    ['OPTIONS', ['Max-Forwards: 0'], '405 method-unsupported'],
    ['GET', ['Connection: upgrade', 'Upgrade: websocket'], 'upgrade-unsupported'],
  ])('refuses what no gateway sends on: %s %j', async (method, fields, refusal) => {
    const asked = ['--client', 'reporting', method, `${AUTHORS}?ids=%27A-1%27&external_id=123`];
    const { status, stdout } = await explain(...asked, ...fields.flatMap((field) => ['--header', field]));
    expect([status, stdout]).toEqual([1, expect.stringContaining(refusal)]);
  });

  test('refuses requests of pages elsewhere for a client that needs no key', async () => {
    const asked = ['GET', '/status?site_name=journal-b', '--host', 'submissions.gateway.internal'];
    const elsewhere = ['--header', 'Origin: https://elsewhere.example'];
    const known = await explain('--client', 'batch', ...asked, ...elsewhere);
    expect([known.status, known.stdout]).toEqual([1, expect.stringContaining('403 cross-site')]);
    const own = await explain('--client', 'batch', ...asked, '--header', 'Sec-Fetch-Site: same-origin');
    expect(own.stdout).not.toContain('cross-site');
    const keyed = await explain('--client', 'reporting', ...asked, ...elsewhere);
    expect(keyed.stdout).not.toContain('cross-site');
  });

  test.each([
    ['a listener without TLS', '{}', 'http', true],
    ['a listener without TLS', '{}', 'https', false],
    ['a listener without TLS behind a proxy', '{ trustedProxies: [10.0.0.7] }', 'https', true],
    ['a balancer that may end TLS', '{ proxyProtocol: [10.0.0.7] }', 'https', true],
    ['one with TLS', '{ tls: { certFile: c, keyFile: k } }', 'https', true],
    ['one with TLS', '{ tls: { certFile: c, keyFile: k } }', 'http', false],
    ['listeners of both kinds', '[{}, { port: 8443, tls: { certFile: c, keyFile: k } }]', 'https', true],
  ])('compares the scheme of a page with that of %s: %s, %s', async (_title, listen, scheme, isOwn) => {
    const origin = `Origin: ${scheme}://gateway.internal`;
    const { stdout } = await explainAt(listen, '/', '--host', 'gateway.internal', '--header', origin);
    expect(stdout.includes('403 cross-site')).toBe(!isOwn);
  });

  test.each([
    ['a target that is no ASCII', ['/status/ä'], '400 bad-request', ''],
    ['a target with a space', ['/a b'], '400 bad-request', ''],
    ['a target with a line end', ['/ HTTP/1.1\r\nX: y'], '400 bad-request', ''],
    ['a target that is too long', [`/${'x'.repeat(20_000)}`], '414 target-too-long', ''],
    ['a host that is none', ['/', '--host', 'a b'], '400 bad-request', ''],
    ['a coding that it does not know', ['/', '--header', 'Transfer-Encoding: gzip'], '400 bad-request', ''],
    ['two lengths', ['/', '--header', 'Content-Length: 1', 'Content-Length: 2'], '400 bad-request', ''],
    ['another name than its own', ['/', '--host', 'evil.example'], '421 host-unknown', 'listen.hosts'],
    ['keys that have ended', ['/', '--client', 'c'], '401 client-key-expired', 'clients[0].identify.apiKeys'],
  ])('refuses what the gateway refuses before its rules: %s', async (_title, args, refusal, rule) => {
    const { status, stdout } = await explainNamed(...args);
    expect([status, stdout]).toEqual([1, expect.stringMatching(new RegExp(`^refused +${refusal}$`, 'm'))]);
    expect(/^decided by +(.*)$/m.exec(stdout)?.[1] ?? '').toBe(rule);
  });

  test('takes a name of the gateway where none is given, or that of a deployment', async () => {
    for (const args of [['/'], ['/', '--host', 'gw.internal:8080'], ['/', '--header', 'Host: a.internal']]) {
      expect(await explainNamed(...args)).toMatchObject({ status: 0 });
    }
  });

  test('speaks JSON', async () => {
    const asked = ['--json', '--client', 'batch', '--host', 'submissions.gateway.internal', 'GET'];
    const refused = await explain(...asked, '/status?site_name=journal-b');
    expect([refused.status, JSON.parse(refused.stdout)]).toEqual([
      1,
      {
        allowed: false,
        client: 'batch',
        identifiedBy: ['address 10.2.0.17/32'],
        deployment: 'submissions',
        rule: 'deployments.submissions.sites',
        endedRules: [],
        status: 403,
        code: 'site-unknown',
        detail: expect.stringContaining('site_name'),
      },
    ]);
    const allowed = await explain(...asked, '/status?site_name=journal-a');
    expect([allowed.status, JSON.parse(allowed.stdout)]).toEqual([
      0,
      {
        allowed: true,
        client: 'batch',
        identifiedBy: ['address 10.2.0.17/32'],
        deployment: 'submissions',
        rule: 'clients[2].allow[0]',
        ends: '',
        endedRules: [],
        operation: '',
        site: 'journal-a',
        credential: 'journal-a',
        credentialBy: 'deployments.submissions.sites.journal-a',
        sends: 'GET https://submissions.example.org/status?site_name=journal-a',
        siteAdded: false,
        drops: [],
        parameters: { site_name: 'journal-a' },
        limits: [
          'deployment submissions: 50 requests per second, 100 at once after a pause',
          'deployment submissions: 20 in flight at the same time',
          'deployment submissions: 10000 a day, UTC',
        ],
      },
    ]);
  });

  test('reads a whole address as a proxy does, and says when nothing is there', async () => {
    const found = await explain('--json', '--client', 'reporting', 'GET', 'http://abstracts.example.org/x');
    expect(JSON.parse(found.stdout)).toMatchObject({ deployment: 'abstracts', rule: 'clients[0].allow[1]' });
    const lost = await explain('--json', '--client', 'batch', 'GET', 'http://elsewhere.example.org/x');
    expect([lost.status, JSON.parse(lost.stdout)]).toMatchObject([
      1,
      { code: 'no-deployment', deployment: '' },
    ]);
  });

  test('tells when a rule ends, and which ones have ended', async () => {
    const rules = (...ends: string[]) =>
      ends.map((end) => `{ deployment: d, methods: [GET], ends: ${end} }`).join(', ');
    const explained = async (...ends: string[]) => {
      const file = join(folder, 'ends.yaml');
      await writeFile(
        file,
        `credentials: { a: { username: { env: U }, password: { env: P } } }
deployments: { d: { baseUrl: "https://a.example", match: { pathPrefix: / }, credential: a } }
clients:
  - id: c
    identify: { apiKeys: [{ sha256: ${'a'.repeat(64)}, expires: 2026-02-01, note: Berlin }, { sha256: ${'b'.repeat(64)} }] }
    allow: [${rules(...ends)}]
`,
      );
      const { stdout } = await gateway(['policy', 'explain', '--config', file, '--client', 'c', 'GET', '/x']);
      return stdout.split('\n').map((line) => line.split(/ {2,}/));
    };
    const allowed = await explained('2026-01-31', '9999-12-31T12:00:00Z');
    expect(allowed).toEqual(
      expect.arrayContaining([
        ['allowed', 'by clients[0].allow[1], which ends 9999-12-31T12:00:00Z'],
        ['not by', 'clients[0].allow[0] ended 2026-01-31'],
        ['known by', 'one of 2 API keys (Berlin ended 2026-02-01)'],
      ]),
    );
    const refused = await explained('2026-01-31', '2026-02-28');
    expect(refused).toEqual(
      expect.arrayContaining([
        ['refused', '403 client-forbidden'],
        ['because', expect.stringMatching(/ may not use the deployment d any more: .* ended 2026-02-28\./)],
        ['not by', 'clients[0].allow[0] ended 2026-01-31'],
        ['not by', 'clients[0].allow[1] ended 2026-02-28'],
      ]),
    );
  });

  test('needs no client where everyone is served', async () => {
    const config = ['--config', 'config/minimal.yaml'];
    const { status, stdout } = await gateway([
      'policy',
      'explain',
      ...config,
      '--json',
      'GET',
      '/api/manuscripts/x',
    ]);
    expect([status, JSON.parse(stdout)]).toMatchObject([0, { client: 'anonymous', rule: 'anonymous' }]);
  });
});

describe('wrong usage of policy explain', () => {
  test.each([
    [
      ['--client', 'nobody', 'GET', '/'],
      'Name a client of the configuration with --client: reporting, importer, batch',
    ],
    [['get', '/'], 'get is not an HTTP method in capitals, such as GET'],
    [['GET'], "error: missing required argument 'target'"],
  ])('%j', async (args, message) => {
    const { status, stdout, stderr } = await explain(...args);
    expect([status, stdout, stderr.split('\n')[0]]).toEqual([2, '', message]);
  });

  test('no client, where nobody is anonymous', async () => {
    const file = join(folder, 'gateway.yaml');
    await writeFile(
      file,
      'credentials: { a: { username: { env: U }, password: { env: P } } }\ndeployments: { d: { baseUrl: "https://a.example", match: { host: a }, credential: a } }\nclients: [{ id: c, identify: { addresses: [10.0.0.1] } }]\n',
    );
    const { status, stderr } = await gateway(['policy', 'explain', '--config', file, 'GET', '/']);
    expect([status, stderr.split('\n')[0]]).toEqual([
      2,
      'Name a client of the configuration with --client: c',
    ]);
  });
});

describe('policy explain for a client whose rules are observed', () => {
  let folder: string;
  const until = new Date(Date.now() + 30 * 86_400_000).toISOString().slice(0, 10);
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'policy-'));
  });
  afterAll(() => rm(folder, { recursive: true }));

  const explained = async (day: string, ...words: string[]) => {
    const file = join(folder, `${day}.yaml`);
    await writeFile(
      file,
      `credentials: { a: { username: { env: U }, password: { env: P } } }
deployments: { d: { baseUrl: "https://a.example", match: { host: a }, credential: a } }
clients: [{ id: c, identify: { addresses: [10.0.0.1] }, allow: [{ deployment: d, methods: [GET] }], mode: { observe: true, until: ${day} } }]
`,
    );
    const { status, stdout } = await gateway([
      'policy',
      'explain',
      '--config',
      file,
      '--client',
      'c',
      '--host',
      'a',
      ...words,
    ]);
    return { status, stdout };
  };

  test('tells both verdicts', async () => {
    const { status, stdout } = await explained(until, 'POST', '/x');
    expect([status, stdout.split('\n').slice(0, 5)]).toEqual([
      0,
      [
        `allowed     by clients[0].mode, until ${until}`,
        'then        refused: 403 client-forbidden',
        expect.stringMatching(/^because {5}The client c may not use the method POST here\./),
        'decided by  clients[0].allow',
        'client      c',
      ],
    ]);
    const json = JSON.parse((await explained(until, '--json', 'POST', '/x')).stdout);
    expect(json).toMatchObject({
      allowed: true,
      rule: 'clients[0].mode',
      credential: 'a',
      credentialBy: 'deployments.d',
      wouldRefuse: { status: 403, code: 'client-forbidden', rule: 'clients[0].allow', until },
    });
  });

  test('tells one where the rules allow the request, and after the end', async () => {
    const allowed = JSON.parse((await explained(until, '--json', 'GET', '/x')).stdout);
    expect([allowed.rule, 'wouldRefuse' in allowed]).toEqual(['clients[0].allow[0]', false]);
    const refused = await explained('2026-01-31', '--json', 'POST', '/x');
    expect([refused.status, JSON.parse(refused.stdout)]).toMatchObject([
      1,
      { allowed: false, code: 'client-forbidden' },
    ]);
  });
});
