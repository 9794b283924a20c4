import { execFile } from 'node:child_process';
import { hash } from 'node:crypto';
import { Agent } from 'node:http';
import { promisify } from 'node:util';
import { describe, expect, test } from '@jest/globals';
import { auditOptions, recordsIn, useFolders } from '../../support/audit-log.ts';
import { basic, type Call, call, requestsOf } from '../../support/client-call.ts';
import { setupFor } from '../../support/gateway.ts';
import { authors, openScene } from '../../support/scene.ts';
import { needPackages } from '../../support/system-packages.ts';
import { useRunning } from '../../support/wire.ts';

const folder = useFolders();

describe('a client is identified by its address', () => {
  const clients = [
    { id: 'narrow', identify: { addresses: ['127.0.5.7'] } },
    { id: 'wide', identify: { addresses: ['127.0.5.0/24', '2001:db8::/32'] } },
    { id: 'balancer', identify: { addresses: ['127.0.9.1'] } },
  ].map((client) => ({ ...client, allow: [{ deployment: 'submissions' }] }));

  const direct = useRunning(() => openScene({ top: { anonymous: false, clients } }));
  const listen = { port: 0, trustedProxies: ['127.0.9.0/30'] };
  const proxied = useRunning(() => openScene({ top: { anonymous: false, clients, listen } }));
  const standard = useRunning(() =>
    openScene({ top: { anonymous: false, clients, listen: { ...listen, forwardedHeader: 'Forwarded' } } }),
  );

  /** Whom the gateway takes a call for: the client for which it is counted more than before. */
  async function takenFor({ gateway }: ReturnType<typeof direct>, call_: Call): Promise<string> {
    const ids = clients.map(({ id }) => id);
    const counts = () => Promise.all(ids.map((id) => requestsOf(gateway, id)));
    const before = await counts();
    const { status, code } = await call(gateway, call_);
    const after = await counts();
    const found = ids.filter((_, index) => after[index] !== before[index]);
    expect([status, code]).toEqual(found.length === 1 ? [200, ''] : [401, 'client-unknown']);
    return found.join();
  }

  describe('without trusted proxies', () => {
    test.each([
      ['an address of one client', '127.0.5.7', 'narrow'],
      ['another of the network', '127.0.5.8', 'wide'],
      ['an address of nobody', '127.0.6.1', ''],
    ])('%s', async (_title, from, client) => expect(await takenFor(direct(), { from })).toBe(client));

    test.each([
      ['X-Forwarded-For', '127.0.5.7'],
      ['X-Forwarded-For', '127.0.9.1, 127.0.5.7'],
      ['Forwarded', 'for=127.0.5.7'],
      ['X-Real-IP', '127.0.5.7'],
      ['True-Client-IP', '127.0.5.7'],
      ['Client-IP', '127.0.5.7'],
      ['Via', '1.1 127.0.5.7'],
    ])('%s: %s from an untrusted address has no effect', async (name, value) => {
      expect(await takenFor(direct(), { from: '127.0.6.1', headers: { [name]: value } })).toBe('');
      expect(await takenFor(direct(), { from: '127.0.5.8', headers: { [name]: value } })).toBe('wide');
    });
  });

  describe('behind trusted proxies', () => {
    const through = (value: string | string[], from = '127.0.9.1') => ({
      from,
      headers: { 'X-Forwarded-For': value },
    });

    test.each([
      ['the client', through('127.0.5.7'), 'narrow'],
      ['the client, over IPv6', through('[2001:db8::7]:4711'), 'wide'],
      ['the client, over two proxies', through('127.0.5.7, 127.0.9.2'), 'narrow'],
      ['what a stranger claims, left of its own address', through('127.0.5.7, 127.0.6.1'), ''],
      ['what a stranger claims, over two proxies', through('127.0.5.7, 127.0.6.1, 127.0.9.2'), ''],
      ['what a stranger claims on a line of its own', through(['127.0.5.7', '127.0.6.1']), ''],
      ['what is no address', through('127.0.5.7, unknown'), ''],
      ['the proxy for itself', through('127.0.9.1'), 'balancer'],
      ['the proxy without a word of the client', { from: '127.0.9.1' }, ''],
      ['a proxy that is not trusted', through('127.0.5.7', '127.0.9.4'), ''],
      ['the header that is not read', { from: '127.0.9.1', headers: { Forwarded: 'for=127.0.5.7' } }, ''],
      [
        'the header that is not read, beside the one that is',
        { from: '127.0.9.1', headers: { Forwarded: 'for=127.0.5.7', 'X-Forwarded-For': '127.0.6.1' } },
        '',
      ],
    ])('%s', async (_title, call_, client) => expect(await takenFor(proxied(), call_)).toBe(client));

    test('in Forwarded; X-Forwarded-For has no effect', async () => {
      const from = '127.0.9.1';
      const headers = {
        Forwarded: 'for=127.0.6.1, for="127.0.5.7:_x";proto=https',
        'X-Forwarded-For': '127.0.6.1',
      };
      expect(await takenFor(standard(), { from, headers })).toBe('narrow');
      expect(await takenFor(standard(), { from, headers: { 'X-Forwarded-For': '127.0.5.7' } })).toBe('');
    });

    test('and refused requests are recorded with the address of their sender', async () => {
      const directory = await folder();
      const key = { 'X-Api-Key': 'guessed' };
      await using scene = await openScene({
        audit: auditOptions(directory),
        top: { anonymous: false, clients, listen },
      });
      for (const sender of ['203.0.113.9', '203.0.113.9, 127.0.9.2', '2001:db8:9::1, 198.51.100.7']) {
        const headers = { ...key, ...through(sender).headers };
        const { status, detail } = await call(scene.gateway, { from: '127.0.9.1', headers });
        expect([status, detail]).toEqual([401, expect.stringMatching(/the address (?:203|198)/)]);
      }
      expect((await call(scene.gateway, { from: '127.0.9.1', headers: key })).status).toBe(401);
      await scene.gateway.app.close();
      const records = (await recordsIn(directory)).filter(({ kind }) => kind === 'access');
      const refused = { client: '', status: 401, code: 'client-unknown' };
      expect(records).toMatchObject(
        ['203.0.113.9', '203.0.113.9', '198.51.100.7', ''].map((address) => ({ ...refused, address })),
      );
    });

    test('and refused if the proxy sends none', async () => {
      const { detail } = await call(proxied().gateway, { from: '127.0.9.1' });
      expect(detail).toContain('no address (the proxy did not send it)');
    });
  });

  test('as a reload of the trusted proxies says, on open connections too', async () => {
    const { gateway } = direct();
    const agent = new Agent({ keepAlive: true, maxSockets: 1 });
    const headers = { 'X-Forwarded-For': '127.0.5.7' };
    const ask = async () => (await call(gateway, { from: '127.0.9.1', headers, agent })).status;
    expect([await ask(), await requestsOf(gateway, 'balancer')]).toEqual([200, 1]);
    const { origin } = direct().simulator.deployments.submissions;
    const setup = await setupFor(
      { submissions: { origin, ca: direct().simulator.ca } },
      { anonymous: false, clients, listen },
    );
    const before = await requestsOf(gateway, 'narrow');
    await gateway.app.reload(() => Promise.resolve(setup));
    expect([await ask(), await requestsOf(gateway, 'narrow')]).toEqual([200, before + 1]);
    expect(gateway.logged.map(({ msg }) => msg)).toEqual(['configuration reloaded']);
    agent.destroy();
  });

  test('also where anonymous clients are served', async () => {
    await using pair = await openScene({ top: { clients } });
    for (const from of ['127.0.5.7', '127.0.6.1', '127.0.6.2']) {
      expect((await call(pair.gateway, { from })).status).toBe(200);
    }
    const counts = ['narrow', 'anonymous', ''].map((client) => requestsOf(pair.gateway, client));
    expect(await Promise.all(counts)).toEqual([1, 2, 0]);
  });
});

describe('a client is identified by its API key', () => {
  const KEY = 'dgk_0123456789abcdef0123456789abcdef01234567';
  const FAR = 'dgk_ffffffffffffffffffffffffffffffffffffffff';
  const clients = [
    { id: 'far', identify: { addresses: ['127.0.7.0/24'], apiKeySha256: hash('sha256', FAR) } },
    { id: 'reporting', identify: { apiKeySha256: hash('sha256', KEY) } },
    { id: 'batch', identify: { addresses: ['127.0.8.1'] } },
  ].map((client) => ({ ...client, allow: [{ deployment: 'submissions' }] }));
  const pair = useRunning(() => openScene({ top: { anonymous: false, clients } }));
  const REFUSALS = 'digest_gateway_identification_refusals_total';

  /** The kind of connection that curl makes, with its own idea of what to send. */
  async function curl(...args: string[]): Promise<{ status: number; body: string }> {
    needPackages('curl');
    const { stdout } = await promisify(execFile)('curl', ['-sS', '-w', '\n%{http_code}', ...args]);
    const end = stdout.lastIndexOf('\n');
    return { status: Number(stdout.slice(end + 1)), body: stdout.slice(0, end) };
  }

  describe('which', () => {
    test('is sent in one header', async () => {
      const before = await requestsOf(pair().gateway, 'reporting');
      const { status, body } = await call(pair().gateway, { headers: { 'X-Api-Key': KEY } });
      expect([status, body]).toEqual([200, expect.stringContaining('SUCCESS')]);
      expect(await requestsOf(pair().gateway, 'reporting')).toBe(before + 1);
    });

    test('is the password of a client that uses Basic', async () => {
      const seen = await curl('-u', `reporting:${KEY}`, `${pair().gateway.origin}${authors}`);
      expect(seen).toEqual({ status: 200, body: expect.stringContaining('SUCCESS') });
    });

    test('is the password of a client that uses the gateway as a proxy', async () => {
      const { gateway, simulator } = pair();
      const { port } = simulator.deployments.submissions;
      const proxy = gateway.origin.replace('://', `://reporting:${KEY}@`);
      const seen = await curl('-x', proxy, '--noproxy', '', `http://127.0.0.1:${port}${authors}`);
      expect(seen).toEqual({ status: 200, body: expect.stringContaining('SUCCESS') });
    });

    test('does not reach the upstream', async () => {
      for (const headers of [{ 'X-Api-Key': KEY }, { Authorization: basic('reporting', KEY) }]) {
        const { status, body } = await call(pair().gateway, { headers, target: '/echo' });
        expect([status, body.includes(KEY), body.includes(basic('', KEY).slice(10))]).toEqual([
          200,
          false,
          false,
        ]);
      }
    });

    test('is not enough where the client also needs an address', async () => {
      const headers = { 'X-Api-Key': FAR };
      expect((await call(pair().gateway, { headers, from: '127.0.7.9' })).status).toBe(200);
      expect((await call(pair().gateway, { headers, from: '127.0.6.9' })).code).toBe('client-unknown');
    });

    test('is refused if it is wrong, whatever the address says', async () => {
      const headers = { 'X-Api-Key': 'wrong' };
      expect((await call(pair().gateway, { from: '127.0.8.1' })).status).toBe(200);
      expect((await call(pair().gateway, { headers, from: '127.0.8.1' })).code).toBe('client-unknown');
    });
  });

  describe('and somebody who guesses it', () => {
    const guesses: [string, Record<string, string | string[]>, string][] = [
      ['nothing', {}, 'none'],
      ['a key', { 'X-Api-Key': 'dgk_guess' }, 'api-key'],
      ['the key of another address', { 'X-Api-Key': FAR }, 'api-key'],
      ['a key for an id that exists', { Authorization: basic('reporting', 'guess') }, 'api-key'],
      ['a key for an id that does not', { Authorization: basic('nobody', 'guess') }, 'api-key'],
      ['the right key for another id', { Authorization: basic('batch', KEY) }, 'api-key'],
      ['the hash of a key', { 'X-Api-Key': hash('sha256', KEY) }, 'api-key'],
      ['a token where none is accepted', { Authorization: 'Bearer abc' }, 'none'],
      ['a key twice', { 'X-Api-Key': ['dgk_guess', 'dgk_guess'] }, 'malformed'],
    ];

    test.each(guesses)(
      '%s, is refused before the upstream hears of it, and counted',
      async (_title, headers, proof) => {
        const { gateway, simulator } = pair();
        const [seen, counted, nobody] = [
          simulator.counts('submissions').requests,
          await gateway.metric(REFUSALS, { proof }),
          await requestsOf(gateway, ''),
        ];
        expect(await call(gateway, { headers })).toMatchObject({ status: 401, code: 'client-unknown' });
        expect(simulator.counts('submissions').requests).toBe(seen);
        expect(await gateway.metric(REFUSALS, { proof })).toBe(counted + 1);
        expect(await requestsOf(gateway, '')).toBe(nobody + 1);
      },
    );

    test('gets the same response whether the id exists', async () => {
      const answers = [];
      for (const [id, key] of [
        ['reporting', 'guess'],
        ['nobody', 'guess'],
        ['batch', KEY],
        ['far', FAR],
      ] as const) {
        const { detail } = await call(pair().gateway, { headers: { Authorization: basic(id, key) } });
        answers.push(detail);
      }
      expect(new Set(answers)).toEqual(
        new Set([
          'The request does not identify a configured client. It has the address 127.0.0.1, a client id with an API key. Send everything that the configuration lists for the client under identify, and no other key, token or certificate.',
        ]),
      );
    });

    test('keeps nobody out: the right key works meanwhile', async () => {
      const guessing = Array.from({ length: 200 }, (_, index) =>
        call(pair().gateway, { headers: { 'X-Api-Key': `dgk_${index}` } }),
      );
      const right = Array.from({ length: 10 }, () => call(pair().gateway, { headers: { 'X-Api-Key': KEY } }));
      expect(new Set((await Promise.all(guessing)).map(({ status }) => status))).toEqual(new Set([401]));
      expect((await Promise.all(right)).map(({ status }) => status)).toEqual(Array(10).fill(200));
    });
  });

  test('which appears in no log and no metric', async () => {
    const { gateway } = pair();
    for (const key of [KEY, 'dgk_guess']) {
      await call(gateway, { headers: { 'X-Api-Key': key } });
      await call(gateway, { headers: { Authorization: basic('dgk_name', key) } });
    }
    const traces = `${JSON.stringify(gateway.logged)} ${await (await fetch(`${gateway.control}/metrics`)).text()}`;
    expect(traces).toContain('client="reporting"');
    expect(traces).not.toContain('dgk_');
    expect(traces).not.toContain(hash('sha256', KEY));
  });
});

describe('a client that is identified', () => {
  const allow = [{ deployment: 'submissions', methods: ['GET'] }];
  const running = useRunning(() =>
    openScene({
      top: {
        anonymous: false,
        clients: [
          { id: 'limited', identify: { addresses: ['127.0.5.1'] }, allow, limits: { rate: '1/h' } },
          { id: 'other', identify: { addresses: ['127.0.5.2'] }, allow },
          { id: 'idle', identify: { addresses: ['127.0.5.3'] } },
        ],
      },
    }),
  );

  test('may do nothing without rules, and is told so', async () => {
    const { gateway, simulator } = running();
    const before = simulator.counts('submissions').requests;
    expect(await call(gateway, { from: '127.0.5.3' })).toMatchObject({
      status: 403,
      code: 'client-forbidden',
      detail: expect.stringMatching(/\bclient idle\b/),
    });
    expect(simulator.counts('submissions').requests).toBe(before);
  });

  test('does not use the limit of another', async () => {
    const { gateway } = running();
    const statusFrom = async (from: string) => (await call(gateway, { from })).status;
    expect([await statusFrom('127.0.5.1'), await statusFrom('127.0.5.1')]).toEqual([200, 429]);
    expect([await statusFrom('127.0.5.2'), await statusFrom('127.0.5.2')]).toEqual([200, 200]);
    expect(await gateway.metric('digest_gateway_rate_limited_total', { client: 'limited' })).toBe(1);
  });
});
