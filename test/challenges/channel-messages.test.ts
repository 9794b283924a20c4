import { describe, expect, test } from '@jest/globals';
import type { ProcessPort } from '../../src/base/message-calls.ts';
import { ChannelChallengeStore, primaryChallenges } from '../../src/challenges/store/channel.ts';
import { writeParked } from '../../src/challenges/store/stored-form.ts';
import { aged, learned, parked } from '../support/challenges.ts';
import { closing } from '../support/closing.ts';
import { portPair } from '../support/process-ports.ts';
import { until } from '../support/until.ts';

const LONG_MS = 60_000;
const call = { kind: 'call', session: 's', id: 1, name: 'load', body: ['k'], sentAt: Date.now() };
const toPrimary = (message: unknown) => ({ service: 'challenges', side: 'client', message });

/** A store at the port, and the names of its calls that failed. */
function storeAt(port: ProcessPort) {
  const failed: string[] = [];
  const store = new ChannelChallengeStore(port, (operation) => failed.push(operation));
  closing.push(() => store.close());
  return { store, failed };
}

test('changes that follow each other at once are told as one after the first, and the last one is heard', async () => {
  const primary = primaryChallenges();
  const [writer, reader] = [0, 1].map(() => {
    const { ports, close } = portPair();
    closing.push(close);
    primary.serve(ports[0]);
    return storeAt(ports[1]).store;
  }) as [ChannelChallengeStore, ChannelChallengeStore];
  const changes = 1_000;
  let heard = 0;
  let seen: number | undefined;
  reader.onChange(async () => {
    heard += 1;
    // The last one may find the store closed.
    seen = (await reader.recall('k').catch(() => undefined))?.lifetimeMs ?? seen;
  });
  // The reader begins its session with its first call.
  await reader.recall('k');
  const learn = (at: number) => writer.learn('k', { ...learned, lifetimeMs: 1_000 + at });
  // On a machine that is busy, some of so many calls come too late.
  await Promise.allSettled(Array.from({ length: changes }, (_, at) => learn(at)));
  await learn(changes);
  await until(() => seen === 1_000 + changes);
  expect(heard).toBeLessThan(changes / 2);
});

test('the time that a call was on its way counts for the age of what it carries', async () => {
  const primary = primaryChallenges();
  const [late, other] = [0, 1].map(() => {
    const { ports, close } = portPair();
    closing.push(close);
    primary.serve(ports[0]);
    return ports[1];
  }) as [ProcessPort, ProcessPort];
  const value = writeParked(parked('n', 1));
  const replied = new Promise((resolve) => void late.onMessage(resolve));
  const body = parkBody({ value, ageMs: 100 });
  late.post(toPrimary({ ...call, name: 'park', body, sentAt: Date.now() - 500 }));
  await replied;
  const taken = await storeAt(other).store.take('k');
  expect(taken).toMatchObject({ count: 1, cnonce: 'cnonce of n' });
  expect(taken?.ageMs).toBeGreaterThanOrEqual(600);
});

test('the time that a call took counts for the age of what its reply carries', async () => {
  const { ports, close } = portPair();
  closing.push(close);
  const [primary, worker] = ports;
  const LATE_MS = 50;
  const slow: ProcessPort = {
    ...worker,
    onMessage: (listener) => worker.onMessage((message) => void setTimeout(() => listener(message), LATE_MS)),
  };
  primaryChallenges({ now: () => 0 }).serve(primary);
  const { store } = storeAt(slow);
  await store.replace('k', undefined, aged('n', 100), LONG_MS);
  await store.park('k', parked('p', 1, 100), LONG_MS);
  for (const held of [await store.load('k'), await store.take('k')]) {
    // Timers may be early by a fraction of a millisecond.
    expect(held?.ageMs).toBeGreaterThanOrEqual(100 + LATE_MS - 1);
  }
});

test('a store that was closed rejects its calls', async () => {
  const { ports, close } = portPair();
  closing.push(close);
  primaryChallenges().serve(ports[0]);
  const { store, failed } = storeAt(ports[1]);
  expect(await store.load('k')).toBe(undefined);
  await store.close();
  await expect(store.load('k')).rejects.toThrow(/^load: /);
  expect(failed).toEqual(['load']);
});

describe('a message that no gateway sends', () => {
  test.each([
    ['a function of another version', { name: 'query' }, 'unknown function'],
    ['a function of every object', { name: 'toString' }, 'unknown function'],
    ['no body', { body: undefined }, /invalid_type/],
    ['a key that is no text', { body: [{}] }, /invalid_type/],
    ['a key without end', { body: ['x'.repeat(20_000)] }, /too_big/],
    [
      'an infinite age',
      { name: 'park', body: parkBody({ ageMs: Number.POSITIVE_INFINITY }) },
      /invalid_type/,
    ],
    ['a negative age', { name: 'park', body: parkBody({ ageMs: -1 }) }, /too_small/],
    ['no challenge', { name: 'park', body: parkBody({ value: '{}' }) }, /^not the stored form/],
    [
      'a fact that is none',
      { name: 'learn', body: ['k', { value: '{"policy":"all"}', ageMs: 1 }] },
      /^not the stored form/,
    ],
    ['a leader for ever', { name: 'lead', body: ['k', 1e300] }, /too_big/],
    ['a call of long ago', { sentAt: Date.now() - 60_000 }, 'the call came too late'],
  ])('is refused: %s', async (_, change, reason) => {
    const { ports, close } = portPair();
    closing.push(close);
    primaryChallenges().serve(ports[0]);
    const { promise, resolve } = Promise.withResolvers<unknown>();
    ports[1].onMessage(resolve);
    ports[1].post(toPrimary({ ...call, sentAt: Date.now(), ...change }));
    expect(await promise).toMatchObject({
      message: { kind: 'error', id: 1, reason: expect.stringMatching(reason) },
    });
  });

  test.each([
    ['no text', 'recall', 7],
    ['a text that is no fact', 'recall', { value: '{}', ageMs: 1 }],
    ['no age', 'load', { value: '{}' }],
    ['no challenge', 'take', { value: '{}', ageMs: 1 }],
    ['no answer', 'lead', undefined],
  ] as const)('from the primary rejects the call: %s', async (_, operation, body) => {
    const { ports, close } = portPair();
    closing.push(close);
    ports[0].onMessage((message) => {
      const { session, id } = (message as { message: { session: string; id: number } }).message;
      const post = (reply: object) =>
        ports[0].post({ service: 'challenges', side: 'server', message: reply });
      ports[0].post(null);
      post({ kind: 'event', session, body: { changed: 7 } });
      post({ kind: 'result', session, id: 'x', body });
      post({ kind: 'result', session, id, body });
    });
    const { store, failed } = storeAt(ports[1]);
    store.onChange((key) => failed.push(`changed: ${key}`));
    await expect(operation === 'lead' ? store.lead('k', 1) : store[operation]('k')).rejects.toThrow();
    expect(failed).toEqual([operation]);
  });
});

function parkBody(change: object): unknown[] {
  return ['k', { value: '{}', ageMs: 1, ...change }, LONG_MS];
}
