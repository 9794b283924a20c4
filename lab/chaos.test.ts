import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { FAULTS, type Fault } from './chaos/faults.ts';
import { runChaos } from './chaos/run.ts';
import { readRecords } from './simulation/flight.ts';

/** Each comes once. Kills of workers and reloads have tests in test/scenarios/fleet/. */
const NAMES = [
  'kill -9 of a gateway, and its restart',
  'audit disk full',
  'clock jump',
  'kill -9 of Redis, and its restart, empty',
  'all nonces expire',
  'the credential rotates',
  'connections to the upstream reset',
  'the first address of the upstream is gone, and back',
];

let out: string;
beforeAll(async () => {
  out = await mkdtemp(join(tmpdir(), 'chaos-out-'));
});
afterAll(() => rm(out, { recursive: true }));

test('faults of one replica, of Redis and of the upstream fail no GET through HAProxy', async () => {
  const once = FAULTS.filter(({ name }) => NAMES.includes(name));
  const { figures, rows, findings } = await runChaos({
    seed: 1,
    replicas: 2,
    workers: 2,
    redis: 'alone',
    once,
    out,
  });
  expect(findings).toEqual([]);
  expect(rows.map(([name]) => name)).toEqual(expect.arrayContaining(NAMES));
  expect(figures['complete responses with a record']).toBeGreaterThan(100);
  expect(figures['requests through the second address']).toBeGreaterThan(0);
});

/** Clients of the replica notice it. */
const UNEXPLAINED: Fault = {
  name: 'a fault that explains nothing',
  lane: 'replica',
  explains: [],
  run: async ({ replicas }) => {
    await replicas[0]?.end('kill');
    await replicas[0]?.start();
  },
};

test('the first failure that no fault explains keeps the flight records of the replicas', async () => {
  const { findings, flightRecords } = await runChaos({
    seed: 2,
    replicas: 2,
    workers: 1,
    redis: 'cluster',
    once: [UNEXPLAINED],
    out,
  });
  expect(findings.length).toBeGreaterThan(0);
  const file = join(out, 'chaos-2-cluster-g1.jsonl');
  expect(flightRecords).toContain(file);
  // One for each worker.
  expect(readRecords(await readFile(file, 'utf8'))).toHaveLength(1);
});
