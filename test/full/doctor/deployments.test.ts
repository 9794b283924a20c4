import dns, { type LookupOptions } from 'node:dns';
import { once } from 'node:events';
import type { RequestListener } from 'node:http';
import { syncBuiltinESMExports } from 'node:module';
import { type AddressInfo, createServer, type Socket } from 'node:net';
import { setTimeout } from 'node:timers/promises';
import { promisify } from 'node:util';
import { describe, expect, jest, test } from '@jest/globals';
import type { BehaviourChange } from '../../../src/simulator/settings.ts';
import {
  examined,
  findingOf,
  simulated,
  startSubmissions,
  verdicts,
  withSites,
} from '../../doctor/doctor-scene.ts';
import { closing } from '../../support/closing.ts';
import type { TestDeployment } from '../../support/gateway.ts';
import { createTestAuthority, createTestChain } from '../../support/issued-certificates.ts';
import { startApache } from '../../support/real-server.ts';
import { startRawUpstream, startUpstream } from '../../support/scripted-upstream.ts';
import { proxyAccount, startSquid } from '../../support/squid.ts';

const HEALTHY = [
  'egress  ok',
  'tls  ok',
  'challenge  ok',
  'clock  ok',
  'credential d ok',
  'access demo ok',
  'nonce d ok',
];
const CLEAR = { tls: { allowPlaintext: true } };
const DAY_MS = 86_400_000;

/** In place of the lookup of the system, for one test. */
function lookUpWith(
  finding: (name: string, options: LookupOptions, done: (...found: unknown[]) => void) => void,
): void {
  const { lookup } = dns;
  const { lookup: promised } = dns.promises;
  closing.push(async () => {
    Object.assign(dns, { lookup });
    Object.assign(dns.promises, { lookup: promised });
    syncBuiltinESMExports();
  });
  const marked = Object.defineProperties(finding, Object.getOwnPropertyDescriptors(lookup));
  Object.assign(dns, { lookup: marked });
  Object.assign(dns.promises, { lookup: (name: string) => promisify(dns.lookup)(name, {}) });
  syncBuiltinESMExports();
}

describe('a healthy upstream', () => {
  test('is told as it is', async () => {
    const simulator = await startSubmissions({ qop: 'auth', algorithms: ['MD5', 'SHA-256'] });
    const report = await examined(simulated(simulator));
    expect(verdicts(report)).toEqual(HEALTHY);
    expect(report).toMatchObject({ mark: 'ok', failures: 0, warnings: 0, gateway: [] });
    const [deployment] = report.deployments;
    expect(deployment?.probe).toBe(
      'HEAD /api/manuscripts/v2/submissions/full/contributors/authors/submissionids?site_name=demo',
    );
    expect(deployment?.findings.map(({ saw }) => saw)).toEqual([
      'from 127.0.0.1, chosen by the system',
      expect.stringMatching(
        /^TLSv1\.3, issued by CN=Simulator CA, expires \d{4}-\d\d-\d\d, (89|90) days left$/,
      ),
      'realm "ExampleApiService", SHA-256, qop auth, stale false, the strongest of 2',
      expect.any(String),
      'accepted',
      'HTTP 400, not refused',
      'accepted a second time, no nextnonce',
    ]);
  });

  test('Apache is one, through Squid, too', async () => {
    const [apache, squid] = await Promise.all([startApache(), startSquid()]);
    const { deployment } = apache;
    const direct = await examined(deployment);
    const proxied = await examined({ ...deployment, settings: { egress: { proxy: { url: squid.url } } } });
    const requests = await apache.stop();
    await Promise.all([apache.close(), squid.close()]);
    const wanted = HEALTHY.map((verdict) => verdict.replace('demo', 'd'));
    expect([verdicts(direct), verdicts(proxied)]).toEqual([wanted, wanted]);
    expect(proxied.deployments[0]?.findings[0]?.saw).toBe(
      `from 127.0.0.1, chosen by the system, through the proxy ${squid.url}`,
    );
    expect(requests.map(({ method, status }) => `${method} ${status}`)).toEqual([
      ...Array(2).fill(['HEAD 401', 'HEAD 401', 'HEAD 200', 'HEAD 200']).flat(),
    ]);
  });

  test('a nonce that serves once is no fault where nextnonce names the next', async () => {
    const report = await examined(
      simulated(await startSubmissions({ oneTimeNonces: true, nextnonce: 'always' })),
    );
    expect(verdicts(report)).toEqual(HEALTHY);
  });

  test('cookies of a challenge go back with its answer', async () => {
    expect(verdicts(await examined(simulated(await startSubmissions({ requireCookie: true }))))).toEqual(
      HEALTHY,
    );
  });
});

interface Row {
  readonly problem: string;
  readonly behaviour: BehaviourChange;
  readonly settings?: Record<string, unknown>;
  /** The observation, or the part of it that matters. */
  readonly found: readonly string[];
  readonly saw?: string;
  /** Authenticated attempts that reached the upstream. */
  readonly attempts?: number;
}

const rows: Row[] = [
  { problem: 'tls-expired', behaviour: { tls: 'expired' }, found: ['egress  ok', 'tls  tls-expired'] },
  {
    problem: 'tls-chain-incomplete',
    behaviour: { tls: 'foreign' },
    found: ['egress  ok', 'tls  tls-chain-incomplete'],
    saw: 'it sent no certificate of the authority that issued its own, and that authority is not trusted here: CN=Unknown CA',
  },
  {
    problem: 'tls-wrong-host',
    behaviour: { tls: 'wrong-host' },
    found: ['egress  ok', 'tls  tls-wrong-host'],
  },
  {
    problem: 'tls-too-old',
    behaviour: { tlsMaxVersion: 'TLSv1.2' },
    settings: { tls: { minVersion: 'TLSv1.3' } },
    found: ['egress  ok', 'tls  tls-too-old'],
  },
  {
    problem: 'tls-pin-mismatch',
    behaviour: {},
    settings: { tls: { pinSha256: [`${'A'.repeat(43)}=`] } },
    found: ['egress  ok', 'tls  tls-pin-mismatch'],
  },
  {
    problem: 'answer-timeout',
    behaviour: { faults: [{ kind: 'hang' }] },
    settings: { timeouts: { response: '100ms' } },
    found: ['egress  ok', 'connection  answer-timeout'],
  },
  {
    problem: 'not-http',
    behaviour: { faults: [{ kind: 'garbage' }] },
    found: ['egress  ok', 'connection  not-http'],
  },
  {
    problem: 'connection-broken',
    behaviour: { faults: [{ kind: 'reset-before-head' }] },
    found: ['egress  ok', 'connection  connection-broken'],
  },
  {
    problem: 'no-digest',
    behaviour: { faults: [{ kind: 'no-digest', offer: 'basic' }] },
    found: [...HEALTHY.slice(0, 2), 'challenge  no-digest', 'clock  ok'],
  },
  {
    problem: 'algorithm-not-allowed',
    behaviour: { algorithms: ['MD5'] },
    settings: { digest: { algorithms: ['SHA-256'] } },
    found: [...HEALTHY.slice(0, 2), 'challenge  algorithm-not-allowed', 'clock  ok'],
    saw: 'it offers MD5; digest.algorithms allows none of these',
  },
  {
    problem: 'upstream-unavailable',
    behaviour: { faults: [{ kind: 'status', status: 503 }] },
    found: [...HEALTHY.slice(0, 2), 'challenge  upstream-unavailable', 'clock  ok'],
  },
  {
    problem: 'upstream-rate-limited',
    behaviour: { faults: [{ kind: 'throttle', status: 429, when: 'authenticated' }] },
    found: [...HEALTHY.slice(0, 4), 'credential d upstream-rate-limited'],
    saw: 'HTTP 429: too many requests',
    attempts: 1,
  },
  {
    problem: 'credential-refused',
    behaviour: { accounts: [{ username: 'demo-user', password: 'another', sites: ['demo'] }] },
    found: [...HEALTHY.slice(0, 4), 'credential d credential-refused'],
    attempts: 1,
  },
  {
    problem: 'proof-invalid',
    behaviour: { qop: 'auth', rspauth: 'wrong' },
    found: [...HEALTHY.slice(0, 4), 'credential d proof-invalid'],
    attempts: 1,
  },
  {
    problem: 'nonce-always-stale',
    behaviour: { faults: [{ kind: 'endless-401', stale: true, when: 'authenticated' }] },
    found: [...HEALTHY.slice(0, 4), 'nonce d nonce-always-stale'],
    attempts: 2,
  },
  {
    problem: 'nonce-not-reusable',
    behaviour: { oneTimeNonces: true },
    found: [...HEALTHY.slice(0, 6), 'nonce d nonce-not-reusable'],
    attempts: 2,
  },
  {
    problem: 'credential-unproven',
    behaviour: { allowedAddresses: ['127.0.0.2'] },
    found: [...HEALTHY.slice(0, 4), 'credential d credential-unproven'],
    saw: 'not known: HTTP 403 without Authentication-Info, from 127.0.0.1',
    attempts: 1,
  },
  {
    problem: 'refused-afterwards',
    behaviour: { allowedAddresses: ['127.0.0.2'], rspauth: 'right' },
    found: [...HEALTHY.slice(0, 5), 'access demo refused-afterwards', 'nonce d ok'],
    saw: 'HTTP 403 after Digest succeeded, from 127.0.0.1',
  },
  {
    problem: 'refused-afterwards',
    behaviour: { allowedAddresses: ['127.0.0.2'], addressRefusalStatus: 401 },
    found: [...HEALTHY.slice(0, 5), 'access demo refused-afterwards', 'nonce d nonce-not-reusable'],
    saw: 'HTTP 401 after Digest succeeded, from 127.0.0.1',
  },
  {
    problem: 'site-refused',
    behaviour: {},
    settings: withSites('journal-a'),
    found: [...HEALTHY.slice(0, 5), 'access journal-a site-refused', 'nonce d ok'],
    saw: 'HTTP 500 after Digest succeeded',
  },
  {
    problem: 'probe-not-served',
    behaviour: {},
    settings: { operations: {} },
    found: [...HEALTHY.slice(0, 5), 'access demo probe-not-served', 'nonce d ok'],
  },
];

describe('each problem has its name, and one sentence of advice', () => {
  test.each(rows)('$problem', async ({ behaviour, settings, found, saw, problem, attempts }) => {
    const simulator = await startSubmissions(behaviour);
    const report = await examined(simulated(simulator, { ...withSites('demo'), ...settings }));
    expect(verdicts(report)).toEqual(found);
    const finding = findingOf(report, problem);
    expect(finding.advice).toMatch(/^[A-Z][^.]+(\.\w[^.]*)*\.$/);
    // Keys stand with their whole path.
    expect(finding.advice).not.toMatch(/[{}]|(?<!\.)\b(?:baseUrl|digest|tls|egress)\b(?=\.|$)/);
    if (saw !== undefined) expect(finding.saw).toBe(saw);
    const { requests, unauthenticated } = simulator.counts('submissions');
    if (attempts !== undefined) expect(requests - unauthenticated).toBe(attempts);
  });
});

describe('a chain of certificates that cannot be verified: what is missing is named', () => {
  const rows = [
    ['an intermediate authority', false, 'root', 'tls-chain-incomplete', 'CN=Test Intermediate'],
    ['the root', true, 'intermediate', 'tls-root-missing', 'CN=Test Root'],
    ['the root of a certificate without chain', false, 'intermediate', 'tls-root-missing', 'CN=Test Root'],
    ['all of its authorities', true, 'other', 'tls-unknown-authority', 'CN=Test Root'],
  ] as const;

  test.each(rows)('%s', async (_title, isWhole, trusted, problem, name) => {
    const { root, intermediate, server } = await createTestChain();
    const cert = isWhole ? `${server.cert}\n${intermediate}` : server.cert;
    const upstream = await startUpstream((_request, response) => response.end(), { cert, key: server.key });
    const { ca: other } = await createTestAuthority();
    const report = await examined({ origin: upstream.origin, ca: { root, intermediate, other }[trusted] });
    await upstream.close();
    const { saw, advice } = findingOf(report, problem);
    expect(saw).toMatch(new RegExp(`: ${name}$`));
    expect(advice).toContain('deployments.d.tls.caFile');
    if (problem === 'tls-chain-incomplete') expect(advice).toContain('ask its operator to send it, too');
  });
});

describe('where the connection goes', () => {
  test('a name that DNS does not know', async () => {
    const report = await examined({ origin: 'https://upstream.invalid' });
    // A resolver may be unable to ask anybody: both say that it is the name.
    expect(verdicts(report)[1]).toMatch(/^connection {2}name-not-(found|answered)$/);
  });

  test('a name server that does not answer, while the address that the system would choose is looked up', async () => {
    lookUpWith(() => undefined);
    const settings = { egress: { localAddress: '203.0.113.7' } };
    const report = await examined({ origin: 'https://upstream.example', settings });
    expect(findingOf(report, 'address-not-here').saw).toBe('203.0.113.7 is not an address of this host');
  });

  test('the address of this host that connections leave from, where the first address of the name is dead', async () => {
    const simulator = await startSubmissions();
    await using plain = await startUpstream((_request, response) => response.writeHead(404).end());
    const first = { address: '::1', family: 6 };
    const found = [first, { address: '127.0.0.1', family: 4 }];
    lookUpWith((_name, { all }, done) =>
      all === true ? done(null, found) : done(null, first.address, first.family),
    );
    const saw = async ({ origin, ...rest }: TestDeployment) => {
      const report = await examined({ ...rest, origin: origin.replace('127.0.0.1', 'localhost') });
      return report.deployments[0]?.findings[0]?.saw;
    };
    const fromThere = 'from 127.0.0.1, chosen by the system';
    expect(await saw(simulated(simulator))).toBe(fromThere);
    expect(await saw({ origin: plain.origin, settings: CLEAR })).toBe(fromThere);
  });

  test('a port where nobody listens', async () => {
    const upstream = await startUpstream(() => {});
    await upstream.close();
    const report = await examined({ origin: upstream.origin.replace('http:', 'https:') });
    expect(findingOf(report, 'connection-refused').check).toBe('connection');
  });

  test('plain HTTP on the port', async () => {
    const asked: (string | undefined)[] = [];
    const upstream = await startUpstream((request, response) => {
      asked.push(`${request.method} ${request.url}`);
      response.end();
    });
    const report = await examined({ origin: upstream.origin.replace('http:', 'https:') });
    await upstream.close();
    expect(findingOf(report, 'not-https').saw).toBe('plain HTTP answers on that port');
    expect(asked).toEqual(['HEAD /']);
  });

  test('something else than TLS and HTTP on the port', async () => {
    const upstream = await startServer((socket) => socket.end('220 mail.example.org ESMTP\r\n'));
    const report = await examined({ origin: upstream.origin });
    await upstream.close();
    expect(findingOf(report, 'tls-not-tls').advice).toBe('Check scheme and port.');
  });

  test('a port that accepts and never answers ends within the time for all', async () => {
    const upstream = await startServer(() => undefined);
    const begun = performance.now();
    const report = await examined({ origin: upstream.origin });
    const took = performance.now() - begun;
    await upstream.close();
    expect(findingOf(report, 'handshake-timeout').saw).toBe(
      'it accepted the connection, and took too long for TLS',
    );
    expect(took).toBeLessThan(10_000);
  });

  test('an address that this host does not have, before anything is sent', async () => {
    const simulator = await startSubmissions();
    const settings = { ...withSites('demo'), egress: { localAddress: '203.0.113.7' } };
    const report = await examined(simulated(simulator, settings));
    expect(verdicts(report)).toEqual(['egress  address-not-here']);
    expect(findingOf(report, 'address-not-here').saw).toBe(
      '203.0.113.7 is not an address of this host; the system would choose 127.0.0.1',
    );
    expect(simulator.counts('submissions').connections).toBe(0);
  });

  test('the address that is registered', async () => {
    const simulator = await startSubmissions({ allowedAddresses: ['127.0.0.2'] });
    const settings = { ...withSites('demo'), egress: { localAddress: '127.0.0.2' } };
    const report = await examined(simulated(simulator, settings));
    expect(verdicts(report)).toEqual(HEALTHY);
    expect(report.deployments[0]?.findings[0]?.saw).toBe('from 127.0.0.2');
  });

  test('each of several addresses, of which one is not registered and one is not on this host', async () => {
    const simulator = await startSubmissions({ allowedAddresses: ['127.0.0.2'] });
    const localAddress = ['127.0.0.2', '127.0.0.3', '203.0.113.7'];
    const report = await examined(simulated(simulator, { ...withSites('demo'), egress: { localAddress } }));
    const [registered, unknown, missing] = report.deployments.map(({ findings }) => findings);
    expect(registered?.every(({ mark }) => mark === 'ok')).toBe(true);
    expect(unknown?.[0]?.saw).toBe('from 127.0.0.3');
    expect(unknown?.some(({ mark }) => mark === 'fail')).toBe(true);
    expect(missing?.map(({ problem }) => problem)).toEqual(['address-not-here']);
  });

  describe('a proxy with a credential', () => {
    const examinedThrough = async (proxy: (url: string) => object, digest = {}) => {
      const [squid, simulator] = await Promise.all([
        startSquid({ auth: 'digest' }),
        startSubmissions({ algorithms: ['MD5', 'SHA-256'] }),
      ]);
      const settings = {
        ...withSites('demo'),
        digest,
        egress: { proxy: { credential: 'proxy', ...proxy(squid.url) } },
      };
      const username = { value: proxyAccount.username };
      const password = { value: proxyAccount.password };
      const report = await examined(simulated(simulator, settings), {
        top: { credentials: { proxy: { username, password } } },
      });
      await squid.close();
      return report;
    };

    test('whose challenge digest.algorithms does not allow', async () => {
      const report = await examinedThrough((url) => ({ url }), { algorithms: ['SHA-256'] });
      const { saw, advice } = findingOf(report, 'proxy');
      expect([saw, advice]).toEqual([
        'The proxy offers no Digest challenge with qop and an algorithm that digest.algorithms allows',
        'Allow its algorithm there, or ask its operator for another one, or for qop.',
      ]);
    });

    test('that others on the network can read or guess', async () => {
      const report = await examinedThrough((url) => ({
        // Reaches this machine on Linux, and is no loopback address.
        url: url.replace('127.0.0.1', '0.0.0.0'),
        allowPlaintext: true,
      }));
      expect(report).toMatchObject({ mark: 'warn', failures: 0, warnings: 1 });
      expect(findingOf(report, 'proxy-plaintext')).toMatchObject({
        check: 'egress',
        mark: 'warn',
        saw: expect.stringMatching(/, through the proxy http:\/\/0\.0\.0\.0:\d+, no TLS$/),
        advice: expect.stringContaining('https:// in deployments.d.egress.proxy.url'),
      });
    });
  });

  test('a proxy that is not there is not taken for the upstream', async () => {
    const simulator = await startSubmissions();
    const proxy = await startUpstream(() => {});
    await proxy.close();
    const settings = { ...withSites('demo'), egress: { proxy: { url: proxy.origin } } };
    const { saw, advice } = findingOf(await examined(simulated(simulator, settings)), 'proxy');
    expect([saw, advice]).toEqual([
      'The proxy refused the connection (egress.proxy.url)',
      'Check host and port, and whether it runs.',
    ]);
  });
});

describe('an answer to a request without authentication', () => {
  const asked = async (status: number, headers: Record<string, string> = {}) => {
    const upstream = await startUpstream((_request, response) => response.writeHead(status, headers).end());
    const report = await examined({ origin: upstream.origin, settings: CLEAR });
    await upstream.close();
    return verdicts(report).slice(1, 3);
  };

  test.each([
    [200, 'no-challenge'],
    [404, 'no-challenge'],
    [403, 'refused-unasked'],
    [423, 'upstream-locked'],
    [429, 'upstream-rate-limited'],
    [500, 'upstream-error'],
    [502, 'upstream-unavailable'],
  ])('HTTP %i: %s', async (status, problem) => {
    expect(await asked(status)).toEqual(['tls  plaintext', `challenge  ${problem}`]);
  });

  test.each([
    ['a nonce', `Digest realm="r", nonce="${'n'.repeat(4097)}"`],
    ['a field', `Digest realm="r", nonce="n", domain="${'/'.repeat(16 * 1024)}"`],
  ])('a challenge with %s that is too long', async (_case, line) => {
    const found = await asked(401, { 'www-authenticate': line });
    expect(found).toEqual(['tls  plaintext', 'challenge  challenge-too-long']);
  });

  test('a challenge with an algorithm that nobody knows', async () => {
    const challenge = { 'www-authenticate': 'Digest realm="r", nonce="n", algorithm=SHA-1' };
    expect(await asked(401, challenge)).toEqual(['tls  plaintext', 'challenge  challenge-unusable']);
  });

  test.each([
    ['without a realm', 'nonce="n"', 'challenge  realm-missing', 0],
    ['with an empty realm', 'realm="", nonce="n"', 'challenge  ok', 1],
  ])('a challenge %s', async (_case, parameters, verdict, attempts) => {
    let answers = 0;
    const upstream = await startUpstream(({ headers: { authorization } }, response) => {
      if (authorization !== undefined) answers += 1;
      response.writeHead(401, { 'www-authenticate': `Digest ${parameters}` }).end();
    });
    const report = await examined({ origin: upstream.origin, settings: CLEAR });
    await upstream.close();
    expect(verdicts(report)[2]).toBe(verdict);
    expect(answers).toBe(attempts);
  });

  test('a head whose lines end without CR is named so', async () => {
    const upstream = await startRawUpstream(
      () => 'HTTP/1.1 401 No\nContent-Length: 0\nWWW-Authenticate: Digest realm="r", nonce="n"\n\n',
    );
    const report = await examined({ origin: upstream.origin, settings: CLEAR });
    await upstream.close();
    expect(findingOf(report, 'not-http').saw).toBe(
      'The response of the upstream is not HTTP/1.1 or HTTP/1.0: a line ends without CR',
    );
  });

  test('a realm cannot write to the terminal', async () => {
    const upstream = await startRawUpstream(
      () =>
        'HTTP/1.1 401 No\r\ncontent-length: 0\r\nwww-authenticate: Digest realm="a\x9b31mb", nonce="n"\r\n\r\n',
    );
    const report = await examined({ origin: upstream.origin, settings: CLEAR });
    await upstream.close();
    const challenge = report.deployments[0]?.findings.find(({ check }) => check === 'challenge');
    expect(challenge?.saw).toContain('realm "a?31mb"');
    expect(challenge?.facts?.['realm']).toBe('a?31mb');
  });
});

describe('a server that does not support HEAD', () => {
  const digest = { 'www-authenticate': 'Digest realm="r", nonce="n", qop="auth"' };
  const closes: RequestListener = ({ socket }) => socket.destroy();
  const responds =
    (status: number): RequestListener =>
    (_request, response) =>
      response.writeHead(status).end();

  test.each<[string, string, RequestListener]>([
    ['closes the connection', 'HEAD closes the connection', closes],
    ['responds with 405', 'HEAD gets HTTP 405', responds(405)],
    ['responds with 501', 'HEAD gets HTTP 501', responds(501)],
    ['responds with a bare 401', 'HEAD gets HTTP 401 without a challenge', responds(401)],
  ])('and %s is asked with GET', async (_case, reason, onHead) => {
    const asked: (string | undefined)[] = [];
    const upstream = await startUpstream((request, response) => {
      asked.push(request.method);
      if (request.method === 'HEAD') return onHead(request, response);
      const accepted = request.headers.authorization !== undefined;
      response.writeHead(accepted ? 200 : 401, accepted ? {} : digest).end();
    });
    const report = await examined({ origin: upstream.origin, settings: CLEAR });
    await upstream.close();
    expect(verdicts(report).slice(2)).toEqual([
      'challenge  ok',
      'clock  ok',
      'credential d ok',
      'access d ok',
      'nonce d ok',
    ]);
    const challenge = report.deployments[0]?.findings.find(({ check }) => check === 'challenge');
    expect(challenge?.saw).toBe(`realm "r", MD5, qop auth, stale false; asked with GET, since ${reason}`);
    expect(challenge?.facts?.['method']).toBe('GET');
    expect(asked).toEqual(['HEAD', 'GET', 'GET', 'GET', 'GET']);
  });
});

describe('a server that gives one nonce to all who ask within a second', () => {
  const SHARED = { qop: 'auth', nc: 'rising', sharedNonceMs: 1_000, staleFlag: 'never' } as const;

  test.each<[string, (asked: number, answered: number) => boolean]>([
    ['the nonce that another client used: the next nonce is answered', (asked) => asked < 5],
    [
      'a nonce of the second that has just ended: the one of now is answered',
      (_, answered) => answered === 0,
    ],
  ])('refuses %s', async (_what, isFirst) => {
    const answered: (string | undefined)[] = [];
    let asked = 0;
    const upstream = await startUpstream(({ headers: { authorization } }, response) => {
      const [, nonce] = /nonce="(\w+)"/.exec(authorization ?? '') ?? [];
      if (authorization === undefined) asked += 1;
      else answered.push(nonce);
      const current = isFirst(asked, answered.length) ? 'first' : 'second';
      if (nonce === 'second') response.writeHead(200).end();
      else response.writeHead(401, { 'www-authenticate': `Digest realm="r", nonce="${current}"` }).end();
    });
    const report = await examined({ origin: upstream.origin, settings: CLEAR });
    await upstream.close();
    expect(verdicts(report).slice(4)).toEqual(['credential d ok', 'access d ok', 'nonce d ok']);
    expect(answered).toEqual(['first', 'second', 'second']);
  });

  test('accepts the credential of two doctors that run at once', async () => {
    const simulator = await startSubmissions(SHARED);
    const reports = await Promise.all([1, 2].map(() => examined(simulated(simulator))));
    expect(reports.map(verdicts)).toEqual([HEALTHY, HEALTHY]);
  });

  test('refuses a wrong password all the same, after two attempts', async () => {
    const accounts = [{ username: 'demo-user', password: 'another', sites: ['demo'] }];
    const simulator = await startSubmissions({ ...SHARED, accounts });
    const report = await examined(simulated(simulator));
    expect(findingOf(report, 'credential-refused').subject).toBe('d');
    expect(simulator.counts('submissions').refused['wrong-response']).toBeLessThanOrEqual(2);
  });
});

describe('credentials and sites', () => {
  test('three attempts with one credential are the most, however many sites it has', async () => {
    const sites = ['demo', 'b', 'c', 'e'];
    const accounts = [{ username: 'demo-user', password: 'demo-api-key', sites: ['demo', 'b', 'c', 'e'] }];
    const simulator = await startSubmissions({ accounts });
    const report = await examined(simulated(simulator, withSites(...sites)));
    expect(verdicts(report).slice(4)).toEqual([
      'credential d ok',
      'access demo ok',
      'nonce d ok',
      'access b ok',
      'access c ok',
      'access e not-examined',
    ]);
    expect(simulator.counts('submissions').accepted).toBe(3);
    expect(report).toMatchObject({ mark: 'warn', failures: 0, warnings: 1 });
  });

  /** Examines three sites, and more, of an upstream that responds to Digest with these statuses. */
  const examinedSites = async (respond: (site: string, isFirstUse: boolean) => number, ...more: string[]) => {
    const used = new Set<string>();
    let issued = 0;
    const upstream = await startUpstream(({ url = '', headers: { authorization } }, response) => {
      const [, nonce] = /nonce="(\w+)"/.exec(authorization ?? '') ?? [];
      const site = new URL(url, 'http://upstream').searchParams.get('site_name') ?? '';
      const status = nonce === undefined ? 401 : respond(site, !used.has(nonce));
      if (nonce !== undefined) used.add(nonce);
      issued += 1;
      const challenge = { 'www-authenticate': `Digest realm="r", nonce="n${issued}", qop="auth"` };
      response.writeHead(status, status === 401 ? challenge : {}).end();
    });
    const settings = { ...withSites('a', 'b', 'c', ...more), ...CLEAR };
    const report = await examined({ origin: upstream.origin, settings });
    await upstream.close();
    return verdicts(report).slice(4);
  };

  test.each<[string, (site: string, isFirstUse: boolean) => number, string[]]>([
    [
      'a site that refuses the credential is not taken for a nonce that serves once',
      (site) => (site === 'b' ? 401 : 200),
      ['access b site-refused', 'access c not-examined'],
    ],
    [
      'a nonce that serves once is not taken for a site that refuses the credential',
      (_site, isFirstUse) => (isFirstUse ? 200 : 401),
      ['nonce d nonce-not-reusable', 'access b ok', 'access c not-examined'],
    ],
    [
      'an upstream that is overloaded at the second use of a nonce has not accepted it',
      (_site, isFirstUse) => (isFirstUse ? 200 : 429),
      ['nonce d upstream-rate-limited', 'access b upstream-rate-limited', 'access c upstream-rate-limited'],
    ],
    [
      'an account that is locked at the second use of a nonce has not accepted it',
      (_site, isFirstUse) => (isFirstUse ? 200 : 423),
      ['nonce d upstream-locked', 'access b upstream-locked', 'access c upstream-locked'],
    ],
  ])('%s', async (_what, respond, expected) => {
    expect(await examinedSites(respond)).toEqual(['credential d ok', 'access a ok', ...expected]);
  });

  test.each<[string, string, string[]]>([
    ['the first site', 'a', ['access b ok', 'nonce d ok', 'access c ok']],
    ['the first two sites', 'ab', ['access b refused-afterwards', 'access c ok', 'nonce d ok']],
  ])('a 403 of %s keeps doctor from no other', async (_which, denied, expected) => {
    const found = await examinedSites((site) => (denied.includes(site) ? 403 : 200));
    expect(found).toEqual(['credential d ok', 'access a refused-afterwards', ...expected]);
  });

  test('a 403 of every site says nothing of the credential', async () => {
    expect(await examinedSites(() => 403)).toEqual(['credential d credential-unproven']);
    const more = await examinedSites(() => 403, 'e');
    expect(more).toEqual(['credential d credential-unproven', 'access e not-examined']);
  });

  test('a 401 of another site after a 403 is a refusal of the credential', async () => {
    const found = await examinedSites((site) => (site === 'a' ? 403 : 401));
    expect(found).toEqual(['credential d credential-refused']);
  });

  test('no nonce is used again where digest.noncePolicy is single-use: that would be a failed log-in', async () => {
    const accounts = [{ username: 'demo-user', password: 'demo-api-key', sites: ['demo', 'b', 'c', 'e'] }];
    const simulator = await startSubmissions({ accounts, oneTimeNonces: true });
    const settings = { ...withSites('demo', 'b', 'c', 'e'), digest: { noncePolicy: 'single-use' } };
    expect(verdicts(await examined(simulated(simulator, settings))).slice(4)).toEqual([
      'credential d ok',
      'access demo ok',
      'nonce d ok',
      'access b ok',
      'access c ok',
      'access e not-examined',
    ]);
    const { requests, unauthenticated, accepted } = simulator.counts('submissions');
    expect([requests - unauthenticated, accepted]).toEqual([3, 3]);
  });

  test('each credential is examined, and what is to take its place', async () => {
    const accounts = [{ username: 'demo-user', password: 'demo-api-key', sites: ['demo'] }];
    const simulator = await startSubmissions({ accounts });
    const username = { value: 'demo-user' };
    const credentials = {
      d: { username, password: { value: 'demo-api-key' }, next: { password: { value: 'mistyped' } } },
      other: { username: { value: 'nobody' }, password: { value: 'x' } },
    };
    const settings = withSites('demo');
    const sites = { demo: { credential: 'd' }, else: { credential: 'other' } };
    const report = await examined(simulated(simulator, { ...settings, sites }), { top: { credentials } });
    expect(verdicts(report).slice(4)).toEqual([
      'credential d ok',
      'access demo with d ok',
      'nonce d ok',
      'credential d (next) credential-refused',
      'credential other credential-refused',
    ]);
  });

  test('those that the time of doctor is not enough for are no failures', async () => {
    const timers = jest.spyOn(globalThis, 'setTimeout');
    const answered = { e: 0, f: 0 };
    const upstream = await startUpstream(({ headers: { authorization = '' } }, response) => {
      const user = /username="([ef])"/.exec(authorization)?.[1] as 'e' | 'f' | undefined;
      if (user === undefined) {
        response.writeHead(401, { 'www-authenticate': 'Digest realm="r", nonce="n", qop="auth"' }).end();
        return;
      }
      answered[user] += 1;
      if (user === 'f' && answered.f === 1) response.end();
      // No other request gets a response before the time is over.
      if (answered.e === 1 && answered.f === 2) timers.mock.calls.find(([, ms]) => ms === 8_000)?.[0]();
    });
    const credentials = Object.fromEntries(
      ['e', 'f'].map((name) => [name, { username: { value: name }, password: { value: 'x' } }]),
    );
    const sites = { first: { credential: 'e' }, second: { credential: 'f' } };
    const settings = { ...withSites(), ...CLEAR, sites };
    const report = await examined({ origin: upstream.origin, settings }, { top: { credentials } });
    timers.mockRestore();
    await upstream.close();
    expect(verdicts(report).slice(4)).toEqual([
      'credential e not-reached',
      'credential f ok',
      'access second ok',
      'nonce f not-reached',
    ]);
    expect(report.failures).toBe(0);
  });

  test('a hash of another realm', async () => {
    const md5 = { value: '0'.repeat(32) };
    const credentials = { d: { username: { value: 'demo-user' }, ha1: { realm: 'Other', md5 } } };
    const simulator = await startSubmissions();
    const report = await examined(simulated(simulator), { top: { credentials } });
    expect(findingOf(report, 'credential-unsuitable').subject).toBe('d');
    expect(simulator.counts('submissions').accepted).toBe(0);
  });

  test.each(['accepted', 'refused'])('no secret, nonce or answer is in the report: %s', async (outcome) => {
    const sent: string[] = [];
    const challenge = {
      'www-authenticate': 'Digest realm="r", nonce="marked-nonce", opaque="marked-opaque"',
    };
    const upstream = await startUpstream(({ headers: { authorization } }, response) => {
      if (authorization !== undefined)
        sent.push(...authorization.split('"').filter((part) => part.length > 20));
      const good = authorization !== undefined && outcome === 'accepted';
      response.writeHead(
        good ? 200 : 401,
        good ? { 'authentication-info': 'nextnonce="marked-next"' } : challenge,
      );
      response.end();
    });
    const { origin } = upstream;
    const report = await examined({
      origin,
      settings: CLEAR,
      username: 'marked-user',
      password: 'marked-secret',
    });
    await upstream.close();
    expect(sent.length).toBe(outcome === 'accepted' ? 2 : 1);
    const text = JSON.stringify(report);
    for (const secret of ['marked-', ...sent]) expect(text).not.toContain(secret);
  });
});

describe('time', () => {
  test('a clock that is off is a warning with the direction', async () => {
    const simulator = await startSubmissions();
    const report = await examined(simulated(simulator), { clockOffMs: 90_000 });
    const { saw, mark } = findingOf(report, 'clock-difference');
    expect(mark).toBe('warn');
    expect(saw).toMatch(/^the upstream is (89|90) seconds behind this host$/);
  });

  test('a second that begins while a response is under way is no difference of the clocks', async () => {
    const upstream = await startUpstream(async (_request, response) => {
      const arrived = new Date();
      await setTimeout(1000 - arrived.getMilliseconds());
      response.writeHead(200, { date: arrived.toUTCString() }).end();
    });
    const report = await examined({ origin: upstream.origin, settings: CLEAR });
    await upstream.close();
    expect(report.deployments[0]?.findings.find(({ check }) => check === 'clock')).toMatchObject({
      mark: 'ok',
      saw: 'the same as here',
    });
  });

  test('a certificate that expires within 30 days is a warning', async () => {
    const simulator = await startSubmissions();
    const report = await examined(simulated(simulator), { clockOffMs: 70 * DAY_MS });
    expect(findingOf(report, 'certificate-expires-soon')).toMatchObject({
      mark: 'warn',
      saw: expect.stringMatching(/, (19|20) days left$/),
    });
  });
});

/** A TCP server under the name of an HTTPS one. */
async function startServer(onSocket: (socket: Socket) => void) {
  const sockets = new Set<Socket>();
  const server = createServer((socket) => {
    sockets.add(socket.on('error', () => undefined));
    onSocket(socket);
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    origin: `https://127.0.0.1:${(server.address() as AddressInfo).port}`,
    close: async () => {
      for (const socket of sockets) socket.destroy();
      server.close();
      await once(server, 'close');
    },
  };
}

test('a credential that a rule of a client names is tried with a site that the rule allows', async () => {
  const simulator = await startSubmissions();
  const client = {
    id: 'reporting',
    identify: { addresses: ['10.0.0.1'] },
    allow: [{ deployment: 'd', sites: ['demo'], credential: 'account' }],
  };
  const account = { username: { value: 'demo-user' }, password: { value: 'demo-api-key' } };
  const report = await examined(simulated(simulator), {
    top: { clients: [client], credentials: { account } },
  });
  expect(verdicts(report).filter((verdict) => /^(?:credential|access) /.test(verdict))).toEqual([
    'credential d ok',
    'access demo with d ok',
    'credential account ok',
    'access demo with account ok',
  ]);
});
