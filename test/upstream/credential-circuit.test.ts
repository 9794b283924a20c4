import { expect, test } from '@jest/globals';
import { CredentialCircuit } from '../../src/upstream/credential-circuit.ts';

/** The seconds of two minutes in which an attempt is let through. */
function admitted(circuit: CredentialCircuit, clock: { ms: number }): number[] {
  const seconds = Array.from({ length: 120 }, (_, index) => index);
  return seconds.filter((second) => {
    clock.ms = second * 1000;
    try {
      circuit.admit();
      return true;
    } catch (error) {
      expect(error).toMatchObject({ code: 'upstream-credential-refused' });
      return false;
    }
  });
}

test.each([
  ['after one refusal, an attempt each half minute', 2, 1, [30, 60, 90]],
  ['after two at once, none before the minute is over', 2, 2, [60, 90]],
  ['one a minute', 1, 1, [60]],
  ['six a minute', 6, 6, [60, 70, 80, 90, 100, 110]],
])('%s', (_title, perMinute, refusals, expected) => {
  const clock = { ms: 0 };
  const circuit = new CredentialCircuit({ now: () => clock.ms }, perMinute);
  for (let count = 0; count < refusals; count += 1) circuit.attempted();
  expect(admitted(circuit, clock)).toEqual(expected);
});

test('another number of attempts a minute applies to those that were made', () => {
  const clock = { ms: 0 };
  const circuit = new CredentialCircuit({ now: () => clock.ms }, 6);
  for (clock.ms = 0; clock.ms <= 50_000; clock.ms += 10_000) circuit.attempted();
  circuit.perMinute = 2;
  expect(circuit.perMinute).toBe(2);
  expect(admitted(circuit, clock).slice(0, 1)).toEqual([100]);
});

test('only the last attempts count, as many as a minute may have', () => {
  const clock = { ms: 0 };
  const circuit = new CredentialCircuit({ now: () => clock.ms }, 2);
  circuit.attempted(3);
  clock.ms = 10_000;
  circuit.attempted();
  clock.ms = 20_000;
  circuit.attempted();
  expect(admitted(circuit, clock).slice(0, 1)).toEqual([70]);
});
