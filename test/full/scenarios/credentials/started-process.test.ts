import { describe, expect, test } from '@jest/globals';
import { monotonicClock } from '../../../../src/base/clock.ts';
import { closedAtEnd, closing } from '../../../support/closing.ts';
import { readChallenges } from '../../../support/digest-client.ts';
import { type RunningGateway, startGateway } from '../../../support/gateway.ts';
import { startRedis } from '../../../support/redis.ts';
import { redisOptions, single } from '../../../support/redis-store.ts';
import { seesRedis } from '../../../support/replicas.ts';
import { problemOf } from '../../../support/scene.ts';
import { startUpstream } from '../../../support/scripted-upstream.ts';
import { until } from '../../../support/until.ts';

/** An upstream that forgets its nonces when it is told to, and never says stale. */
async function startForgetful() {
  /** `user`: the one whose answers it accepts; `forgetsAt`: at an answer of the first of these, it forgets all nonces. */
  const state = { forgetsAt: [] as string[], user: 'current' };
  const nonces = new Set<string>();
  /** `asked`, or `accepted` or `refused` with the user name, for each request. */
  const seen: string[] = [];
  let issued = 0;
  const { origin, close } = await startUpstream((request, response) => {
    const { authorization } = request.headers;
    const [sent] = authorization === undefined ? [] : readChallenges([authorization]);
    const nonce = sent?.get('nonce');
    const user = sent?.get('username');
    if (user !== undefined && user === state.forgetsAt[0]) {
      nonces.clear();
      state.forgetsAt.shift();
    }
    if (nonce !== undefined && nonces.has(nonce) && user === state.user) {
      seen.push(`accepted ${user}`);
      response.end('content');
      return;
    }
    seen.push(nonce === undefined ? 'asked' : `refused ${user}`);
    issued += 1;
    nonces.add(`n${issued}`);
    response.setHeader('WWW-Authenticate', `Digest realm="r", nonce="n${issued}", qop="auth"`);
    response.writeHead(401).end();
  });
  closing.push(close);
  return { origin, state, seen };
}

async function setScene() {
  const redis = await closedAtEnd(startRedis());
  const { origin, state, seen } = await startForgetful();
  const ahead = { ms: 0 };
  /** A gateway; `next`: also with the user name of another version of the credential. */
  const gateway = async (next?: string, current = 'current'): Promise<RunningGateway> => {
    const username = { value: current };
    const credential = { username, password: { value: 'secret' } };
    const started = await startGateway(
      { upstream: { origin, settings: { tls: { allowPlaintext: true } } } },
      {
        credentials: {
          upstream: { ...credential, ...(next !== undefined && { next: { username: { value: next } } }) },
        },
      },
      { redis: redisOptions(single(redis.port)), clock: { now: () => monotonicClock.now() + ahead.ms } },
    );
    closing.push(() => started.close());
    await until(() => seesRedis(started));
    return started;
  };
  /** Lets time pass for the gateways. */
  const advance = (ms: number): void => {
    ahead.ms += ms;
  };
  return { redis, state, seen, gateway, advance };
}

/** Status, and the code of an error. */
async function get({ origin }: RunningGateway): Promise<(number | string)[]> {
  const answer = await fetch(`${origin}/a`);
  return answer.ok ? [answer.status] : [answer.status, (await problemOf(answer)).code];
}

/** Two gateways that have the next version, too, and use the current one. */
async function setRotation() {
  const scene = await setScene();
  const first = await scene.gateway('next');
  const second = await scene.gateway('next');
  for (const each of [first, second, first, second]) expect(await get(each)).toEqual([200]);
  // One of them tries the next version in the background.
  await until(() => scene.seen.includes('refused next'));
  return { ...scene, first, second };
}

const REFUSED = [502, 'upstream-credential-refused'];

describe('a process that has just started, whose first challenge the upstream forgets before the answer', () => {
  test('serves, if another process has seen the credential accepted', async () => {
    const { state, seen, gateway } = await setScene();
    expect(await get(await gateway())).toEqual([200]);
    const next = await gateway();
    state.forgetsAt = ['current'];
    seen.length = 0;
    expect(await Promise.all([get(next), get(next), get(next)])).toEqual([[200], [200], [200]]);
    expect(seen.filter((result) => result.startsWith('refused'))).toHaveLength(1);
  });

  test('serves with the version that others have seen accepted, though a next one is there', async () => {
    const { state, seen, gateway } = await setScene();
    expect(await get(await gateway())).toEqual([200]);
    const next = await gateway('next');
    state.forgetsAt = ['current'];
    seen.length = 0;
    expect(await Promise.all([get(next), get(next), get(next)])).toEqual([[200], [200], [200]]);
    expect(seen.filter((result) => result.startsWith('refused'))).toEqual([
      'refused current',
      'refused next',
    ]);
  });

  test('serves, if nobody has', async () => {
    const { state, seen, gateway } = await setScene();
    state.forgetsAt = ['current'];
    const started = await gateway();
    expect([await get(started), await get(started)]).toEqual([[200], [200]]);
    expect(seen.filter((result) => result.startsWith('refused'))).toEqual(['refused current']);
  });

  test('makes one attempt more, if the password is wrong by now', async () => {
    const { state, seen, gateway } = await setScene();
    expect(await get(await gateway())).toEqual([200]);
    const started = await gateway();
    state.user = 'another';
    seen.length = 0;
    const all = await Promise.all([get(started), get(started), get(started)]);
    expect([...all, await get(started)]).toEqual(Array(4).fill(REFUSED));
    expect(seen).toEqual(['asked', 'refused current', 'asked', 'refused current']);
  });

  test('serves, if others have rotated to the version that it starts with', async () => {
    const { redis, state, seen, gateway } = await setScene();
    const rotated = await gateway('current', 'former');
    expect([await get(rotated), await get(rotated)]).toEqual([[200], [200]]);
    await until(async () => String(await redis.command('KEYS', '*:accepted')) !== '');
    const started = await gateway();
    state.forgetsAt = ['current'];
    seen.length = 0;
    expect(await get(started)).toEqual([200]);
    expect(seen.filter((result) => result.startsWith('refused'))).toEqual(['refused current']);
  });

  test('serves while Redis is away, which could tell that the credential is accepted', async () => {
    const { redis, state, seen, gateway } = await setScene();
    const started = await gateway();
    await redis.kill();
    state.forgetsAt = ['current'];
    expect(await Promise.all([get(started), get(started), get(started)])).toEqual([[200], [200], [200]]);
    expect(seen.filter((result) => result.startsWith('refused'))).toHaveLength(1);
  });

  test('makes one attempt more while Redis is away, if the password is wrong', async () => {
    const { redis, state, seen, gateway } = await setScene();
    const started = await gateway();
    await redis.kill();
    state.user = 'another';
    expect([await get(started), await get(started)]).toEqual([REFUSED, REFUSED]);
    expect(seen).toEqual(['asked', 'refused current', 'asked', 'refused current']);
  });

  test('learns it again from the others after Redis lost everything', async () => {
    const { redis, state, gateway, advance } = await setScene();
    const first = await gateway();
    expect(await get(first)).toEqual([200]);
    await redis.command('FLUSHALL');
    advance(10_000);
    expect(await get(first)).toEqual([200]);
    await until(async () => String(await redis.command('KEYS', '*:accepted')) !== '');
    const next = await gateway();
    state.forgetsAt = ['current'];
    expect(await get(next)).toEqual([200]);
  });
});

describe('a process of which the upstream forgets the nonces while it changes over to the next version', () => {
  test('asks once more, and goes on with it', async () => {
    const { state, second } = await setRotation();
    state.user = 'next';
    state.forgetsAt = ['next'];
    expect(await get(second)).toEqual([200]);
  });

  test('twice takes it for refused, until another process tells that it is accepted', async () => {
    const { state, seen, first, second } = await setRotation();
    state.user = 'next';
    state.forgetsAt = ['next', 'next'];
    expect(await get(second)).toEqual(REFUSED);
    expect(await get(first)).toEqual([200]);
    seen.length = 0;
    await until(async () => (await get(second))[0] === 200);
    // It is not told which version is accepted, so it may try the current one first.
    const refused = seen.filter((result) => result.startsWith('refused'));
    expect(['', 'refused current']).toContain(refused.join());
  });

  test('is not misled by what was told before', async () => {
    const { redis, state, seen, second } = await setRotation();
    state.user = 'another';
    await redis.command('CONFIG', 'RESETSTAT');
    expect(await get(second)).toEqual(REFUSED);
    seen.length = 0;
    // It has asked for how long that is known.
    await until(async () => /cmdstat_pttl/.test(String(await redis.command('INFO', 'commandstats'))));
    expect([await get(second), seen]).toEqual([REFUSED, []]);
  });
});
