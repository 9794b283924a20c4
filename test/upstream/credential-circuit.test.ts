import { expect, test } from '@jest/globals';
import { CredentialCircuit } from '../../src/upstream/credential-circuit.ts';

test('a refused credential gets one trial each half minute until it is accepted', () => {
  let now = 0;
  const circuit = new CredentialCircuit({ now: () => now });
  expect(circuit.admit()).toBe(false);
  circuit.refused();
  expect(circuit.open).toBe(true);
  expect(() => circuit.admit()).toThrow('upstream-credential-refused');
  now = 29_999;
  expect(() => circuit.admit()).toThrow('upstream-credential-refused');
  now = 30_000;
  expect(circuit.admit()).toBe(true);
  expect(() => circuit.admit()).toThrow('upstream-credential-refused');
  now = 60_000;
  expect(circuit.admit()).toBe(true);
  circuit.accepted();
  expect([circuit.open, circuit.admit()]).toEqual([false, false]);
});
