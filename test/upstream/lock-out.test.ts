import { describe, expect, test } from '@jest/globals';
import { monotonicClock } from '../../src/base/clock.ts';
import { MemoryChallengeStore } from '../../src/challenges/store/memory.ts';
import { until } from '../support/until.ts';
import { setOf, type UpstreamScene, useUpstreams } from './upstream-scene.ts';

const { listen, open } = useUpstreams();

const CLIENTS = 20;
const STEP_MS = 6_000;

/**
 * An upstream that responds so to authenticated attempts, the first of which is 1, and what it counted. `perNonce`: so many
 * challenges in a row name the same one.
 */
async function upstream(
  statusOf: (attempt: number, target: string) => number,
  { sets = [setOf()], perNonce = 1 } = {},
) {
  const seen = { attempts: 0, refused: 0 };
  let issued = 0;
  const origin = await listen((req, res) => {
    let status = 401;
    if (req.headers.authorization !== undefined) {
      seen.attempts += 1;
      status = statusOf(seen.attempts, req.url ?? '');
      if (status === 401) seen.refused += 1;
    }
    issued += 1;
    const nonce = Math.floor(issued / perNonce);
    if (status === 401) res.setHeader('www-authenticate', `Digest realm="r", nonce="n${nonce}", qop="auth"`);
    res.writeHead(status).end();
  });
  const options = { origins: [origin], connections: CLIENTS, attemptsWhenRefused: 2 };
  const store = new MemoryChallengeStore(monotonicClock);
  return { seen, scene: open(options, { store, sets }), other: open(options, { store, sets }) };
}

/** Requests of many clients at once, again and again for this long; resolves to the last outcomes. */
async function crowds(scene: UpstreamScene, ms: number): Promise<(number | string)[]> {
  let outcomes: (number | string)[] = [];
  for (let passed = 0; passed < ms; passed += STEP_MS) {
    const all = Array.from({ length: CLIENTS }, (_, at) =>
      scene.send({ target: `/${at}`, client: `c${at}` }),
    );
    outcomes = await Promise.all(all);
    scene.clock.ahead += STEP_MS;
  }
  return outcomes;
}

test.each([403, 429, 503])(
  'a lock-out that says %i is not extended by requests with a refused password, and ends with it',
  async (locked) => {
    let now: (attempt: number) => number = (attempt) => (attempt > 3 ? locked : 401);
    const { seen, scene } = await upstream((attempt) => now(attempt));
    await crowds(scene, 300_000);
    // In five minutes two a minute, each in two forms, and with each of them two of clients.
    expect(seen.attempts).toBeLessThanOrEqual(42);
    now = () => 200;
    await crowds(scene, 60_000);
    expect(await crowds(scene, STEP_MS)).toEqual(Array(CLIENTS).fill(200));
  },
);

test('a password that was refused long ago, and accepted since, is not held for a response that says nothing', async () => {
  let statuses: number[] = [];
  const { scene } = await upstream(() => (statuses.length > 1 ? statuses.shift() : statuses[0]) ?? 401);
  expect(await scene.send()).toBe('upstream-credential-refused');
  statuses = [200];
  scene.clock.ahead += 60_000;
  expect(await scene.send()).toBe(200);
  // On a busy machine, the challenge in hand would be too old to be answered.
  const now = scene.clock.now();
  Object.assign(scene.clock, { now: () => now });
  // Two refusals of one request, and no verdict on the question that follows.
  statuses = [401, 401, 503, 503, 429];
  expect(await scene.send()).toBe('upstream-protocol');
  expect(await crowds(scene, STEP_MS)).toEqual(Array(CLIENTS).fill(429));
});

test('a process that met a lock-out learns from another one that it has ended', async () => {
  let status = 401;
  const { scene, other } = await upstream(() => status);
  for (const each of [scene, other]) expect(await each.send()).toBe('upstream-credential-refused');
  status = 429;
  scene.clock.ahead += 60_000;
  const outcomes = [await scene.send(), await scene.send(), await scene.send()];
  expect(outcomes).toEqual([429, 429, 'upstream-credential-refused']);
  status = 200;
  other.clock.ahead += 60_000;
  expect(await other.send()).toBe(200);
  // No attempt of its own becomes due.
  const now = scene.clock.now();
  scene.clock.now = () => now;
  await until(async () => (await scene.send()) === 200);
});

test('a refused password is sent no more often where a refusal names the nonce that it refuses', async () => {
  const { seen, scene } = await upstream(() => 401, { perNonce: 3 });
  await scene.send();
  scene.clock.ahead += 60_000;
  seen.refused = 0;
  await crowds(scene, 8 * 60_000);
  // Where one attempt is left of a minute, a question can take two.
  expect(seen.refused).toBeLessThanOrEqual(8 * 2 + 1);
});

describe('when the account may not use the target of the questions', () => {
  const MINUTE_MS = 60_000;
  const REFUSED = 'upstream-credential-refused';

  test('a forbidden first request shuts the credential out for a quarter of an hour at most', async () => {
    const { seen, scene } = await upstream((_, target) => (target === '/mine' ? 200 : 401));
    const mine = { target: '/mine', method: 'POST' };
    expect(await scene.send({ target: '/forbidden' })).toBe(REFUSED);
    scene.clock.ahead += 14 * MINUTE_MS;
    expect(await scene.send(mine)).toBe(REFUSED);
    scene.clock.ahead += MINUTE_MS;
    expect([await scene.send(mine), await scene.send(mine)]).toEqual([200, 200]);
    expect(seen.refused).toBe(3);
  });

  test('two wrong versions cost two attempts more each in the minute of that', async () => {
    const MINUTES = 20;
    const times: number[] = [];
    const current = setOf().current;
    const next = { ...current, version: '2', username: 'v' };
    const set = { ...setOf(), next };
    const { scene } = await upstream(
      () => {
        times.push(scene.clock.ahead);
        return 401;
      },
      { sets: [set] },
    );
    await crowds(scene, MINUTES * MINUTE_MS);
    const later = times.filter((time) => time > 2 * MINUTE_MS);
    const inMinutes = later.map(
      (end) => later.filter((time) => time <= end && time > end - MINUTE_MS).length,
    );
    expect(Math.max(...inMinutes)).toBeLessThanOrEqual(2 + 2 * 2);
  });

  test('a wrong password costs no more attempts for that, and no fewer', async () => {
    const { seen, scene } = await upstream(() => 401);
    expect(await crowds(scene, 62 * MINUTE_MS)).toEqual(Array(CLIENTS).fill(REFUSED));
    expect(seen.refused).toBe(2 * 62);
  });
});
