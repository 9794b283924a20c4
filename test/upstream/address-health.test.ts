import { describe, expect, test } from '@jest/globals';
import { AddressHealth, type HealthChange } from '../../src/upstream/address-health.ts';

function scene(isChecked = true) {
  const clock = { time: 0, now: () => clock.time };
  const changes: HealthChange[] = [];
  const health = new AddressHealth(
    { interval: isChecked ? 10_000 : undefined, failback: 30_000 },
    clock,
    (change) => changes.push(change),
  );
  return { clock, health, changes };
}

describe('the health of an address', () => {
  test('is unknown, then what the first result shows', () => {
    const failing = scene();
    expect([failing.health.state, failing.health.isSettled]).toEqual(['unknown', true]);
    failing.health.checkFailed('connection', 'refused');
    expect(failing.changes).toEqual([{ state: 'failing', reason: 'refused', isFirst: true }]);
    const healthy = scene();
    healthy.health.responded();
    expect(healthy.changes).toEqual([{ state: 'healthy', reason: '', isFirst: true }]);
  });

  test('is failing after three failures in a row, of requests and checks together', () => {
    const { health } = scene();
    health.responded();
    health.failed('request', 'a');
    health.failed('request', 'a');
    health.responded();
    health.failed('request', 'b');
    health.checkFailed('connection', 'c');
    expect([health.state, health.hasFailed]).toEqual(['healthy', true]);
    health.failed('request', 'd');
    expect([health.state, health.reason]).toEqual(['failing', 'd']);
    health.failed('request', 'e');
    expect(health.reason).toBe('e');
  });

  test('is healthy after any response', () => {
    const { health } = scene();
    health.failed('request', 'a');
    health.responded();
    expect([health.state, health.reason]).toEqual(['healthy', '']);
  });

  test('is healthy after a connection if it failed for want of one', () => {
    const { health } = scene();
    health.failed('connection', 'refused');
    health.checked('connection');
    expect(health.state).toBe('healthy');
  });

  test('is not healthy after a mere connection while requests get no response, but for failback', () => {
    const { health, clock } = scene();
    health.failed('request', 'no response');
    clock.time = 29_999;
    health.checked('connection');
    expect(health.state).toBe('failing');
    clock.time = 30_000;
    health.checked('connection');
    expect(health.state).toBe('healthy');
  });

  test('is healthy at once after a check that got a response', () => {
    const { health } = scene();
    health.failed('request', 'no response');
    health.checked('request');
    expect(health.state).toBe('healthy');
  });

  test('is settled again when it has been healthy for failback', () => {
    const { health, clock } = scene();
    health.failed('connection', 'refused');
    clock.time = 10_000;
    health.responded();
    clock.time = 39_999;
    expect([health.isSettled, health.age]).toEqual([false, 29_999]);
    clock.time = 40_000;
    expect(health.isSettled).toBe(true);
  });

  test('is settled without checks when it has been left alone for failback', () => {
    const { health, clock } = scene(false);
    health.failed('connection', 'refused');
    clock.time = 29_999;
    expect(health.isSettled).toBe(false);
    clock.time = 30_000;
    expect(health.isSettled).toBe(true);
    health.failed('connection', 'refused');
    expect(health.isSettled).toBe(false);
  });

  test('tells once that client requests have shown it', () => {
    const { health } = scene();
    health.checked('connection');
    expect(health.takeTraffic()).toBe(false);
    health.responded();
    expect([health.takeTraffic(), health.takeTraffic()]).toEqual([true, false]);
    health.failed('request', 'a');
    expect(health.takeTraffic()).toBe(true);
  });
});
