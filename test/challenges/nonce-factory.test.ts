import { describe, expect, test } from '@jest/globals';
import { Secret } from '../../src/base/secret.ts';
import { NonceCounters, NonceFactory } from '../../src/challenges/nonce.ts';
import type { HeldChallenge } from '../../src/challenges/store/store.ts';
import { aged, parked } from '../support/challenges.ts';

function factory(counters = new NonceCounters()): NonceFactory {
  return new NonceFactory({
    credential: { username: 'u', password: new Secret('p') },
    counters,
    clock: { now: () => 50_000 },
    newCnonce: () => 'own cnonce',
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
