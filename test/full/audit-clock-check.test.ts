import { readdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, jest, test } from '@jest/globals';
import { auditKeys } from '../../src/audit/keys.ts';
import { ClockCheck } from '../../src/audit/segments/clock-check.ts';
import { Secret } from '../../src/base/secret.ts';
import {
  AUDIT_KEY,
  openTestAudit,
  REPLICA,
  recordAccess,
  segmentText,
  useFolders,
} from '../support/audit-log.ts';
import { until } from '../support/until.ts';
import { verified } from '../support/verified-log.ts';
import { setWallClock } from '../support/wall-clock.ts';

const folder = useFolders();
const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;
const BEGIN = Date.parse('2026-01-01T00:00:00Z');
const segment = { size: 1, age: DAY_MS, keep: 30 * DAY_MS };
const keys = auditKeys(new Secret(AUDIT_KEY));
const now = performance.now.bind(performance);
/** Time that the processes have run, beside the test. */
let ran: number;
let directory: string;

beforeEach(async () => {
  ran = 0;
  jest.spyOn(performance, 'now').mockImplementation(() => now() + ran);
  directory = await folder();
  setClock(0);
  await run(5);
});
afterEach(() => {
  jest.restoreAllMocks();
  jest.useRealTimers();
});

const setClock = (days: number): void => setWallClock(BEGIN + days * DAY_MS);

/**
 * A process that writes so many records, each in a segment; resolves to why it removed none, and what it logged as an
 * error.
 */
async function run(
  records: number,
  size = segment.size,
): Promise<{ held: string | undefined; errors: unknown[] }> {
  const { audit, logged } = await openTestAudit(directory, { segment: { ...segment, size } });
  for (let index = 0; index < records; index += 1) await recordAccess(audit);
  await audit.close();
  const errors = logged.flatMap(({ level, msg }) => (Number(level) >= 50 ? [msg] : []));
  return { held: audit.retentionHeld, errors };
}

async function isFirstThere(): Promise<boolean> {
  return (await readdir(join(directory, REPLICA))).some((name) => name.startsWith('000000000001.jsonl'));
}

/** On which day each segment was begun, as its header has it. */
async function openedDays(): Promise<number[]> {
  const names = (await readdir(join(directory, REPLICA))).filter((name) => name.includes('.jsonl')).sort();
  const texts = await Promise.all(names.map((name) => segmentText(directory, name)));
  const opened = texts.map((text) => Date.parse(/"opened":"([^"]+)"/.exec(text)?.[1] ?? ''));
  return opened.map((at) => Math.floor((at - BEGIN) / DAY_MS));
}

function check(): ClockCheck {
  return new ClockCheck({ folder: join(directory, REPLICA), replica: REPLICA, keys, age: segment.age });
}

test('a clock that is far ahead removes nothing, at any number of starts, until it is accepted', async () => {
  setClock(400);
  for (let start = 0; start < 3; start += 1) {
    const { held, errors } = await run(start);
    expect(held).toBe(
      'the clock is 400 days ahead of the audit log, so old segments are not removed for a day; run audit accept-clock if it is right',
    );
    expect(errors).toEqual([held]);
  }
  expect(await isFirstThere()).toBe(true);
  // Set right, it is as before.
  setClock(1);
  expect(await run(1)).toEqual({ held: undefined, errors: [] });
  expect(await isFirstThere()).toBe(true);

  setClock(400);
  expect(await check().accept()).toBe(true);
  expect(await check().accept()).toBe(false);
  const { audit } = await openTestAudit(directory, { segment: { ...segment, size: 1e9 } });
  await audit.close();
  expect(audit.retentionHeld).toBeUndefined();
  expect(await isFirstThere()).toBe(false);
  expect((await verified(directory)).alterations).toEqual([]);
});

test('a clock that goes on removes what is old', async () => {
  setClock(8);
  await run(1);
  expect(await isFirstThere()).toBe(true);
  for (const days of [16, 24, 31]) {
    setClock(days);
    await run(1);
  }
  setClock(32);
  await run(0);
  expect(await isFirstThere()).toBe(false);
});

test('a clock that was ahead for a moment keeps nothing once it is right', async () => {
  setClock(400);
  await run(1);
  for (const days of [1, 8, 16, 24, 29]) {
    setClock(days);
    expect(await run(1)).toEqual({ held: undefined, errors: [] });
  }
  expect(await isFirstThere()).toBe(true);
  setClock(36);
  // The segment of the clock that was ahead goes, too. A start that ends before all is removed leaves it to the next.
  await until(async () => {
    expect(await run(0)).toEqual({ held: undefined, errors: [] });
    return (await openedDays())[0] === 1;
  });
});

test('a clock that was behind for a time removes nothing of the days before once it is right', async () => {
  directory = await folder();
  await run(1, 1e9);
  setClock(-400);
  await run(3);
  setClock(1);
  await run(1);
  await check().accept();
  expect(await run(1)).toEqual({ held: undefined, errors: [] });
  expect(await isFirstThere()).toBe(true);
  for (const days of [8, 16, 24, 31]) {
    setClock(days);
    await run(1);
  }
  setClock(33);
  await until(async () => {
    await run(0);
    return !(await isFirstThere());
  });
});

test('a day of running counts, which neither starts nor the clock make longer or shorter', async () => {
  setClock(400);
  let running = check();
  for (let hour = 0; hour < 24; hour += 1) {
    expect(await running.doubt()).toBeGreaterThanOrEqual(400);
    ran += HOUR_MS;
    if (hour % 5 === 0) {
      await running.end();
      running = check();
    }
    setClock(400 + hour);
  }
  expect(await running.doubt()).toBeUndefined();
  expect(await check().doubt()).toBeUndefined();
});

test('an acceptance counts although a gateway writes at that moment how long it has counted', async () => {
  setClock(400);
  expect(await check().doubt()).toBe(400);
  const file = join(directory, REPLICA, 'clock');
  const counted = await readFile(file);
  expect(await check().accept()).toBe(true);
  await writeFile(file, counted);
  expect(await check().doubt()).toBeUndefined();
});

test('a file that no gateway wrote does not make the day shorter', async () => {
  setClock(400);
  await check().accept();
  const file = join(directory, REPLICA, 'clock.accepted');
  expect(await check().doubt()).toBeUndefined();
  const text = await readFile(file, 'utf8');
  for (const changed of [text.replace(/"ms":\d+/, '"ms":90000000'), '{}', '']) {
    await writeFile(file, changed);
    expect(await check().doubt()).toBe(400);
  }
});
