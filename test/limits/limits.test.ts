import { describe, expect, test } from '@jest/globals';
import fc from 'fast-check';
import { GatewayError } from '../../src/base/errors.ts';
import { Slots } from '../../src/limits/slots.ts';
import type { LimitSettings } from '../../src/limits/store.ts';
import { clocksAt, end, headersOf, limit, limitsOf } from '../support/limited.ts';

const DAY_MS = 86_400_000;
const rate = (perSecond: number, burst: number) => limit({ rate: { perSecond, burst } });

describe('rate and burst', () => {
  test('the burst passes at once, then what the rate lets in', () => {
    const { passing, clocks } = limitsOf({ a: rate(50, 100) });
    expect(passing(150)).toBe(100);
    clocks.pass(100);
    expect(passing(10)).toBe(5);
    clocks.pass(60_000);
    expect(passing(150)).toBe(100);
  });

  test('a rate of one in some minutes says when', () => {
    const { passing, ask, clocks } = limitsOf({ a: rate(10 / 3600, 1) });
    expect(passing(3)).toBe(1);
    expect(headersOf(ask())).toMatchObject({ 'retry-after': '360' });
    clocks.pass(359_000);
    expect(passing(1)).toBe(0);
    clocks.pass(1_000);
    expect(passing(2)).toBe(1);
  });

  test('never admits more than rate * t + burst, in any stretch of time', () => {
    const steps = fc.array(fc.record({ ms: fc.integer({ min: 0, max: 3_000 }), asked: fc.nat(40) }), {
      minLength: 1,
      maxLength: 30,
    });
    const settings = fc.record({
      perSecond: fc.double({ min: 0.01, max: 500, noNaN: true }),
      burst: fc.integer({ min: 1, max: 60 }),
    });
    fc.assert(
      fc.property(settings, steps, ({ perSecond, burst }, asked) => {
        const { passing, clocks } = limitsOf({ a: rate(perSecond, burst) });
        const passed = asked.map((step) => {
          clocks.pass(step.ms);
          return { at: clocks.now(), count: passing(step.asked) };
        });
        for (const [from, { at: begin }] of passed.entries()) {
          let sum = 0;
          for (const { at, count } of passed.slice(from)) {
            sum += count;
            expect(sum).toBeLessThanOrEqual((perSecond * (at - begin)) / 1000 + burst + 1e-6);
          }
        }
      }),
    );
  });

  test('Retry-After is honest: whoever waits that long passes', () => {
    fc.assert(
      fc.property(
        fc.double({ min: 0.001, max: 100, noNaN: true }),
        fc.integer({ min: 1, max: 20 }),
        (perSecond, burst) => {
          const { passing, ask, clocks } = limitsOf({ a: rate(perSecond, burst) });
          passing(burst);
          const seconds = Number(headersOf(ask())['retry-after']);
          expect(Number.isInteger(seconds)).toBe(true);
          expect(seconds).toBeGreaterThanOrEqual(1);
          clocks.pass(seconds * 1000);
          expect(passing(1)).toBe(1);
        },
      ),
    );
  });
});

describe('concurrent requests', () => {
  test('are counted until they end, each once', () => {
    const { ask, passing } = limitsOf({ a: limit({ concurrent: 2 }) });
    const [first, second] = [ask(), ask()];
    expect(headersOf(ask())['retry-after']).toBe('1');
    end(first);
    end(first);
    const third = ask();
    expect(third).not.toBeInstanceOf(GatewayError);
    expect(passing(1)).toBe(0);
    end(second);
    end(third);
    expect(passing(9)).toBe(9);
  });
});

test('a lower limit of concurrent requests holds at once, whatever part of the old one this process had', () => {
  const slots = new Slots(20);
  for (let count = 0; count < 20; count += 1) slots.take();
  slots.accept(0, 0.5, 20);
  slots.change(15);
  while (!slots.open) slots.release();
  expect(slots.inFlight).toBe(14);
});

describe('a day', () => {
  test('goes on when a clock that was ahead, or passed midnight, goes back', () => {
    const ahead = { ms: 0 };
    const still = clocksAt();
    const clocks = { ...still, epoch: () => still.epoch() + ahead.ms };
    const { passing } = limitsOf({ a: limit({ daily: 3 }) }, {}, undefined, clocks);
    expect(passing(2)).toBe(2);
    ahead.ms = DAY_MS;
    expect(passing(4)).toBe(3);
    ahead.ms = 0;
    expect(passing(4)).toBe(1);
    ahead.ms = DAY_MS;
    expect(passing(4)).toBe(0);
  });

  test('ends at midnight, UTC', () => {
    const { passing, ask, clocks } = limitsOf({ a: limit({ daily: 3 }) });
    expect(passing(5)).toBe(3);
    expect(headersOf(ask())['retry-after']).toBe(String(DAY_MS / 2 / 1000));
    clocks.pass(DAY_MS / 2 - 1);
    expect(passing(1)).toBe(0);
    clocks.pass(1);
    expect(passing(5)).toBe(3);
  });
});

describe('of a client and of a deployment', () => {
  test('a request that one of them refuses uses nothing of the other', () => {
    const { passing, ask } = limitsOf({ a: rate(0.1, 5) }, { d: limit({ concurrent: 1 }) });
    const held = ask();
    expect(passing(20)).toBe(0);
    end(held);
    expect(passing(20)).toBe(4);
    expect(passing(1, 'another')).toBe(1);
  });

  test('a deployment is shared by all clients; nothing else is limited', () => {
    const { passing, ask } = limitsOf({}, { d: rate(0.1, 3) });
    expect(passing(2, 'a') + passing(2, 'b')).toBe(3);
    expect(passing(9, 'a', 'elsewhere')).toBe(9);
    expect(ask('a', 'elsewhere')).toBeUndefined();
  });
});

describe('a deployment whose limit one client uses up', () => {
  /**
   * How many requests pass in so many seconds: of a client that comes again when it is told to, and of one that asks all
   * the time and has 20 requests under way.
   */
  function passingBesideHog(settings: LimitSettings, seconds: number) {
    const { ask, clocks } = limitsOf({}, { d: settings });
    const underWay: ReturnType<typeof ask>[] = [];
    let [passed, hogged, next] = [0, 0, 0];
    const hog = (): void => {
      if (underWay.length >= 20) end(underWay.shift());
      const answers = Array.from({ length: 5 }, () => ask('hog'));
      const passing = answers.filter((answer) => !(answer instanceof GatewayError));
      underWay.push(...passing);
      hogged += passing.length;
    };
    for (let at = 0; at < seconds * 1000; at += 10) {
      hog();
      const answer = at >= next ? ask('other') : undefined;
      if (answer instanceof GatewayError) next = at + Number(answer.retryAfter) * 1000;
      else if (answer !== undefined) passed += 1;
      end(answer);
      clocks.pass(10);
    }
    return { passed, hogged };
  }

  test('serves another one when it comes again, and wastes nothing: rate', () => {
    const { passed, hogged } = passingBesideHog(rate(10, 10), 20);
    expect(passed).toBeGreaterThanOrEqual(18);
    expect(passed + hogged).toBeGreaterThanOrEqual(10 + 20 * 10 - 2);
  });

  test('serves another one when it comes again: concurrent', () => {
    expect(passingBesideHog(limit({ concurrent: 20 }), 20).passed).toBeGreaterThanOrEqual(18);
  });

  test('serves both alike that take the last token in turn', () => {
    const { ask, clocks } = limitsOf({}, { d: rate(1, 1) });
    const passed = { a: 0, b: 0 };
    for (let at = 0; at < 100; at += 1) {
      for (const client of ['a', 'b'] as const) {
        const answer = ask(client);
        if (!(answer instanceof GatewayError)) passed[client] += 1;
        end(answer);
      }
      clocks.pass(1000);
    }
    expect(passed).toEqual({ a: 50, b: 50 });
  });

  test('waits no longer than half a second for one that does not come again', () => {
    const { ask, clocks, passing } = limitsOf({}, { d: rate(1, 1) });
    end(ask('hog'));
    expect(headersOf(ask('other'))['retry-after']).toBe('1');
    clocks.pass(1_499);
    expect(passing(1, 'hog')).toBe(0);
    clocks.pass(1);
    expect(passing(1, 'hog')).toBe(1);
  });
});

describe('what a client is told', () => {
  const all = limit({ rate: { perSecond: 50, burst: 100 }, concurrent: 20, daily: 10_000 });

  test('of a request that passes', () => {
    const { ask } = limitsOf({ a: all }, { d: rate(0.1, 1) });
    expect(headersOf(ask())).toEqual({
      'ratelimit-policy':
        '"client-rate";q=100;w=2, "client-daily";q=10000;w=86400, "client-concurrent";q=20;qu="concurrent-requests", "deployment-rate";q=1;w=10',
      ratelimit:
        '"client-rate";r=99;t=1, "client-daily";r=9999;t=43200, "client-concurrent";r=19, "deployment-rate";r=0;t=10',
    });
  });

  test.each([
    [
      'rate',
      limit({ rate: { perSecond: 0.2, burst: 1 } }),
      'This client has used up its rate (limits.rate). Send the request again after 5 s.',
    ],
    [
      'daily',
      limit({ daily: 1 }),
      'This client has used up its requests of this day, UTC (limits.daily). Send the request again after 43200 s.',
    ],
  ])('of a request beyond the limit: %s', (_name, settings, detail) => {
    const { ask, passing } = limitsOf({ a: settings });
    expect(passing(1)).toBe(1);
    const refusal = ask();
    expect(refusal).toMatchObject({ code: 'rate-limited', detail, kind: { status: 429 } });
  });

  test('the refusals of each client are counted', async () => {
    const { passing, metrics } = limitsOf({ a: rate(1, 1) }, { d: rate(1, 2) });
    passing(4, 'a');
    passing(4, 'b');
    const { values } = await metrics.rateLimited.get();
    expect(values.map(({ labels, value }) => [labels.client, value])).toEqual([
      ['a', 3],
      ['b', 3],
    ]);
  });
});

describe('a new configuration', () => {
  test('holds at once, and what was used stays used', () => {
    const { passing, ask, configure, clocks } = limitsOf({
      a: limit({ rate: { perSecond: 1, burst: 10 }, daily: 100, concurrent: 5 }),
    });
    expect(passing(9)).toBe(9);
    const held = ask();
    configure({ a: limit({ rate: { perSecond: 10, burst: 20 }, daily: 12, concurrent: 1 }) });
    expect(passing(1)).toBe(0);
    end(held);
    expect(passing(1)).toBe(0);
    clocks.pass(1_000);
    expect(passing(10)).toBe(2);
    configure({ a: limit({ rate: { perSecond: 10, burst: 20 } }) });
    expect(passing(100)).toBe(8);
    configure({});
    expect(passing(1_000)).toBe(1_000);
  });

  test('a smaller burst cuts off what was saved', () => {
    const { passing, configure } = limitsOf({ a: rate(1, 100) });
    configure({ a: rate(1, 3) });
    expect(passing(10)).toBe(3);
  });
});
