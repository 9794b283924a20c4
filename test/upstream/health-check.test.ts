import { afterEach, beforeEach, describe, expect, jest, test } from '@jest/globals';
import { Cancellation } from '../../src/base/cancellation.ts';
import { GatewayError } from '../../src/base/errors.ts';
import { AddressState, type StatusChange } from '../../src/upstream/address-state.ts';
import { CheckPace, checkAddress } from '../../src/upstream/health-check.ts';

const INTERVAL = 10_000;
const clock = { now: () => Date.now() };
const CIRCUIT = { failures: 0.5, minimum: 20, window: 10_000, open: 5_000, statuses: [] };
const HEALTH = { interval: INTERVAL, failback: 30_000 };
const ended = new GatewayError('draining', 'ended');
let checks = new Cancellation();

beforeEach(() => {
  jest.useFakeTimers();
  checks = new Cancellation();
});
afterEach(() => {
  checks.cancel(ended);
  jest.useRealTimers();
});

/** So many addresses with checks; `works` decides on each connection. */
function scene({ addresses = 1, works = (): boolean => true } = {}) {
  const pace = new CheckPace(clock);
  const times: number[] = [];
  const connections = {
    connect: async () => {
      times.push(Date.now());
      if (!works()) throw new GatewayError('upstream-unreachable', 'no connection');
    },
    check: async () => {
      throw new Error('no request was to be sent');
    },
  };
  const changes: StatusChange[] = [];
  const check = async (state: AddressState): Promise<void> => {
    for await (const change of checkAddress(state, HEALTH, connections, pace, checks)) changes.push(change);
  };
  const states = Array.from({ length: addresses }, () => new AddressState(CIRCUIT, HEALTH, clock));
  const all = Promise.all(states.map(check));
  const pass = (ms: number): Promise<void> => jest.advanceTimersByTimeAsync(ms);
  return { times, states, changes, all, pass };
}

describe('an address is checked', () => {
  test('soon after the start, then in about equal intervals', async () => {
    const { times, pass } = scene();
    await pass(1_100);
    expect(times).toHaveLength(1);
    await pass(11_000);
    const [first = 0, second = 0] = times;
    expect(second - first).toBeGreaterThanOrEqual(0.9 * INTERVAL - 1);
  });

  test('not while client requests show its state', async () => {
    const { times, states, pass } = scene();
    await pass(1_100);
    for (let step = 0; step < 60; step += 1) {
      states[0]?.responded(200);
      await pass(1_000);
    }
    expect(times).toHaveLength(1);
    await pass(2 * 11_000);
    expect(times.length).toBeGreaterThan(1);
  });

  test('again soon when a check of a healthy address failed, until it counts as failing', async () => {
    let works = true;
    const { times, states, changes, pass } = scene({ works: () => works });
    await pass(1_100);
    works = false;
    // 9 to 11 s to the first failure, then about 1 s each to the others.
    await pass(11_000 + 2 * 1_200);
    expect(states[0]?.status.health).toBe('failing');
    expect(changes.map(({ after }) => after.health)).toEqual(['healthy', 'failing']);
    const [first = 0, second = 0, third = 0] = times.slice(1);
    expect(Math.max(second - first, third - second)).toBeLessThan(1_200);
    await pass(4_000);
    expect(times).toHaveLength(4);
  });

  test('not when they end while many of them wait for their turn', async () => {
    const { times, all, pass } = scene({ addresses: 200 });
    await pass(1_100);
    const begun = times.length;
    checks.cancel(ended);
    await all;
    expect([begun > 0, begun < 200, times.length]).toEqual([true, true, begun]);
  });

  test('no more once they end, which needs no timer', async () => {
    const { times, all, pass } = scene();
    await pass(1_100);
    checks.cancel(ended);
    await all;
    expect([times.length, jest.getTimerCount()]).toEqual([1, 0]);
  });

  test('at most 20 times per second in the whole process', async () => {
    const { times, pass } = scene({ addresses: 200 });
    await pass(1_000);
    expect(times.length).toBeLessThanOrEqual(21);
    await pass(30_000);
    const gaps = times.slice(1).map((at, index) => at - (times[index] ?? 0));
    // Timers count whole milliseconds.
    expect(Math.min(...gaps)).toBeGreaterThanOrEqual(49);
    expect(times.length).toBeGreaterThan(200);
  });
});
