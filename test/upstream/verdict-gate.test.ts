import { expect, jest, test } from '@jest/globals';
import { Cancellation } from '../../src/base/cancellation.ts';
import { GatewayError } from '../../src/base/errors.ts';
import { VerdictGate } from '../../src/upstream/verdict-gate.ts';

const enter = (gate: VerdictGate) => gate.enter(new Cancellation());

test.each(['accepted', 'refused', 'alone'] as const)(
  'one leads, the others hear from it: %s',
  async (verdict) => {
    const gate = new VerdictGate();
    const first = await enter(gate);
    const others = [enter(gate), enter(gate)];
    gate.conclude(verdict);
    expect([first, ...(await Promise.all(others))]).toEqual(['lead', verdict, verdict]);
    expect(await enter(gate)).toBe('lead');
  },
);

test('who leads and finds nothing out leaves the lead to the next', async () => {
  const gate = new VerdictGate();
  await enter(gate);
  const [second, third] = [enter(gate), enter(gate)];
  gate.leave();
  expect(await second).toBe('lead');
  gate.conclude('accepted');
  expect(await third).toBe('accepted');
  await enter(gate);
  gate.leave();
  expect(await enter(gate)).toBe('lead');
});

test('who waits too long, or is given up, goes on alone', async () => {
  jest.useFakeTimers();
  try {
    const gate = new VerdictGate();
    await enter(gate);
    const cancellation = new Cancellation();
    const [patient, given] = [enter(gate), gate.enter(cancellation)];
    cancellation.cancel(new GatewayError('client-closed', 'gone'));
    expect(await given).toBe('alone');
    jest.advanceTimersByTime(2_000);
    expect(await patient).toBe('alone');
  } finally {
    jest.useRealTimers();
  }
});
