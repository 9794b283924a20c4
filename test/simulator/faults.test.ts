import { once } from 'node:events';
import { describe, expect, test } from '@jest/globals';
import { Faults } from '../../src/simulator/faults.ts';
import type { BehaviourChange } from '../../src/simulator/settings.ts';
import { answer } from '../support/digest-client.ts';
import { authors, openSession, type Session, user } from './session.ts';

type FaultInput = NonNullable<BehaviourChange['faults']>[number];

/** A session with a challenge in hand, whose next answers have the faults. */
async function opened(...faults: FaultInput[]) {
  const session = await openSession();
  const offered = await session.challenge();
  session.simulator.set('submissions', { faults });
  return { ...session, get: () => session.answered(offered), offered };
}

const counts = ({ simulator }: Pick<Session, 'simulator'>) => simulator.counts('submissions');

describe('instead of any answer', () => {
  test('reset before the head', async () => {
    const session = await opened({ kind: 'reset-before-head', times: 1 });
    await expect(session.get()).rejects.toMatchObject({ code: 'ECONNRESET' });
    expect((await session.get()).status).toBe(200);
    expect(counts(session)).toMatchObject({ aborted: 0, accepted: 2, faults: { 'reset-before-head': 1 } });
  });

  test('garbage', async () => {
    const session = await opened({ kind: 'garbage', times: 1 });
    await expect(session.get()).rejects.toMatchObject({ name: 'HTTPParserError' });
    expect(counts(session).faults.garbage).toBe(1);
  });

  test('hang, until the client leaves', async () => {
    const session = await opened({ kind: 'hang' });
    const departure = new AbortController();
    const asked = session.pool.request({
      path: authors,
      method: 'GET',
      signal: departure.signal,
      headers: { authorization: answer(session.offered, { method: 'GET', target: authors, ...user }) },
    });
    await until(() => counts(session).faults.hang === 1);
    departure.abort();
    await expect(asked).rejects.toMatchObject({ name: 'AbortError' });
    await until(() => counts(session).aborted === 1);
  });
});

describe('instead of the right answer', () => {
  test.each([true, false])('endless 401 with stale %s', async (stale) => {
    const session = await opened({ kind: 'endless-401', stale });
    for (let turn = 0; turn < 3; turn += 1) {
      const seen = await session.get();
      expect([seen.status, seen.challenges[0]?.get('stale')]).toEqual([401, String(stale)]);
    }
    expect(counts(session)).toMatchObject({ challenges: 4, stale: stale ? 3 : 0, accepted: 3 });
  });

  test('401 without Digest', async () => {
    const session = await opened(
      { kind: 'no-digest', offer: 'basic', times: 1 },
      { kind: 'no-digest', offer: 'nothing', times: 1 },
    );
    const [basic, nothing, good] = [await session.get(), await session.get(), await session.get()];
    expect([basic.status, basic.headers['www-authenticate']]).toEqual([401, 'Basic realm="Simulator"']);
    expect(nothing.status).toBe(401);
    expect(nothing.headers).not.toHaveProperty('www-authenticate');
    expect(good.status).toBe(200);
  });

  test('5xx', async () => {
    const session = await opened({ kind: 'status', status: 500, errorCode: 601 });
    const seen = await session.get();
    expect([seen.status, seen.headers['content-type']]).toEqual([500, 'application/xml;charset=UTF-8']);
    expect(seen.body.toString()).toContain('<errorCode>601</errorCode>');
  });

  test('throttling', async () => {
    const session = await opened(
      { kind: 'throttle', retryAfterSeconds: 30, times: 1 },
      { kind: 'throttle', status: 429, retryAfterSeconds: 30, times: 1 },
    );
    const [old, modern] = [await session.get(), await session.get()];
    expect(old.status).toBe(400);
    expect(old.headers).not.toHaveProperty('retry-after');
    expect(old.body.toString()).toMatch(/<errorCode>500<.*<nextCallTime>\d{4}-\d\d-\d\dT[\d:.]+Z</);
    expect([modern.status, modern.headers['retry-after']]).toEqual([429, '30']);
  });
});

describe('in the answer', () => {
  test('delay before the head', async () => {
    const session = await opened({ kind: 'delay', ms: 60 });
    const started = performance.now();
    expect((await session.get()).status).toBe(200);
    expect(performance.now() - started).toBeGreaterThan(55);
  });

  test('reset within the body, after so many bytes', async () => {
    const session = await opened({ kind: 'reset-in-body', afterBytes: 100 });
    const headers = { authorization: answer(session.offered, { method: 'GET', target: authors, ...user }) };
    const { statusCode, body } = await session.pool.request({ path: authors, method: 'GET', headers });
    let length = 0;
    body.on('data', (chunk: Buffer) => {
      length += chunk.length;
    });
    const [error] = await once(body, 'error');
    expect([statusCode, length, error.code]).toEqual([200, 100, 'ECONNRESET']);
    expect(counts(session).aborted).toBe(0);
  });

  test('slow body, in pieces', async () => {
    const session = await opened({ kind: 'slow-body', bytes: 400, everyMs: 20 });
    const started = performance.now();
    const seen = await session.get();
    const pieces = Math.ceil(seen.body.length / 400);
    expect(pieces).toBeGreaterThan(2);
    expect(performance.now() - started).toBeGreaterThan((pieces - 1) * 19);
  });

  test('a Content-Length that is too long ends in a cut', async () => {
    const session = await opened({ kind: 'content-length', offBy: 10 });
    await expect(session.get()).rejects.toMatchObject({ code: 'UND_ERR_SOCKET' });
  });

  test('a Content-Length that is too short cuts the document off', async () => {
    const session = await opened({ kind: 'content-length', offBy: -12, times: 1 });
    const [short, whole] = [await session.get(), await session.get()];
    expect(short.body).toEqual(whole.body.subarray(0, -12));
  });
});

describe('which requests a fault hits', () => {
  test('only accepted ones, or only the others', async () => {
    const session = await openSession({ faults: [{ kind: 'status', when: 'authenticated' }] });
    const offered = await session.challenge();
    expect((await session.answered(offered)).status).toBe(503);
    session.simulator.set('submissions', { faults: [{ kind: 'status', when: 'unauthenticated' }] });
    expect((await session.ask(authors)).status).toBe(503);
    expect((await session.answered(offered, { password: 'guess' })).status).toBe(503);
    expect((await session.answered(offered)).status).toBe(200);
  });

  test('a fault that is through does not come back with another change', async () => {
    const session = await opened({ kind: 'status', times: 1 });
    expect((await session.get()).status).toBe(503);
    session.simulator.set('submissions', { opaque: true });
    expect((await session.get()).status).toBe(200);
  });

  test('a list with times is a sequence, and a broken line keeps the rest for later', () => {
    const common = { when: 'any' } as const;
    const faults = new Faults([
      { kind: 'status', status: 500, errorCode: 1, times: 1, ...common },
      { kind: 'status', status: 503, errorCode: 1, times: 1, ...common },
      { kind: 'reset-before-head', times: 1, ...common },
      { kind: 'delay', ms: 1, times: 2, ...common },
    ]);
    const seen = Array.from({ length: 4 }, () => faults.take(false));
    expect(
      seen.map(({ delay, connection, reply }) => [
        delay?.ms,
        connection?.kind,
        reply?.kind === 'status' && reply.status,
      ]),
    ).toEqual([
      [1, 'reset-before-head', false],
      [1, undefined, 500],
      [undefined, undefined, 503],
      [undefined, undefined, false],
    ]);
    const taken = seen.map((each) => Object.values(each).flatMap((fault) => fault?.kind ?? []));
    expect(taken).toEqual([['delay', 'reset-before-head'], ['delay', 'status'], ['status'], []]);
  });
});

/** Looks again after each turn of the event loop. */
async function until(condition: () => boolean): Promise<void> {
  while (!condition()) await new Promise((resolve) => setImmediate(resolve));
}
