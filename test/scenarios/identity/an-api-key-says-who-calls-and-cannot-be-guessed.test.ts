import { execFile } from 'node:child_process';
import { hash } from 'node:crypto';
import { promisify } from 'node:util';
import { describe, expect, test } from '@jest/globals';
import { basic, call, requestsOf } from '../../support/caller.ts';
import { authors, openPair } from '../../support/simulated-pair.ts';
import { useRunning } from '../../support/wire.ts';

const KEY = 'dgk_0123456789abcdef0123456789abcdef01234567';
const FAR = 'dgk_ffffffffffffffffffffffffffffffffffffffff';
const clients = [
  { id: 'far', identify: { addresses: ['127.0.7.0/24'], apiKeySha256: hash('sha256', FAR) } },
  { id: 'reporting', identify: { apiKeySha256: hash('sha256', KEY) } },
  { id: 'batch', identify: { addresses: ['127.0.8.1'] } },
].map((client) => ({ ...client, allow: [{ deployment: 'submissions' }] }));
const pair = useRunning(() => openPair({ top: { anonymous: false, clients } }));
const REFUSALS = 'digest_gateway_identification_refusals_total';

/** The kind of connection that curl makes, with its own idea of what to send. */
async function curl(...args: string[]): Promise<{ status: number; body: string }> {
  const { stdout } = await promisify(execFile)('curl', ['-sS', '-w', '\n%{http_code}', ...args]);
  const end = stdout.lastIndexOf('\n');
  return { status: Number(stdout.slice(end + 1)), body: stdout.slice(0, end) };
}

describe('a key that is right', () => {
  test('is one header', async () => {
    const before = await requestsOf(pair().gateway, 'reporting');
    const { status, body } = await call(pair().gateway, { headers: { 'X-Api-Key': KEY } });
    expect([status, body]).toEqual([200, expect.stringContaining('SUCCESS')]);
    expect(await requestsOf(pair().gateway, 'reporting')).toBe(before + 1);
  });

  test('is the password of a legacy application that knows Basic only', async () => {
    const seen = await curl('-u', `reporting:${KEY}`, `${pair().gateway.origin}${authors}`);
    expect(seen).toEqual({ status: 200, body: expect.stringContaining('SUCCESS') });
  });

  test('is the password of an application that has the gateway for its proxy', async () => {
    const { gateway, simulator } = pair();
    const { port } = simulator.deployments.submissions;
    const proxy = gateway.origin.replace('://', `://reporting:${KEY}@`);
    const seen = await curl('-x', proxy, '--noproxy', '', `http://127.0.0.1:${port}${authors}`);
    expect(seen).toEqual({ status: 200, body: expect.stringContaining('SUCCESS') });
  });

  test('goes no further than the gateway', async () => {
    for (const headers of [{ 'X-Api-Key': KEY }, { Authorization: basic('reporting', KEY) }]) {
      const { status, body } = await call(pair().gateway, { headers, target: '/echo' });
      expect([status, body.includes(KEY), body.includes(basic('', KEY).slice(10))]).toEqual([
        200,
        false,
        false,
      ]);
    }
  });

  test('is not enough where the client has to have an address, too', async () => {
    const headers = { 'X-Api-Key': FAR };
    expect((await call(pair().gateway, { headers, from: '127.0.7.9' })).status).toBe(200);
    expect((await call(pair().gateway, { headers, from: '127.0.6.9' })).code).toBe('client-unknown');
  });

  test('that is wrong does not take from a client what its address says', async () => {
    const headers = { 'X-Api-Key': 'wrong' };
    expect((await call(pair().gateway, { headers, from: '127.0.8.1' })).status).toBe(200);
  });
});

describe('who guesses', () => {
  const guesses: [string, Record<string, string>, string][] = [
    ['nothing', {}, 'none'],
    ['a key', { 'X-Api-Key': 'dgk_guess' }, 'api-key'],
    ['the key of another address', { 'X-Api-Key': FAR }, 'api-key'],
    ['a key for an id that exists', { Authorization: basic('reporting', 'guess') }, 'api-key'],
    ['a key for an id that does not', { Authorization: basic('nobody', 'guess') }, 'api-key'],
    ['the right key for another id', { Authorization: basic('batch', KEY) }, 'api-key'],
    ['the hash of a key', { 'X-Api-Key': hash('sha256', KEY) }, 'api-key'],
    ['a token', { Authorization: 'Bearer abc' }, 'token'],
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

  test('hears the same whether the id exists, and whether the key is right', async () => {
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
        'The request does not identify a configured client. It has the address 127.0.0.1, a client id with an API key. Send everything that the configuration lists for the client under identify.',
      ]),
    );
  });

  test('keeps nobody out: the right key works all along', async () => {
    const guessing = Array.from({ length: 200 }, (_, index) =>
      call(pair().gateway, { headers: { 'X-Api-Key': `dgk_${index}` } }),
    );
    const right = Array.from({ length: 10 }, () => call(pair().gateway, { headers: { 'X-Api-Key': KEY } }));
    expect(new Set((await Promise.all(guessing)).map(({ status }) => status))).toEqual(new Set([401]));
    expect((await Promise.all(right)).map(({ status }) => status)).toEqual(Array(10).fill(200));
  });
});

test('no key, right or wrong, is in the log or the metrics', async () => {
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
