import { expect, test } from '@jest/globals';
import { type LeftOut, RefusalSample } from '../../src/audit/journal/refusal-sample.ts';
import { facts, openTestAudit, recordsIn, useFolders } from '../support/audit-log.ts';

const folder = useFolders();

test('of a flood some are recorded, and how many were not', async () => {
  const directory = await folder();
  const { audit } = await openTestAudit(directory);
  const told: boolean[] = [];
  const waiter = { recorded: () => told.push(true), unrecorded: () => told.push(false) };
  for (let index = 0; index < 500; index += 1) audit.refusal(facts({ code: 'client-unknown' }), waiter);
  await audit.close();
  const records = await recordsIn(directory);
  expect(records.filter(({ kind }) => kind === 'access')).toHaveLength(10);
  expect(records.at(-1)).toMatchObject({ event: 'refusals-left-out', client: 'reporting', count: 490 });
  expect(told).toEqual(Array(500).fill(true));
});

test('a flood from many addresses is bounded too, and every refusal is accounted for', () => {
  const leftOut: LeftOut[] = [];
  const sample = new RefusalSample((told) => leftOut.push(told));
  let admitted = 0;
  for (let index = 0; index < 20_000; index += 1)
    admitted += sample.admits('a', `10.0.${index % 5000}`) ? 1 : 0;
  sample.flush();
  const missing = leftOut.reduce((sum, { count }) => sum + count, 0);
  expect([admitted, admitted + missing]).toEqual([200, 20_000]);
  sample.flush();
  expect(sample.admits('a', '10.0.1')).toBe(true);
  sample.flush();
});
