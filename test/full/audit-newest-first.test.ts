import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, test } from '@jest/globals';
import type { Audit } from '../../src/audit/audit.ts';
import type { PlacedFinding } from '../../src/audit/findings.ts';
import { auditKeys } from '../../src/audit/keys.ts';
import {
  cursorOf,
  type PageOptions,
  type Position,
  parseCursor,
  searchPage,
} from '../../src/audit/reader/newest-first.ts';
import type { Found, Query } from '../../src/audit/reader/query.ts';
import { Secret } from '../../src/base/secret.ts';
import { AUDIT_KEY, facts, openTestAudit, REPLICA, useFolders } from '../support/audit-log.ts';

const folder = useFolders();
const keys = [auditKeys(new Secret(AUDIT_KEY))] as const;
const DAY_MS = 86_400_000;
const nothing = (): void => undefined;

interface Told extends Partial<PageOptions> {
  readonly errors?: PlacedFinding[];
}

function pageOf(directory: string, query: Query, { errors = [], ...change }: Told = {}) {
  return searchPage({
    directory,
    keys,
    query,
    limit: 50,
    after: undefined,
    budgetMs: 60_000,
    now: () => performance.now(),
    onBytes: nothing,
    onUndecided: nothing,
    onNote: (finding) => errors.push(finding),
    onUnreadable: (finding) => errors.push(finding),
    ...change,
  });
}

function nameOf(found: Found): string {
  return 'event' in found ? found.event.event : found.access.requestId;
}

/** The results of all pages, page by page. */
async function allPages(directory: string, query: Query, change: Told = {}): Promise<string[][]> {
  const pages: string[][] = [];
  let after: Position | undefined;
  do {
    const page = await pageOf(directory, query, { ...change, after });
    pages.push(page.found.map(nameOf));
    after = page.next;
  } while (after !== undefined);
  return pages;
}

/** Resolves with the number of the access record. */
function accessOf(audit: Audit, requestId: string): Promise<number> {
  return new Promise((resolve, reject) => {
    const seq = audit.access(facts({ requestId }), { recorded: () => resolve(seq), unrecorded: reject });
  });
}

async function request(audit: Audit, requestId: string, ended = 200): Promise<void> {
  const access = await accessOf(audit, requestId);
  const bytes = { in: 0, out: 7 };
  audit.outcome({ access, requestId, status: ended, code: '', outcome: '', bytes, durationMs: 1 });
}

/** Waits until the clock shows another millisecond, so that the order by time is that of the requests. */
function nextMillisecond(): void {
  const before = Date.now();
  while (Date.now() === before);
}

/** Two replicas, one of them with a worker, whose requests alternate over several segments, compressed but the last. */
async function alternating(directory: string, rounds: number): Promise<string[]> {
  const segment = { size: 1, age: DAY_MS, keep: DAY_MS };
  const names = ['r1', 'r1@1', 'r2'];
  const opened = await Promise.all(names.map((replica) => openTestAudit(directory, { replica, segment })));
  const order: string[] = [];
  for (let round = 0; round < rounds; round += 1) {
    for (const [index, { audit }] of opened.entries()) {
      nextMillisecond();
      order.push(`${names[index]}-${round}`);
      await request(audit, `${names[index]}-${round}`);
    }
  }
  for (const { audit } of opened) await audit.close();
  return order.reverse();
}

describe('a search page', () => {
  test('has the newest of all processes first, and the pages together everything once', async () => {
    const directory = await folder();
    const order = await alternating(directory, 4);
    const segments = await readdir(join(directory, 'r1@1'));
    expect(segments.filter((name) => name.endsWith('.jsonl.zst')).length).toBeGreaterThan(2);
    const errors: PlacedFinding[] = [];
    expect(await allPages(directory, {}, { errors })).toEqual([order]);
    const pages = await allPages(directory, {}, { limit: 5, errors });
    expect(pages.map((page) => page.length)).toEqual([5, 5, 2]);
    expect(pages.flat()).toEqual(order);
    expect(errors).toEqual([]);
  });

  test('joins a request with an outcome in the next segment', async () => {
    const directory = await folder();
    await alternating(directory, 3);
    const { found } = await pageOf(directory, {});
    expect(found.map((each) => 'access' in each && each.outcome?.bytes.out)).toEqual(Array(9).fill(7));
  });

  test('joins a request with an outcome several segments later, as long as it has time', async () => {
    const directory = await folder();
    const { audit } = await openTestAudit(directory, { segment: { size: 1, age: DAY_MS, keep: DAY_MS } });
    const access = await accessOf(audit, 'long');
    for (const id of ['a', 'b', 'c', 'd']) await request(audit, id);
    const end = { code: 'upstream-timeout', outcome: '', bytes: { in: 0, out: 7 }, durationMs: 9 };
    audit.outcome({ access, requestId: 'long', status: 504, ...end });
    await request(audit, 'last');
    await audit.close();
    const names = (await readdir(join(directory, REPLICA))).filter((name) => name.includes('.jsonl'));
    expect(names.length).toBeGreaterThan(4);
    const statuses = async (query: Query, change: Told = {}) =>
      (await pageOf(directory, query, change)).found.map((each) => 'access' in each && each.outcome?.status);
    const timedOut = { status: { from: 504, to: 504 } };
    expect(await statuses({ requestId: 'long' })).toEqual([504]);
    expect(await statuses(timedOut)).toEqual([504]);
    expect(await statuses({ ...timedOut, code: 'upstream-timeout' })).toEqual([504]);
    expect(await statuses({ requestId: 'long', status: { from: 200, to: 200 } })).toEqual([]);
    let clock = 0;
    const now = (): number => clock++;
    expect(await statuses({ requestId: 'long', until: '2100' }, { budgetMs: 0, now })).toEqual([undefined]);
  });

  test('stops when its time is over, and the next page goes on from there', async () => {
    const directory = await folder();
    const order = await alternating(directory, 4);
    let clock = 0;
    const now = (): number => clock++;
    const pages = await allPages(directory, {}, { budgetMs: 0, now });
    expect(pages.flat()).toEqual(order);
    expect(pages.length).toBeGreaterThan(3);
  });

  test('tells how far it looked when its time is over before anything was found', async () => {
    const directory = await folder();
    await alternating(directory, 4);
    let clock = 0;
    const reached: string[] = [];
    let after: Position | undefined;
    let read = 0;
    do {
      const options = { budgetMs: 0, now: () => clock++, after };
      const page = await pageOf(directory, { requestId: 'nobody' }, options);
      expect(page.found).toEqual([]);
      after = page.next;
      read += page.records;
      if (after !== undefined) reached.push(after.time);
    } while (after !== undefined);
    expect(reached.length).toBeGreaterThan(3);
    expect(reached).toEqual([...new Set(reached)].sort().reverse());
    expect(read).toBeGreaterThanOrEqual(24);
  });

  test('reads no segment that is older than a full page', async () => {
    const directory = await folder();
    const order = await alternating(directory, 6);
    let bytes = 0;
    const count = (more: number): void => {
      bytes += more;
    };
    await pageOf(directory, {}, { onBytes: count });
    const whole = bytes;
    bytes = 0;
    const { found } = await pageOf(directory, {}, { limit: 3, onBytes: count });
    expect(found.map(nameOf)).toEqual(order.slice(0, 3));
    expect(bytes).toBeLessThan(whole * 0.75);
  });

  test('is not shifted by records that are written meanwhile', async () => {
    const directory = await folder();
    const order = await alternating(directory, 2);
    const first = await pageOf(directory, {}, { limit: 2 });
    const later = await openTestAudit(directory, { replica: 'r3' });
    await request(later.audit, 'new');
    await later.audit.close();
    const second = await pageOf(directory, {}, { limit: 2, after: first.next });
    expect([...first.found, ...second.found].map(nameOf)).toEqual(order.slice(0, 4));
  });

  test('finds events of the gateway, alone or between requests', async () => {
    const directory = await folder();
    const { audit } = await openTestAudit(directory);
    await request(audit, 'one');
    nextMillisecond();
    audit.admin('reload', { result: 'success', changed: ['deployments.submissions'] });
    nextMillisecond();
    await request(audit, 'two');
    await audit.close('stop');
    const names = async (query: Query) => (await pageOf(directory, query)).found.map(nameOf);
    expect(await names({ kind: 'events' })).toEqual(['stop', 'reload']);
    expect(await names({ kind: 'all' })).toEqual(['stop', 'two', 'reload', 'one']);
    expect(await names({ kind: 'all', client: 'reporting' })).toEqual(['two', 'one']);
    expect(await names({ kind: 'all', text: 'DEPLOYMENTS.sub' })).toEqual(['reload']);
    expect(await names({ text: 'TWO' })).toEqual(['two']);
    expect(await names({ text: 'requestid' })).toEqual([]);
  });

  test('tells of a segment that cannot be trusted, and of none that is in order', async () => {
    const directory = await folder();
    await alternating(directory, 2);
    const errors: PlacedFinding[] = [];
    const other = [auditKeys(new Secret('f'.repeat(64)))] as const;
    const { found } = await pageOf(directory, {}, { keys: other, errors });
    expect(found).toHaveLength(6);
    expect(errors[0]).toMatchObject({ kind: 'segment-unchecked', facts: { key: keys[0].id } });
  });
});

describe('a cursor', () => {
  const position = { time: '2026-01-01T00:00:00.000Z', folder: 'r1@2', seq: 7 };

  test('is read as it was written', () => expect(parseCursor(cursorOf(position))).toEqual(position));

  const encoded = (value: unknown): string => Buffer.from(JSON.stringify(value)).toString('base64url');
  test.each([
    '',
    'x',
    '%%%',
    'a'.repeat(600),
    encoded([]),
    encoded(['2026-01-01', 'r1', 7]),
    encoded(['2026-99-01T00:00:00.000Z', 'r1', 7]),
    encoded(['2026-01-01T00:00:00.000Z', 'x'.repeat(80), 7]),
    encoded(['2026-01-01T00:00:00.000Z', 'r1', -1]),
    encoded(['2026-01-01T00:00:00.000Z', 'r1', 7, 8]),
  ])('%s is refused', (text) => expect(parseCursor(text)).toBeUndefined());
});
