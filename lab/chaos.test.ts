import { expect, test } from '@jest/globals';
import { runChaos } from './chaos/run.ts';

/** Each comes once. Kills of workers and reloads have tests in test/scenarios/fleet/. */
const FAULTS = [
  'kill -9 of a gateway, and its restart',
  'audit disk full',
  'clock jump',
  'kill -9 of Redis, and its restart, empty',
  'all nonces expire',
  'the credential rotates',
  'connections to the upstream reset',
];

test('faults of one replica, of Redis and of the upstream fail no GET through HAProxy', async () => {
  const { figures, rows, findings } = await runChaos({
    seed: 1,
    replicas: 2,
    workers: 2,
    redis: 'alone',
    once: FAULTS,
  });
  expect(findings).toEqual([]);
  expect(rows.map(([name]) => name)).toEqual(expect.arrayContaining(FAULTS));
  expect(figures['complete responses with a record']).toBeGreaterThan(100);
});
