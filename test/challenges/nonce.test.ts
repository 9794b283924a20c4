import { describe, expect, test } from '@jest/globals';
import { Secret } from '../../src/base/secret.ts';
import {
  Nonce,
  type NonceAttempt,
  NonceCounter,
  NonceCounters,
  NonceFactory,
  type NonceOrigin,
} from '../../src/challenges/nonce.ts';
import type { HeldChallenge } from '../../src/challenges/store/store.ts';
import { aged, parked } from '../support/challenges.ts';

const credential = { username: 'u', password: new Secret('p') };
const LAST = 0xffffffff;

function nonceWith(origin: Partial<NonceOrigin> = {}, held = parked('n', 0)): Nonce {
  const { challenge, cookies } = held;
  return new Nonce({ challenge, cookies }, credential, {
    cnonce: 'c',
    obtainedAt: 1_000,
    ...origin,
  });
}

function begin(nonce: Nonce, now = 1_000): NonceAttempt {
  const attempt = nonce.begin(now);
  if (attempt === undefined) throw new Error('the nonce may not be used');
  return attempt;
}

test('a nonce is used up when eight hex digits are', () => {
  const nonce = nonceWith({ counter: new NonceCounter(LAST - 2) });
  expect([nonce.exhausted, begin(nonce).nc]).toEqual([false, LAST - 1]);
  expect([nonce.exhausted, nonce.begin(0)]).toEqual([true, undefined]);
});

test('an attempt knows the age of its nonce, and whether it was accepted before', () => {
  const nonce = nonceWith();
  const first = begin(nonce, 1_500);
  expect([first.ageMs, first.sentAt, first.isReuse]).toEqual([500, 1_500, false]);
  nonce.noteAccepted(first.nc, 0);
  expect([begin(nonce).isReuse, first.isReuse, nonce.accepted]).toEqual([true, false, 1]);
});

test('a nonce is handed over with its age and count, and the count here is over', () => {
  const counter = new NonceCounter();
  const nonce = nonceWith({ counter });
  begin(nonce);
  nonce.endAttempt();
  nonce.retire();
  expect(nonce.retired).toBe(true);
  expect(nonce.handOver(4_000)).toMatchObject({ cnonce: 'c', count: 1, ageMs: 3_000 });
  expect(nonceWith({ counter }).begin(0)).toBe(undefined);
});

describe('an attempt is contested', () => {
  test('if another one was under way, or began since', () => {
    const nonce = nonceWith();
    const first = begin(nonce);
    expect(first.contested).toBe(false);
    const second = begin(nonce);
    expect([first.contested, second.contested]).toEqual([true, true]);
    nonce.endAttempt();
    nonce.endAttempt();
    const third = begin(nonce);
    expect([third.contested, first.contested]).toEqual([false, true]);
    expect(nonce.lane).toEqual({ underWay: 1, begun: 3 });
  });

  test('by one with a nonce that continues its own', () => {
    const nonce = nonceWith();
    const next = nonceWith({ lane: nonce.lane });
    const first = begin(nonce);
    const second = begin(next);
    expect([first.contested, second.contested]).toEqual([true, true]);
  });
});

describe('counts out of order', () => {
  test.each([
    ['a lower one', 1, true],
    ['the same', 2, false],
    ['a higher one', 3, false],
  ])('are refused if %s is refused', (_, refused, expected) => {
    for (const isFirst of [true, false]) {
      const nonce = nonceWith();
      if (isFirst) nonce.noteRefused(refused);
      nonce.noteAccepted(2, 0);
      if (!isFirst) nonce.noteRefused(refused);
      expect(nonce.isOutOfOrderRefused).toBe(expected);
    }
  });

  test('do not exist without a count', () => {
    const nonce = nonceWith({}, aged('n') as never);
    nonce.noteRefused(1);
    nonce.noteAccepted(2, 0);
    expect(nonce.isOutOfOrderRefused).toBe(false);
  });
});

test('the first crowd is over when more were accepted than were under way at once', () => {
  const nonce = nonceWith();
  for (let count = 0; count < 2; count += 1) begin(nonce);
  for (let count = 0; count < 2; count += 1) nonce.endAttempt();
  begin(nonce);
  nonce.endAttempt();
  const crowds = [1, 2, 3].map((nc) => {
    nonce.noteAccepted(nc, 0);
    return nonce.isFirstCrowd;
  });
  expect(crowds).toEqual([true, true, false]);
});

test('state is shared by challenges with the same opaque', () => {
  const { challenge } = parked('n', 0);
  const withOpaque = { ...challenge, opaque: 'o' };
  const nonce = nonceWith({}, { ...parked('n', 0), challenge: withOpaque });
  const shared = [withOpaque, { ...challenge, opaque: 'p' }, challenge].map((each) =>
    nonce.sharesStateWith(each),
  );
  expect([...shared, nonceWith().sharesStateWith(challenge)]).toEqual([true, false, false, false]);
});

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

  test('is recognised among the last thousand, since it was issued last', () => {
    const it = factory();
    const issueOthers = (others: number): void => {
      for (let count = 0; count < others; count += 1) it.issued(parked(`n${count}`, 0));
    };
    it.issued(parked('first', 0)).begin(0);
    issueOthers(999);
    expect(it.issued(parked('first', 0)).begin(0)?.nc).toBe(2);
    it.issued(parked('one more', 0));
    expect(it.issued(parked('first', 0)).begin(0)?.nc).toBe(3);
    issueOthers(1_000);
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
