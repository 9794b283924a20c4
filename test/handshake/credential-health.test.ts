import { expect, test } from '@jest/globals';
import { CredentialHealth } from '../../src/handshake/credential-health.ts';

test('an answer to an attempt that went out before a refused one does not heal the refusal', () => {
  const health = new CredentialHealth();
  const before = health.attempt();
  const refused = health.attempt();
  expect(health.refuse(refused)).toBe(true);
  health.accept(before);
  expect([health.refused, health.accepted]).toEqual([true, false]);
  health.accept(health.attempt());
  expect([health.refused, health.accepted]).toEqual([false, true]);
});

test('a refusal of an attempt that went out before an accepted one is about something else', () => {
  const health = new CredentialHealth();
  const before = health.attempt();
  const accepted = health.attempt();
  health.accept(accepted);
  expect([health.isSuperseded(before), health.isSuperseded(health.attempt())]).toEqual([true, false]);
  expect([health.refuse(before), health.refused]).toEqual([false, false]);
});

test('a refusal is news once', () => {
  const health = new CredentialHealth();
  const attempts = [health.attempt(), health.attempt()];
  expect(attempts.map((attempt) => health.refuse(attempt))).toEqual([true, false]);
});

test('after a reset the credential has to prove itself again, and earlier attempts say nothing', () => {
  const health = new CredentialHealth();
  health.accept(health.attempt());
  const late = health.attempt();
  health.refuse(health.attempt());
  health.reset();
  expect([health.refused, health.accepted, health.isSuperseded(late)]).toEqual([false, false, true]);
  expect(health.isSuperseded(health.attempt())).toBe(false);
});
