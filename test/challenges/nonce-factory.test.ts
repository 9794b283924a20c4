import { describe, expect, test } from '@jest/globals';
import { Secret } from '../../src/base/secret.ts';
import { expiryHint, NonceCounters, NonceFactory } from '../../src/challenges/nonce-factory.ts';
import type { HeldChallenge } from '../../src/challenges/store/store.ts';
import { aged, parked } from '../support/challenges.ts';

const now = Date.UTC(2026, 10, 21);
const base64 = (text: string): string => Buffer.from(text, 'latin1').toString('base64');

test.each([
  ['milliseconds ahead in base64', base64(`${now + 300_000}:0f1e2d`), 300_000],
  ['seconds ahead in the open', `${now / 1000 + 60}:0f1e2d:x`, 60_000],
  ['the time of issue and the expiry', base64(`${now}:${now + 5_000}:0f1e2d`), 5_000],
  ['the time of issue only', base64(`${now - 1}:0f1e2d`), undefined],
  ['a number too far ahead', `${now + 48 * 3_600_000}`, undefined],
  ['digits within a longer hash', `ab${now + 5_000}cd`, undefined],
  ['no number', 'dcd98b7102dd2f0e8b11d0f600bfb0c093', undefined],
])('a nonce that carries %s', (_title, nonce, expected) => {
  expect(expiryHint(nonce, now)).toBe(expected);
});

function factory(counters = new NonceCounters()): NonceFactory {
  return new NonceFactory({
    credential: { username: 'u', password: new Secret('p') },
    counters,
    clock: { now: () => 50_000 },
    newCnonce: () => 'own cnonce',
    wallTime: () => now,
  });
}

function withOpaque(nonce: string, opaque: string): HeldChallenge {
  return { challenge: { ...parked(nonce, 0).challenge, opaque }, cookies: [] };
}

describe('a nonce with a count', () => {
  test('goes on with the count if the upstream issues it again, and is known to be issued again', () => {
    const it = factory();
    const first = it.issued(parked('n', 0));
    expect([first.begin(0)?.nc, first.isIssuedAgain]).toEqual([1, false]);
    const again = it.issued(parked('n', 0));
    expect([again.begin(0)?.nc, again.isIssuedAgain, first.isIssuedAgain]).toEqual([2, true, true]);
  });

  test('goes on with the count and the cnonce of the process that left it', () => {
    const it = factory();
    const left = it.adopted(parked('n', 6, 2_000));
    expect([left.cnonce, left.obtainedAt, left.foreign, left.begin(0)?.nc]).toEqual([
      'cnonce of n',
      48_000,
      true,
      7,
    ]);
    expect(it.adopted(aged('m')).cnonce).toBe('own cnonce');
  });

  test('is recognised among the last thousand', () => {
    const it = factory();
    it.issued(parked('first', 0)).begin(0);
    for (let count = 1; count < 1_000; count += 1) it.issued(parked(`n${count}`, 0));
    expect(it.issued(parked('first', 0)).begin(0)?.nc).toBe(2);
    it.issued(parked('one more', 0));
    expect(it.issued(parked('first', 0)).begin(0)?.nc).toBe(1);
  });

  test('without a count has none that could be shared', () => {
    const it = factory();
    it.issued(aged('n'));
    expect(it.issued(aged('n')).isIssuedAgain).toBe(false);
  });
});

describe('an upstream that calls a nonce stale', () => {
  const countsOf = (next: HeldChallenge): (number | undefined)[] => {
    const it = factory();
    const nonce = it.issued(withOpaque('n', 'a'));
    it.calledStale(nonce, next.challenge);
    return ['x', 'y', 'x'].map((opaque) => it.issued(withOpaque('n', opaque)).begin(0)?.nc);
  };

  test('and sends it again with another opaque counts for each opaque', () => {
    expect(countsOf(withOpaque('n', 'b'))).toEqual([1, 1, 2]);
  });

  test.each([
    ['another nonce', withOpaque('m', 'b')],
    ['the same challenge', withOpaque('n', 'a')],
    ['no opaque', parked('n', 0)],
  ])('and sends %s counts for each nonce', (_, next) => {
    expect(countsOf(next)).toEqual([1, 2, 3]);
  });

  test('counts for the nonce if a challenge has no opaque', () => {
    const counters = new NonceCounters();
    counters.countByOpaque();
    const it = factory(counters);
    expect(['n', 'm', 'n'].map((name) => it.issued(parked(name, 0)).begin(0)?.nc)).toEqual([1, 1, 2]);
  });
});

test('the nonce that follows another continues its lane; the same name is the same nonce', () => {
  const it = factory();
  const nonce = it.issued(parked('n', 0));
  expect(it.following(nonce, 'n')).toBe(nonce);
  const next = it.following(nonce, 'm');
  expect([next.challenge.nonce, next.lane === nonce.lane, next.challenge.realm]).toEqual([
    'm',
    true,
    nonce.challenge.realm,
  ]);
});

test('the expiry that a nonce carries is counted from its issue', () => {
  expect(factory().adopted(aged(`${now + 5_000}:x`, 2_000)).hintMs).toBe(7_000);
  expect(factory().issued(aged(`${now + 24 * 3_600_000}:x`)).hintMs).toBe(undefined);
  expect(factory().issued(aged(`${now + 24 * 3_600_000 - 1}:x`)).hintMs).toBe(24 * 3_600_000 - 1);
});
