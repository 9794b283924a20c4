import { describe, expect, test } from '@jest/globals';
import { Circuit, type CircuitState } from '../../src/upstream/circuit.ts';

const OPTIONS = { failures: 0.5, minimum: 4, window: 10_000, open: 5_000, statuses: [503] };

function scene(options = OPTIONS) {
  const clock = { time: 0, now: () => clock.time };
  const changes: CircuitState[] = [];
  const circuit = new Circuit(options, clock, (state) => changes.push(state));
  const fail = (times: number): void => {
    for (let count = 0; count < times; count += 1) circuit.failed();
  };
  return { clock, circuit, changes, fail };
}

describe('a closed circuit', () => {
  test('opens when enough exchanges of the window have failed', () => {
    const { circuit, fail, changes } = scene();
    circuit.responded(200);
    circuit.responded(500);
    fail(1);
    expect(circuit.state).toBe('closed');
    fail(1);
    expect([circuit.state, changes]).toEqual(['open', ['open']]);
  });

  test('stays closed below the minimum, and below the share', () => {
    const few = scene();
    few.fail(3);
    expect(few.circuit.state).toBe('closed');
    const mostly = scene();
    for (let count = 0; count < 10; count += 1) mostly.circuit.responded(200);
    mostly.fail(9);
    expect(mostly.circuit.state).toBe('closed');
  });

  test('forgets failures that have left the window', () => {
    const { circuit, clock, fail } = scene();
    fail(3);
    clock.time = 10_000;
    fail(3);
    expect(circuit.state).toBe('closed');
  });

  test('counts a status that is listed as a failure', () => {
    const { circuit } = scene();
    for (let count = 0; count < 4; count += 1) circuit.responded(503);
    expect(circuit.state).toBe('open');
  });
});

describe('an open circuit', () => {
  test('refuses until its time has passed, and says how long that is', () => {
    const { circuit, clock, fail } = scene();
    fail(4);
    clock.time = 1_000;
    expect([circuit.admit(), circuit.isAdmitting, circuit.retryAfterMs]).toEqual([undefined, false, 4_000]);
    clock.time = 5_000;
    expect([circuit.isAdmitting, circuit.retryAfterMs]).toEqual([true, 0]);
  });

  test('takes no notice of exchanges that began before', () => {
    const { circuit, fail } = scene();
    fail(4);
    circuit.responded(200);
    expect(circuit.state).toBe('open');
  });

  test('admits one trial; its response closes the circuit, with all failures forgotten', () => {
    const { circuit, clock, fail, changes } = scene();
    fail(4);
    clock.time = 5_000;
    expect([circuit.admit(), circuit.admit(), circuit.isAdmitting]).toEqual([1, undefined, false]);
    circuit.responded(401);
    expect(changes).toEqual(['open', 'half-open', 'closed']);
    expect([circuit.admit(), circuit.admit()]).toEqual([0, 0]);
    fail(3);
    expect(circuit.state).toBe('closed');
  });

  test('opens again for its time when the trial fails', () => {
    const { circuit, clock, fail } = scene();
    fail(4);
    clock.time = 5_000;
    circuit.admit();
    fail(1);
    expect([circuit.state, circuit.retryAfterMs, circuit.admit()]).toEqual(['open', 5_000, undefined]);
  });

  test('makes the next request the trial if one ends without a result', () => {
    const { circuit, clock, fail } = scene();
    fail(4);
    clock.time = 5_000;
    const first = circuit.admit() ?? 0;
    circuit.endTrial(first);
    expect(circuit.admit()).toBe(2);
    // The first request ends again, in vain: it is not the trial any more.
    circuit.endTrial(first);
    expect(circuit.admit()).toBeUndefined();
  });
});
