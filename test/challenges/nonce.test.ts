import { describe, expect, test } from '@jest/globals';
import { Secret } from '../../src/base/secret.ts';
import { Nonce, type NonceAttempt, NonceCounter, type NonceOrigin } from '../../src/challenges/nonce.ts';
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
  begin(nonce).end();
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
    first.end();
    second.end();
    second.end();
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
  const [first, second] = [begin(nonce), begin(nonce)];
  first.end();
  second.end();
  begin(nonce).end();
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
