import { expect, test } from '@jest/globals';
import { type PauseNews, Pauses } from '../../src/upstream/outcomes.ts';

const DEPLOYMENT = { credential: undefined, outcome: 'throttled' };
const CREDENTIAL = { credential: 'a', outcome: 'maintenance' };

function pausesAt() {
  const clock = { at: 0, now: () => clock.at };
  const news: PauseNews[] = [];
  const pauses = new Pauses('d', clock, (each) => news.push(each));
  /** The Retry-After of a request with this credential; 0: it passes. */
  const retryAfter = (credential: string): number => {
    const refusal = pauses.refusalOf(credential);
    if (refusal !== undefined) expect(refusal.code).toBe('upstream-paused');
    return refusal === undefined ? 0 : (refusal.retryAfter ?? -1);
  };
  return { clock, news, pauses, retryAfter };
}

test('tells the seconds that are left, rounded up', () => {
  const { clock, pauses, retryAfter } = pausesAt();
  pauses.begin(DEPLOYMENT, 2000);
  for (const [at, seconds] of [
    [0, 2],
    [1, 2],
    [999, 2],
    [1000, 1],
    [1999.5, 1],
    [2000, 0],
  ] as const) {
    clock.at = at;
    expect([at, retryAfter('a')]).toEqual([at, seconds]);
  }
});

test('a later response extends a pause, and never shortens it', () => {
  const { clock, pauses, retryAfter } = pausesAt();
  pauses.begin(DEPLOYMENT, 5000);
  clock.at = 1000;
  pauses.begin({ ...DEPLOYMENT, outcome: 'maintenance' }, 2000);
  expect([retryAfter('a'), pauses.current[0]?.outcome]).toEqual([4, 'throttled']);
  pauses.begin({ ...DEPLOYMENT, outcome: 'maintenance' }, 9000);
  expect([retryAfter('a'), pauses.current[0]?.outcome]).toEqual([9, 'maintenance']);
});

test('a pause of a credential concerns requests with it only', () => {
  const { pauses, retryAfter } = pausesAt();
  pauses.begin(CREDENTIAL, 3000);
  expect([retryAfter('a'), retryAfter('b')]).toEqual([3, 0]);
  pauses.begin(DEPLOYMENT, 1000);
  expect([retryAfter('a'), retryAfter('b')]).toEqual([3, 1]);
  pauses.begin(DEPLOYMENT, 7000);
  expect([retryAfter('a'), retryAfter('b')]).toEqual([7, 7]);
});

test('tells when a pause begins, and with the first request after it that it ended', () => {
  const { clock, news, pauses, retryAfter } = pausesAt();
  pauses.begin(DEPLOYMENT, 1000);
  pauses.begin(DEPLOYMENT, 2000);
  retryAfter('a');
  const begun = { deployment: 'd', credential: undefined, outcome: 'throttled', ms: 1000 };
  expect(news).toEqual([begun]);
  clock.at = 2000;
  expect([pauses.current, news.length]).toEqual([[], 1]);
  expect([retryAfter('a'), retryAfter('a')]).toEqual([0, 0]);
  expect(news).toEqual([begun, { ...begun, ms: 0 }]);
});

test('a pause of no time is none', () => {
  const { news, pauses, retryAfter } = pausesAt();
  pauses.begin(DEPLOYMENT, 0);
  expect([retryAfter('a'), news]).toEqual([0, []]);
});
