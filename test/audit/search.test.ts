import { createHash } from 'node:crypto';
import { existsSync } from 'node:fs';
import {
  mkdir,
  mkdtemp,
  readdir,
  readFile,
  readlink,
  rename,
  rm,
  stat,
  truncate,
  utimes,
  writeFile,
} from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { zstdCompressSync, zstdDecompressSync } from 'node:zlib';
import { afterAll, afterEach, beforeAll, describe, expect, jest, test } from '@jest/globals';
import type { Audit } from '../../src/audit/audit.ts';
import type { PlacedFinding } from '../../src/audit/findings.ts';
import { type AuditKeys, auditKeys } from '../../src/audit/keys.ts';
import {
  addressForms,
  type FoundRequest,
  instantAfter,
  instantAt,
  type Query,
} from '../../src/audit/reader/query.ts';
import { allRecords, search } from '../../src/audit/reader/search.ts';
import { runInThread, searchInThread } from '../../src/audit/reader/search-thread.ts';
import type { Undecided } from '../../src/audit/reader/undecided.ts';
import { type AccessFacts, recordLine } from '../../src/audit/record.ts';
import { GENESIS, sealFor, sealLine } from '../../src/audit/seal.ts';
import { headerLine } from '../../src/audit/segments/segment.ts';
import { Secret } from '../../src/base/secret.ts';
import { AUDIT_KEY, facts, openTestAudit, REPLICA, recordAccess, useFolders } from '../support/audit-log.ts';
import { until } from '../support/until.ts';
import { setWallClock } from '../support/wall-clock.ts';

const folder = useFolders();
const key = auditKeys(new Secret(AUDIT_KEY));
const keys = [key] as const;
type AllKeys = readonly [AuditKeys, ...AuditKeys[]];
const FIRST = '000000000001.jsonl';

/** The requests found, each with its final status, and what was wrong with the log. */
async function found(directory: string, query: Query, keys: AllKeys = [key]) {
  const errors: PlacedFinding[] = [];
  const notes: PlacedFinding[] = [];
  const seen = { undecided: {} as Partial<Record<Undecided, number>>, bytes: 0, skipped: 0 };
  const results: FoundRequest[] = [];
  for await (const each of search({
    directory,
    keys,
    query,
    onBytes: (count) => {
      seen.bytes += count;
    },
    onSkipped: () => {
      seen.skipped += 1;
    },
    onUnreadable: (finding) => errors.push(finding),
    onNote: (finding) => notes.push(finding),
    parameters: ['ids', 'token'],
    onUndecided: (reason, requests) => {
      seen.undecided[reason] = (seen.undecided[reason] ?? 0) + requests;
    },
  })) {
    if ('access' in each) results.push(each);
  }
  return { ids: results.map(({ access }) => access.requestId), results, errors, notes, ...seen };
}

/** Resolves with the number of the access record. */
function accessOf(audit: Audit, change: Partial<AccessFacts>): Promise<number> {
  return new Promise((resolve) => {
    const seq = audit.access(facts({ target: '/api/x?ids=%27A-1%27', ...change }), {
      recorded: () => resolve(seq),
      unrecorded: () => resolve(0),
    });
  });
}

async function answer(audit: Audit, change: Partial<AccessFacts>, ended: number | 'never'): Promise<void> {
  const { requestId = 'q' } = change;
  const access = await accessOf(audit, change);
  if (ended === 'never') return;
  const code = ended === 200 ? '' : 'client-gone';
  const outcome = ended === 499 ? 'maintenance' : '';
  audit.outcome({
    access,
    requestId,
    status: ended,
    code,
    outcome,
    bytes: { in: 0, out: 5 },
    durationMs: 1,
  });
}

const upstream = {
  status: 200,
  attempts: 1,
  challenged: false,
  durationMs: 1,
  queueMs: 0,
  connectMs: 0,
  earlierMs: 0,
  address: '192.0.2.77',
  egress: '',
};
const elsewhere = { address: '::ffff:198.51.100.7', target: '/x?site_name=journal-c' };
const LONG = `${'%27'}${'x'.repeat(600)}${'%27'}`;
const requests: [Partial<AccessFacts>, number | 'never'][] = [
  [{ requestId: 'one' }, 200],
  [{ requestId: 'list', target: '/api/x?ids=%27B-1%27,%27A-1%27,%27A-10%27' }, 200],
  [{ requestId: 'longer-id', target: '/api/x?ids=%27A-10%27' }, 200],
  [{ requestId: 'bare', target: '/api/x?ids=A-1', client: 'loader' }, 200],
  [{ requestId: 'by-name-only', target: '/api/x?token=A-1' }, 200],
  [{ requestId: 'in-the-path', target: '/api/A-1?ids=%27C%27' }, 200],
  [{ requestId: 'too-long', target: `/api/x?ids=${LONG}`, site: 'journal-b' }, 200],
  [{ requestId: 'broken-off', site: 'journal-b' }, 499],
  [{ requestId: 'unknown-end', site: 'journal-b', status: 404 }, 'never'],
  [{ requestId: 'other', deployment: 'abstracts', operation: 'by-id', client: 'a"b\\c', upstream }, 200],
  [{ requestId: 'refused', status: 429, code: 'rate-limited', client: '', ...elsewhere }, 'never'],
];

test('a month or day has the year that is written', () => {
  expect([instantAt('0020-03'), instantAfter('0020-12')]).toEqual([
    '0020-03-01T00:00:00.000Z',
    '0021-01-01T00:00:00.000Z',
  ]);
  expect([instantAt('2024-02-29'), instantAfter('2024-02-29'), instantAfter('2024-02')]).toEqual([
    '2024-02-29T00:00:00.000Z',
    '2024-03-01T00:00:00.000Z',
    '2024-03-01T00:00:00.000Z',
  ]);
});

test('what ends with the year 9999, or after it, is later than every record', () => {
  const ends = ['9999-12', '9999-12-31', '9999-12-31T23:59:59-05:00'];
  expect(ends.map(instantAfter)).toEqual(ends.map(() => '9999-12-31T23:59:59.999Z'));
});

describe('a search', () => {
  let directory: string;
  // One log for all of them: it is only read.
  beforeAll(async () => {
    directory = await mkdtemp(join(tmpdir(), 'audit-'));
    const { audit } = await openTestAudit(directory);
    for (const [change, ended] of requests) await answer(audit, change, ended);
    await audit.close();
  });
  afterAll(() => rm(directory, { recursive: true }));

  const cases: [string, Query, string[]][] = [
    ['without anything finds every request', {}, requests.map(([{ requestId = '' }]) => requestId)],
    ['for a client', { client: 'loader' }, ['bare']],
    ['for a client whose name JSON writes otherwise', { client: 'a"b\\c' }, ['other']],
    ['for a part of a name', { client: 'report' }, []],
    ['for a deployment', { deployment: 'abstracts' }, ['other']],
    ['for an operation', { operation: 'by-id' }, ['other']],
    ['for a site', { site: 'journal-b' }, ['too-long', 'broken-off', 'unknown-end']],
    ['for an identifier', { id: 'A-1' }, ['one', 'list', 'bare', 'broken-off', 'unknown-end', 'other']],
    ['for a longer one', { id: 'A-10' }, ['list', 'longer-id']],
    ['for an identifier and a client', { id: 'A-1', client: 'loader' }, ['bare']],
    ['for a status that it ended with', { status: { from: 499, to: 499 } }, ['broken-off']],
    ['for a status of one whose end is not known', { status: { from: 400, to: 404 } }, ['unknown-end']],
    ['for all that failed', { status: { from: 400, to: 599 } }, ['broken-off', 'unknown-end', 'refused']],
    ['for a request id', { requestId: 'list' }, ['list']],
    ['for a request id of another client', { requestId: 'list', client: 'loader' }, []],
    ['for a request id and an identifier', { requestId: 'list', id: 'A-10' }, ['list']],
    ['for an address', { address: ['198.51.100.7', '::ffff:198.51.100.7'] }, ['refused']],
    ['for an address and a client', { address: ['192.0.2.7'], client: 'loader' }, ['bare']],
    ['for an address that only an upstream has', { address: ['192.0.2.77'] }, []],
    ['for a code that it ended with', { code: 'client-gone' }, ['broken-off']],
    ['for a code of one whose end is not known', { code: 'rate-limited' }, ['refused']],
    ['for a code and a site', { code: 'client-gone', site: 'journal-a' }, []],
    ['for no code', { code: '', site: 'journal-b' }, ['too-long', 'unknown-end']],
    ['for an outcome', { outcome: 'maintenance' }, ['broken-off']],
    ['for an outcome and another site', { outcome: 'maintenance', site: 'journal-a' }, []],
    ['for an outcome that no response belongs to', { outcome: 'throttled' }, []],
    ['for a time before', { until: '2020-01-01T00:00:00.000Z' }, []],
    ['for a time after', { since: '2099-01-01T00:00:00.000Z' }, []],
    ['for that time', { since: '2020-01-01T00:00:00.000Z', client: 'loader' }, ['bare']],
  ];
  test.each(cases)('%s', async (_title, query, ids) => {
    expect(await found(directory, query)).toMatchObject({ ids, errors: [], notes: [] });
  });

  test('returns the same for a response that was whole at its head as for one with an outcome record', async () => {
    const own = await folder();
    const { audit } = await openTestAudit(own);
    const end = { outcome: 'maintenance', bytes: { in: 3, out: 5 }, durationMs: 1 };
    const two = await accessOf(audit, { requestId: 'two' });
    audit.outcome({ access: two, requestId: 'two', status: 200, code: '', ...end });
    await accessOf(audit, { requestId: 'one', end });
    await audit.close();
    const { results } = await found(own, { outcome: 'maintenance' });
    expect(results.map(({ access }) => access.requestId)).toEqual(['two', 'one']);
    const [first, second] = results.map(({ access, outcome }) => {
      const { seq, time, requestId, ...fields } = access;
      const { status, code, outcome: named, bytes, durationMs } = outcome ?? {};
      return { fields, status, code, named, bytes, durationMs };
    });
    expect(second).toEqual(first);
    expect(second).toMatchObject({ named: 'maintenance', bytes: { in: 3, out: 5 }, durationMs: 1 });
  });

  test('joins a response that was whole at its head with what the log says of it later', async () => {
    const own = await folder();
    const { audit } = await openTestAudit(own);
    const end = { outcome: '', bytes: { in: 0, out: 5 }, durationMs: 1 };
    const left = await accessOf(audit, { requestId: 'left', client: 'loader', end });
    for (let more = 0; more < 20; more += 1) await accessOf(audit, { requestId: `more-${more}`, end });
    audit.outcome({ access: left, requestId: 'left', status: 499, code: 'client-closed', ...end });
    await audit.close();
    for (const query of [{}, { client: 'loader' }, { code: 'client-closed' }]) {
      const { results } = await found(own, query);
      expect(results.find(({ access }) => access.requestId === 'left')?.outcome).toMatchObject({
        status: 499,
      });
    }
    expect((await found(own, { status: { from: 200, to: 200 } })).ids).not.toContain('left');
  });

  test('joins a request with its outcome', async () => {
    const { results } = await found(directory, { site: 'journal-b' });
    expect(
      results.map(({ access, outcome }) => [access.status, outcome?.status, outcome?.bytes.out]),
    ).toEqual([
      [200, 200, 5],
      [200, 499, 5],
      [404, undefined, undefined],
    ]);
  });

  test('for an address finds every form of it', async () => {
    const directory = await folder();
    const first = await openTestAudit(directory, { replica: 'r1' });
    await answer(first.audit, { requestId: 'other' }, 200);
    await answer(first.audit, { requestId: 'another', address: '192.0.2.8' }, 200);
    await first.audit.close();
    const second = await openTestAudit(directory, { replica: 'r2' });
    await answer(second.audit, { requestId: 'mapped', address: '::ffff:192.0.2.7' }, 200);
    await answer(second.audit, { requestId: 'plain' }, 200);
    await answer(second.audit, { requestId: 'six', address: '2001:db8::7' }, 200);
    await second.audit.close();
    const idsAt = async (address: string) => (await found(directory, { address: addressForms(address) })).ids;
    expect((await idsAt('192.0.2.7')).sort()).toEqual(['mapped', 'other', 'plain']);
    expect((await idsAt('::ffff:192.0.2.7')).sort()).toEqual(['mapped', 'other', 'plain']);
    expect(await idsAt('2001:DB8:0::7')).toEqual(['six']);
  });

  const undecided: [string, Query, object][] = [
    ['lists were too long, or recorded by name only', { id: 'A-1' }, { cut: 1, nameOnly: 1 }],
    ['they are of that site', { id: 'A-1', site: 'journal-b' }, { cut: 1 }],
    ['they are of another site', { id: 'A-1', site: 'journal-c' }, {}],
    ['they ended otherwise', { id: 'A-1', status: { from: 404, to: 404 } }, { cut: 1, nameOnly: 1 }],
    ['the text may be in them', { text: 'nowhere' }, { cut: 1, nameOnly: 1 }],
    ['the text may be in them, but not the code', { text: 'nowhere', code: 'client-gone' }, {}],
    ['no value is looked for', { client: 'reporting' }, {}],
  ];
  test.each(undecided)('counts requests that may match: %s', async (_title, query, counts) => {
    expect((await found(directory, query)).undecided).toEqual(counts);
  });

  test('counts refusals that have no record, where they may match', async () => {
    const own = await folder();
    const { audit } = await openTestAudit(own);
    const all = { requestId: 'q', status: 403, code: 'client-forbidden' };
    await audit.adminWritten('refusals-left-out', { client: 'reporting', address: '192.0.2.7', count: 5 });
    await recordAccess(audit, all);
    await audit.adminWritten('refusals-left-out', { client: '', address: '', count: 3 });
    await audit.close();
    const counts = async (query: Query) => (await found(own, query)).undecided.leftOut ?? 0;
    expect(await counts({})).toBe(8);
    expect(await counts({ code: 'client-forbidden', id: 'A-1' })).toBe(8);
    expect(
      await counts({ client: 'reporting', address: ['192.0.2.7'], status: { from: 400, to: 499 } }),
    ).toBe(8);
    expect(await counts({ client: 'loader' })).toBe(3);
    expect(await counts({ address: ['192.0.2.8'], site: 'journal-a' })).toBe(3);
    const none: Query[] = [
      { status: { from: 200, to: 299 } },
      { code: '' },
      { outcome: 'maintenance' },
      { requestId: 'q' },
      { kind: 'events' },
      { since: '2099-01-01T00:00:00.000Z' },
    ];
    for (const query of none) expect([query, await counts(query)]).toEqual([query, 0]);
    const scope = { directory: own, keys, keysDirectory: undefined, parameters: [], query: {} };
    const task = { kind: 'usage', by: ['client'], lists: {}, maxRows: 10 } as const;
    expect((await searchInThread(scope, task, new AbortController().signal)).notes).toEqual([
      'The log leaves out 8 refusals of the gateway: too many came at once for a record of each.',
    ]);
    const exported = { kind: 'export', format: 'jsonl', most: 1_000, timeMs: 60_000 } as const;
    const lines: string[] = [];
    for await (const piece of runInThread(scope, exported, new AbortController().signal)) lines.push(piece);
    // The export has all that the log has.
    expect(lines.join('')).not.toContain('"cut"');
  });

  test('leaves requests out that ended otherwise as their record says, whatever they hold', async () => {
    const own = await folder();
    const { audit } = await openTestAudit(own);
    const end = { outcome: '', bytes: { in: 0, out: 5 }, durationMs: 1 };
    await accessOf(audit, { target: '/api/x?token=A-1', end });
    await audit.close();
    expect((await found(own, { id: 'A-1', status: { from: 404, to: 404 } })).undecided).toEqual({});
    expect((await found(own, { id: 'A-1', status: { from: 200, to: 200 } })).undecided).toEqual({
      nameOnly: 1,
    });
  });
});

/** Segments of one request each, closed and compressed; the last one is open. */
async function manySegments(directory: string, replica = REPLICA): Promise<void> {
  const { audit } = await openTestAudit(directory, {
    replica,
    segment: { size: 1, age: 86_400_000, keep: 86_400_000 },
  });
  for (const requestId of ['a', 'b', 'c'])
    await recordAccess(audit, { requestId: `${replica}-${requestId}` });
  await audit.close();
}

/** A segment whose seals have the digests of its lines, as anybody can make them. */
function sameDigests(text: string): string {
  let covered = '';
  const lines = text.trimEnd().split('\n');
  return lines
    .map((line) => {
      if (!line.startsWith('{"seal":')) {
        covered += `${line}\n`;
        return line;
      }
      const digest = createHash('sha256').update(covered).digest('base64url');
      covered = '';
      return line.replace(/"sha256":"[^"]+"/, `"sha256":"${digest}"`);
    })
    .join('\n')
    .concat('\n');
}

/** Zstandard with a skippable frame (RFC 8878, section 3.1.2), so that it has that length. */
function padded(bytes: Buffer, length: number): Buffer {
  const frame = Buffer.alloc(length - bytes.length);
  frame.writeUInt32LE(0x184d2a50, 0);
  frame.writeUInt32LE(frame.length - 8, 4);
  return Buffer.concat([bytes, frame]);
}

describe('a search over many segments', () => {
  test('merges replicas in order of time, and reads no segment of another time', async () => {
    const directory = await folder();
    await manySegments(directory, 'r1');
    const between = new Date(Date.now() + 2).toISOString();
    while (new Date().toISOString() <= between);
    await manySegments(directory, 'r2');
    const all = await found(directory, {});
    expect(all.ids).toEqual(['r1-a', 'r1-b', 'r1-c', 'r2-a', 'r2-b', 'r2-c']);
    const later = await found(directory, { since: between });
    expect(later.ids).toEqual(['r2-a', 'r2-b', 'r2-c']);
    expect(later.bytes).toBeLessThan(all.bytes * 0.75);
    const names = await readdir(join(directory, 'r1'));
    expect(names.filter((name) => name.endsWith('.index')).length).toBeGreaterThanOrEqual(3);
  });

  test('replaces an index that was forged or does not fit its segment', async () => {
    const directory = await folder();
    await manySegments(directory);
    const [index = ''] = (await readdir(join(directory, REPLICA))).filter((name) => name.endsWith('.index'));
    const file = join(directory, REPLICA, index);
    const right = await readFile(file, 'utf8');
    const since = { since: '2020-01-01T00:00:00.000Z' };
    const forged = right.replaceAll(/"(from|to)":"20\d\d/g, '"$1":"2001');
    expect(forged).not.toBe(right);
    for (const text of [forged, '{', right.replace(/"mac":"./, '"mac":"')]) {
      await writeFile(file, text);
      expect((await found(directory, since)).ids).toContain(`${REPLICA}-a`);
      expect(await readFile(file, 'utf8')).toBe(right);
    }
    await rm(file);
    await found(directory, since);
    expect(await readFile(file, 'utf8')).toBe(right);
    const segment = join(directory, REPLICA, index.replace('.index', '.jsonl.zst'));
    const { atime, mtimeMs } = await stat(segment);
    await utimes(segment, atime, new Date(mtimeMs + 5000));
    await found(directory, since);
    expect(await readFile(file, 'utf8')).not.toBe(right);
  });

  test.each([
    ['changed', (text: string) => text.replaceAll(/"time":"20\d\d/g, '"time":"2001')],
    [
      'of another key',
      (text: string) =>
        text.replace(/"key":"\w+/, '"key":"ffffffffffffffff').replaceAll(/"time":"20\d\d/g, '"time":"2001'),
    ],
  ])('finds the records of a segment that stood there %s for a time', async (_title, change) => {
    const directory = await folder();
    await manySegments(directory);
    const place = (name: string) => join(directory, REPLICA, name);
    const path = place('000000000001.jsonl.zst');
    const original = await readFile(path);
    const { atime, mtime } = await stat(path);
    const put = async (bytes: Buffer): Promise<void> => {
      // Bytes that a decoder leaves out make both files equally long.
      await writeFile(path, bytes);
      await utimes(path, atime, mtime);
    };
    const changed = sameDigests(change(zstdDecompressSync(original).toString()));
    const [small, large] = [original, zstdCompressSync(changed)];
    const length = Math.max(small.length, large.length) + 8;
    await put(padded(large, length));
    await rm(place('000000000001.index'));
    const since = { since: '2020-01-01T00:00:00.000Z' };
    await found(directory, since);
    await put(padded(small, length));
    expect(await found(directory, since)).toMatchObject({
      ids: [`${REPLICA}-a`, `${REPLICA}-b`, `${REPLICA}-c`],
      errors: [],
    });
  });

  test.each([
    ['', false],
    [', and whose next one had a header to fit', true],
  ])('finds the end of a segment that stood there without it for a time%s', async (_title, isNextChanged) => {
    const directory = await folder();
    const place = (name: string) => join(directory, REPLICA, name);
    const first = await openTestAudit(directory);
    await recordAccess(first.audit, { requestId: 'a' });
    const time = new Date(Date.now() + 1).toISOString();
    while (new Date().toISOString() < time);
    for (const requestId of ['b', 'c']) await recordAccess(first.audit, { requestId });
    await first.audit.close();
    const segment = { size: 1, age: 86_400_000, keep: 86_400_000 };
    const { audit } = await openTestAudit(directory, { segment });
    await recordAccess(audit, { requestId: 'd' });
    await audit.close();
    const [path, index] = [place(`${FIRST}.zst`), place('000000000001.index')];
    const next = place((await readdir(place(''))).find((name) => name.endsWith('.jsonl')) ?? '');
    const [original, header] = [await readFile(path), await readFile(next, 'utf8')];
    const { atime, mtime, size } = await stat(path);
    const text = zstdDecompressSync(original).toString();
    const beginning = text.slice(0, text.indexOf('{"seq":2,'));
    await writeFile(path, padded(zstdCompressSync(beginning), size));
    await utimes(path, atime, mtime);
    const end = beginning.slice(beginning.lastIndexOf('"hmac":')).slice(8, 51);
    if (isNextChanged) await writeFile(next, header.replace(/"previous":"[^"]+/, `"previous":"${end}`));
    await rm(index);
    await found(directory, { since: time });
    expect(existsSync(index)).toBe(isNextChanged);
    await writeFile(path, original);
    await utimes(path, atime, mtime);
    await writeFile(next, header);
    expect(await found(directory, { since: time })).toMatchObject({ ids: ['b', 'c', 'd'], errors: [] });
  });

  test('with an earlier key reads what was indexed without it', async () => {
    const directory = await folder();
    await manySegments(directory);
    const path = join(directory, REPLICA, '000000000001.jsonl.zst');
    const original = await readFile(path);
    const { atime, mtime } = await stat(path);
    const put = async (bytes: Buffer): Promise<void> => {
      await writeFile(path, bytes);
      await utimes(path, atime, mtime);
    };
    const text = zstdDecompressSync(original).toString();
    const changed = zstdCompressSync(sameDigests(text.replaceAll(/"time":"20\d\d/g, '"time":"2001')));
    const length = Math.max(original.length, changed.length) + 8;
    await put(padded(changed, length));
    const since = { since: '2020-01-01T00:00:00.000Z' };
    const later = auditKeys(new Secret('f'.repeat(64)));
    await found(directory, since, [later]);
    await put(padded(original, length));
    const ids = [`${REPLICA}-a`, `${REPLICA}-b`, `${REPLICA}-c`];
    expect(await found(directory, since, [later, key])).toMatchObject({ ids, errors: [] });
  });

  test('reports files that cannot be read, and finds the rest', async () => {
    const directory = await folder();
    await manySegments(directory);
    const [name = ''] = (await readdir(join(directory, REPLICA))).filter((each) => each.endsWith('.zst'));
    const path = join(directory, REPLICA, name);
    await truncate(path, (await stat(path)).size - 20);
    expect(await found(directory, {})).toMatchObject({
      ids: [`${REPLICA}-b`, `${REPLICA}-c`],
      errors: [{ replica: REPLICA, segment: name, kind: 'segment-unreadable' }],
      notes: [],
    });
  });

  test.each([
    ['is gone', 'segment-out-of-order', 3, (path: string) => rm(path)],
    [
      'is empty',
      'segment-unsealed',
      2,
      (path: string) => rename(path, `${path}.away`).then(() => writeFile(path.replace('.zst', ''), '')),
    ],
  ])(
    'reports a segment in the middle that %s, whatever time is asked for',
    async (_title, kind, at, change) => {
      const directory = await folder();
      await manySegments(directory);
      const segments = (await readdir(join(directory, REPLICA)))
        .filter((name) => name.endsWith('.zst'))
        .sort();
      await change(join(directory, REPLICA, segments[1] ?? ''));
      const segment = expect.stringMatching(new RegExp(`^0+${at}\\.jsonl`));
      for (const query of [{}, { until: '2020-01-01T00:00:00.000Z' }]) {
        const { ids, errors } = await found(directory, query);
        expect([ids.includes(`${REPLICA}-b`), errors]).toMatchObject([false, [{ segment, kind }]]);
      }
    },
  );

  test('reports a record of another key that is none of a gateway', async () => {
    const directory = await folder();
    await mkdir(join(directory, REPLICA));
    const other = auditKeys(new Secret('f'.repeat(64)));
    const opened = '2026-03-01T00:00:00.000Z';
    const header = headerLine({ replica: REPLICA, first: 1, previous: GENESIS, key: other.id, opened });
    const number = recordLine(2, opened, '"kind":"access","parameters":{"ids":7},"cut":true}');
    const lines = header + recordLine(1, opened, '"kind":"access","parameters":7}') + number;
    const chain = { replica: REPLICA, previous: GENESIS };
    const seal = sealFor(other, chain, { first: 1, last: 2 }, Buffer.from(lines));
    await writeFile(join(directory, REPLICA, FIRST), lines + sealLine(seal));
    expect(await found(directory, { id: 'A-1' })).toMatchObject({ ids: [], undecided: { cut: 1 } });
    const { results, errors } = await found(directory, {});
    expect(results).toHaveLength(1);
    expect(errors).toMatchObject([
      { kind: 'segment-unchecked', facts: { key: other.id } },
      { replica: REPLICA, kind: 'record-altered', facts: { seq: 1 } },
    ]);
  });

  test('reports a record that was changed into another line', async () => {
    const directory = await folder();
    const { audit } = await openTestAudit(directory);
    await recordAccess(audit);
    await recordAccess(audit, { requestId: 'q2' });
    await audit.close();
    const [name = ''] = (await readdir(join(directory, REPLICA))).filter((each) => each.endsWith('.jsonl'));
    const path = join(directory, REPLICA, name);
    await writeFile(path, (await readFile(path, 'utf8')).replace('"parameters":{', '"parameters":7,{'));
    expect(await found(directory, {})).toMatchObject({
      ids: ['q2'],
      errors: [{ replica: REPLICA, kind: 'records-altered', facts: { records: 1 } }],
      notes: [],
    });
  });

  test('leaves out and reports records that no seal covers', async () => {
    const directory = await folder();
    const { audit } = await openTestAudit(directory);
    await recordAccess(audit, { requestId: 'mine' });
    await recordAccess(audit, { requestId: 'other' });
    await audit.close();
    const path = join(directory, REPLICA, FIRST);
    const lines = (await readFile(path, 'utf8')).trimEnd().split('\n');
    const forged = (lines[2] ?? '').replace('"requestId":"mine"', '"requestId":"forged"');
    await writeFile(path, `${[...lines, forged].join('\n')}\n`);
    expect(await found(directory, {})).toMatchObject({
      ids: ['mine', 'other'],
      errors: [],
      notes: [{ segment: FIRST, kind: 'bytes-unsealed', facts: { bytes: forged.length + 1 } }],
    });
    await writeFile(path, `${lines.toSpliced(2, 0, forged).join('\n')}\n`);
    expect(await found(directory, {})).toMatchObject({
      ids: ['other'],
      errors: [{ segment: FIRST, kind: 'records-altered', facts: { records: 2 } }],
      notes: [],
    });
  });

  test('finds the outcome in a later segment, also outside of the time range', async () => {
    const directory = await folder();
    const { audit } = await openTestAudit(directory, {
      segment: { size: 1, age: 86_400_000, keep: 86_400_000 },
    });
    const open = Promise.withResolvers<void>();
    audit.access(facts({ requestId: 'slow' }), { recorded: open.resolve, unrecorded: open.reject });
    await open.promise;
    const until = new Date(Date.now() + 1).toISOString();
    while (new Date().toISOString() <= until);
    await recordAccess(audit, { requestId: 'after' });
    audit.outcome({
      access: 1,
      requestId: 'slow',
      status: 502,
      code: 'x',
      outcome: '',
      bytes: { in: 0, out: 0 },
      durationMs: 9,
    });
    await audit.close();
    const { results } = await found(directory, { until });
    expect(results.map(({ access, outcome }) => [access.requestId, outcome?.status])).toEqual([
      ['slow', 502],
    ]);
  });

  describe('for a response that takes hours', () => {
    const DAY_MS = 86_400_000;
    const setHour = (hour: number): void => setWallClock(Date.UTC(2026, 2, 1) + hour * 3_600_000);
    afterEach(() => {
      jest.useRealTimers();
    });

    async function record(audit: Audit, hour: number): Promise<void> {
      setHour(hour);
      await recordAccess(audit, { requestId: `at-${hour}` });
    }

    test('finds its end among later requests', async () => {
      const directory = await folder();
      setHour(0);
      const { audit } = await openTestAudit(directory, { segment: { size: 1, age: DAY_MS, keep: DAY_MS } });
      const access = await accessOf(audit, { requestId: 'stream' });
      for (const hour of [1, 2, 3]) await record(audit, hour);
      const end = { outcome: '', bytes: { in: 0, out: 5 }, durationMs: 1 };
      audit.outcome({ access, requestId: 'stream', status: 200, code: 'upstream-unreachable', ...end });
      await record(audit, 4);
      await audit.close('stop');
      expect((await found(directory, { code: 'upstream-unreachable' })).ids).toEqual(['stream']);
      const { results } = await found(directory, { requestId: 'stream' });
      expect(results).toMatchObject([{ outcome: { code: 'upstream-unreachable' } }]);
    });

    test.each([
      ['stopped', 'stop', 4],
      ['was killed, once another one has run for an hour', undefined, 3],
    ] as const)('reads no further when its process %s', async (_title, event, leftOut) => {
      const directory = await folder();
      setHour(0);
      const segment = { size: 1, age: DAY_MS, keep: DAY_MS };
      const { audit } = await openTestAudit(directory, { segment });
      await accessOf(audit, { requestId: 'stream' });
      await audit.close(event);
      const next = await openTestAudit(directory, { segment });
      await next.audit.adminWritten('start', {});
      for (const hour of [0.5, 1.5, 2.5, 3.5, 4.5]) await record(next.audit, hour);
      await next.audit.close();
      const { ids, skipped } = await found(directory, { until: '2026-03-01T00:10:00.000Z' });
      expect(ids).toEqual(['stream']);
      expect(skipped).toBeGreaterThanOrEqual(leftOut);
    });
  });

  test('leaves no file open if only the first result is read', async () => {
    const directory = await folder();
    for (const replica of ['r1', 'r2']) await manySegments(directory, replica);
    const ignore = () => undefined;
    for await (const each of search({
      directory,
      keys,
      query: {},
      onBytes: ignore,
      onUnreadable: ignore,
      onNote: ignore,
    })) {
      expect(each).toMatchObject({ access: { requestId: 'r1-a' } });
      break;
    }
    await until(async () => {
      const open = await Promise.all(
        (await readdir('/proc/self/fd')).map((fd) => readlink(`/proc/self/fd/${fd}`).catch(() => '')),
      );
      return !open.some((path) => path.startsWith(directory));
    });
  });

  test('exports all records of all replicas in order of time', async () => {
    const directory = await folder();
    await manySegments(directory, 'r1');
    await manySegments(directory, 'r2');
    const times: string[] = [];
    const ids: string[] = [];
    const ignore = () => undefined;
    for await (const { time, line } of allRecords({
      directory,
      keys,
      query: {},
      onBytes: ignore,
      onUnreadable: ignore,
      onNote: ignore,
    })) {
      const record = JSON.parse(line);
      expect(record.time).toBe(time);
      times.push(time);
      // A record that takes long to write is followed by one that says so.
      if (record.kind === 'access') ids.push(record.requestId);
    }
    expect(ids).toEqual(['r1-a', 'r1-b', 'r1-c', 'r2-a', 'r2-b', 'r2-c']);
    expect(times).toEqual([...times].sort());
  });
});
