import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, test } from '@jest/globals';
import type { PlacedFinding } from '../../src/audit/findings.ts';
import { auditKeys } from '../../src/audit/keys.ts';
import type { Query } from '../../src/audit/reader/query.ts';
import {
  countUsage,
  type UsageField,
  type UsageTableOptions,
  usageCsv,
  usageFields,
} from '../../src/audit/reader/usage.ts';
import { type AccessFacts, RecordText, recordedTarget, recordLine } from '../../src/audit/record.ts';
import { GENESIS, sealFor, sealLine } from '../../src/audit/seal.ts';
import { headerLine, segmentName } from '../../src/audit/segments/segment.ts';
import { Secret } from '../../src/base/secret.ts';
import { AUDIT_KEY, facts, REPLICA, useFolders } from '../support/audit-log.ts';

const folder = useFolders();
const key = auditKeys(new Secret(AUDIT_KEY));
const text = new RecordText(REPLICA);
const LISTS = { submissions: { authors: ['ids'], reviewers: ['ids', 'reviewer_ids'], none: [] } };
const BY_VALUE = new Set(['ids', 'reviewer_ids']);

/** A request of the log, with what is counted of it. */
interface Logged {
  readonly facts?: Partial<AccessFacts>;
  readonly time?: string;
  /** Undefined: the process ended meanwhile. */
  readonly end?: { readonly status?: number; readonly in?: number; readonly out: number };
  /** True: it is in the access record; `corrected`: that has another end, which an outcome record corrects. */
  readonly whole?: boolean | 'corrected';
}

const DAY = '2026-03-01T10:00:00.000Z';

function accessText({ facts: change, end, whole = false }: Logged): string {
  const out = whole === 'corrected' ? (end?.out ?? 0) + 1_000 : (end?.out ?? 0);
  const bytes = { in: end?.in ?? 0, out };
  const full = {
    ...facts(change),
    ...(whole !== false && end !== undefined && { end: { outcome: '', bytes, durationMs: 2.5 } }),
  };
  return text.access(full, { address: full.address, ...recordedTarget(full.target, BY_VALUE) });
}

/** The records of requests that are all under way before the first one ends, with their times. */
function recordsOf(requests: readonly Logged[]): [time: string, record: string][] {
  const accesses = requests.map((each): [string, string] => [each.time ?? DAY, accessText(each)]);
  const outcomes = requests.flatMap(
    ({ end, whole, time = DAY, facts: change }, index): [string, string][] => {
      if (end === undefined || whole === true) return [];
      const { requestId, status } = facts(change);
      const bytes = { in: end.in ?? 0, out: end.out };
      const ended = { access: index + 1, requestId, status: end.status ?? status, code: '', outcome: '' };
      return [[time, text.outcome({ ...ended, bytes, durationMs: 1 })]];
    },
  );
  return [...accesses, ...outcomes];
}

/** Writes a log in segments of `size` records, and batches of two. */
async function logOf(records: readonly [string, string][], size = 1000): Promise<string> {
  const directory = await folder();
  await mkdir(join(directory, REPLICA));
  let previous = GENESIS;
  for (let first = 0; first < records.length; first += size) {
    const opened = '2026-03-01T00:00:00.000Z';
    const header = headerLine({ replica: REPLICA, first: first + 1, previous, key: key.id, opened });
    let [batch, content] = [header, ''];
    for (let at = first; at < Math.min(first + size, records.length); at += 2) {
      const part = records.slice(at, Math.min(at + 2, first + size));
      batch += part.map(([time, record], index) => recordLine(at + index + 1, time, record)).join('');
      const range = { first: at + 1, last: at + part.length };
      const seal = sealFor(key, { replica: REPLICA, previous }, range, Buffer.from(batch));
      content += batch + sealLine(seal);
      [batch, previous] = ['', seal.hmac];
    }
    await writeFile(join(directory, REPLICA, segmentName(first + 1)), content);
  }
  return directory;
}

interface Asked extends Partial<UsageTableOptions> {
  readonly query?: Pick<Query, 'since' | 'until' | 'replica'>;
}

async function usageOf(directory: string, by: readonly UsageField[], asked: Asked = {}) {
  const errors: PlacedFinding[] = [];
  const usage = await countUsage({
    directory,
    keys: [key],
    by,
    lists: LISTS,
    query: {},
    onBytes: () => undefined,
    onUnreadable: (finding) => errors.push(finding),
    onNote: () => undefined,
    ...asked,
  });
  return { ...usage, errors };
}

describe('usage', () => {
  test('counts requests, identifiers, bytes, errors and days of each group, in both forms of records', async () => {
    const target = '/x?ids=%27A%27,%27B%27,%27C%27';
    const directory = await logOf(
      recordsOf([
        { facts: { target }, end: { out: 10, in: 1 } },
        { facts: { target, status: 404 }, end: { out: 20 }, whole: true },
        { facts: { target: '/x' }, time: '2026-03-02T00:00:00.000Z', end: { out: 5 }, whole: true },
        { facts: { target }, time: '2026-03-02T23:00:00.000Z', end: { out: 1, status: 499 } },
        { facts: { client: 'other', target, status: 500, credential: undefined } },
      ]),
    );
    const { rows, total, daily, errors } = await usageOf(directory, ['client', 'credential']);
    expect(errors).toEqual([]);
    expect(rows).toEqual([
      {
        values: ['reporting', 'journal-a'],
        requests: 4,
        identifiers: 9,
        uncounted: 0,
        bytesIn: 1,
        bytesOut: 36,
        errors: 2,
        statuses: { 404: 1, 499: 1 },
        days: 2,
      },
      expect.objectContaining({ values: ['other', ''], requests: 1, identifiers: 3, errors: 1, bytesOut: 0 }),
    ]);
    expect(total).toMatchObject({ requests: 5, identifiers: 12, errors: 3, days: 2 });
    expect(daily).toMatchObject([
      { day: '2026-03-01', requests: 3, bytesOut: 30 },
      { day: '2026-03-02', requests: 2, bytesOut: 6 },
    ]);
  });

  test('an outcome corrects a response that was whole at its head', async () => {
    const directory = await logOf(
      recordsOf([
        { end: { out: 10 }, whole: true },
        { end: { out: 5, status: 499 }, whole: 'corrected' },
      ]),
    );
    const { rows } = await usageOf(directory, ['status']);
    expect(rows.map(({ values, requests, bytesOut }) => [...values, requests, bytesOut])).toEqual([
      ['200', 1, 10],
      ['499', 1, 5],
    ]);
  });

  test('counts a response that ended hours and thousands of requests later', async () => {
    const stream = { end: { status: 499, out: 70_000 } };
    const others = Array.from({ length: 10_500 }, () => ({ end: { out: 1 }, whole: true }));
    const records = recordsOf([stream, ...others]);
    const [last, ...before] = records.reverse();
    const later = [['2026-03-01T20:00:00.000Z', last?.[1] ?? '']] as [string, string][];
    const { total } = await usageOf(await logOf([...before.reverse(), ...later]), ['client']);
    expect(total).toMatchObject({ requests: 10_501, errors: 1, bytesOut: 80_500 });
  });

  test('groups by the status with which responses ended, at its place among the fields', async () => {
    const directory = await logOf(
      recordsOf([
        { end: { out: 1 } },
        { end: { out: 2, status: 499 } },
        { facts: { status: 404 }, end: { out: 4 }, whole: true },
        { facts: { client: 'other' }, end: { out: 8 } },
      ]),
    );
    const { rows } = await usageOf(directory, ['deployment', 'status', 'client']);
    expect(rows.map(({ values, bytesOut }) => [...values, bytesOut])).toEqual([
      ['submissions', '200', 'other', 8],
      ['submissions', '200', 'reporting', 1],
      ['submissions', '404', 'reporting', 4],
      ['submissions', '499', 'reporting', 2],
    ]);
  });

  test.each([
    ['a list', '?ids=%27A%27,%27B%27', 2, 0],
    ['a list that is repeated', '?ids=%27A%27&ids=%27B%27,%27C%27', 3, 0],
    ['a list without quotes', '?ids=A,B', 2, 0],
    ['an empty list', '?ids=', 0, 0],
    ['no list', '?x=%27A%27', 0, 0],
    ['two parameters', '?ids=%27A%27&reviewer_ids=%27B%27', 2, 0, 'reviewers'],
    ['a list that the operation does not have', '?reviewer_ids=%27B%27', 0, 0],
    ['a list of no listed operation', '?ids=%27B%27', 1, 0, ''],
    ['a list with quotes and backslashes', '?ids=%27%22,%22ids%22:%22%27,%27%5C%27', 2, 0],
    ['a name that ends like the list', '?x%22ids=%27A%27&ids=%27B%27', 1, 0],
    ['a list that is too long to be recorded', `?ids=${'%27A%27,'.repeat(100)}`, 64, 1],
  ])(
    'counts the identifiers of %s',
    async (_title: string, query: string, identifiers: number, uncounted: number, operation = 'authors') => {
      const directory = await logOf(
        recordsOf([{ facts: { target: `/x${query}`, operation }, end: { out: 0 }, whole: true }]),
      );
      const { total } = await usageOf(directory, ['client']);
      expect(total).toMatchObject({ identifiers, uncounted, requests: 1 });
    },
  );

  test('names the lists that are recorded by name only', async () => {
    const lists = { submissions: { authors: ['ids', 'secret_ids'] } };
    const target = '/x?ids=%27A%27&secret_ids=%27B%27';
    const directory = await logOf(recordsOf([{ facts: { target }, end: { out: 0 } }]));
    const { total, namesOnly } = await usageOf(directory, ['client'], { lists });
    expect([total.identifiers, total.uncounted, namesOnly]).toEqual([1, 1, ['secret_ids']]);
  });

  test('counts what is in the time range, with the bytes of an outcome behind it', async () => {
    const times = ['01T00:00', '02T23:59', '03T00:00'].map((time) => `2026-03-${time}:00.000Z`);
    const requests = times.map((time): Logged => ({ time, end: { out: 7 } }));
    const records = recordsOf(requests);
    const late = records.map(([, record]): [string, string] => ['2026-03-03T00:30:00.000Z', record]);
    const directory = await logOf([...records.slice(0, 3), ...late.slice(3)], 2);
    const { total } = await usageOf(directory, ['client'], {
      query: { since: times[1] ?? '', until: times[2] ?? '' },
    });
    expect(total).toMatchObject({ requests: 1, bytesOut: 7, days: 1 });
  });

  test('counts groups beyond the limit together', async () => {
    const requests = ['a', 'b', 'c', 'b', 'd'].map(
      (client): Logged => ({ facts: { client }, end: { out: 1 } }),
    );
    const directory = await logOf(recordsOf(requests));
    const usage = await usageOf(directory, ['client'], { maxGroups: 2 });
    expect(usage.rows.map(({ values, requests: count }) => [...values, count])).toEqual([
      ['b', 2],
      ['a', 1],
    ]);
    expect(usage.other).toMatchObject({ requests: 2, bytesOut: 2 });
    expect(usageCsv(usage).split('\r\n')).toEqual([
      'client,requests,identifiers,uncounted,bytesIn,bytesOut,days,errors,errorStatuses',
      'b,2,2,0,0,2,1,0,',
      'a,1,1,0,0,1,1,0,',
      '(other),2,2,0,0,2,1,0,',
      '',
    ]);
    const parts = await usageOf(directory, ['status', 'client'], { maxGroups: 2 });
    expect([parts.rows.length, parts.other?.requests, parts.total.requests]).toEqual([2, 2, 5]);
  });

  test('counts a day that no gateway can have as the first one', async () => {
    const times = [DAY, '9999-12-31T00:00:00.000Z', '1969-12-31T00:00:00.000Z'];
    const directory = await logOf(recordsOf(times.map((time) => ({ time, end: { out: 1 }, whole: true }))));
    const usage = await usageOf(directory, ['client']);
    expect(usage.daily.map(({ day, requests }) => [day, requests])).toEqual([
      ['1970-01-01', 2],
      ['2026-03-01', 1],
    ]);
    expect(usage.total.days).toBe(2);
  });

  test('leaves out records that no seal covers as they are, and says so', async () => {
    const requests = ['a', 'b', 'c'].map(
      (client): Logged => ({ facts: { client }, end: { out: 1 }, whole: true }),
    );
    const directory = await logOf(recordsOf(requests));
    const file = join(directory, REPLICA, segmentName(1));
    await writeFile(file, (await readFile(file, 'utf8')).replace('"client":"c"', '"client":"d"'));
    const { rows, errors } = await usageOf(directory, ['client']);
    expect(rows.map(({ values }) => values)).toEqual([['a'], ['b']]);
    expect(errors).toMatchObject([{ kind: 'records-altered', facts: { records: 1 } }]);
  });

  test('CSV has no formulas, and quotes what needs it', async () => {
    const clients = ['=1+1', '@a', 'b,"c"'];
    const directory = await logOf(
      recordsOf(clients.map((client) => ({ facts: { client }, end: { out: 0 } }))),
    );
    const lines = usageCsv(await usageOf(directory, ['client'])).split('\r\n');
    expect(lines.map((line) => line.replace(/,1,1,.*/, ''))).toEqual(
      expect.arrayContaining(["'=1+1", "'@a", '"b,""c"""']),
    );
  });

  test.each(['', 'client,', 'clients', 'client,client', 'Client'])('%j is no grouping', (fields) => {
    expect(() => usageFields(fields)).toThrow(RangeError);
  });
});
