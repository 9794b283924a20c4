import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, test } from '@jest/globals';
import { auditKeys } from '../../src/audit/keys.ts';
import { cursorOf } from '../../src/audit/reader/newest-first.ts';
import type { AdminDetails } from '../../src/audit/record.ts';
import { Secret } from '../../src/base/secret.ts';
import { AUDIT_BOUNDS, type AuditBounds } from '../../src/control/audit-api.ts';
import type { RequestRow, SearchView, UsageView } from '../../src/control/audit-view.ts';
import { type ControlChange, type RunningControl, startControl } from '../control/console-source.ts';
import { AUDIT_KEY, facts, openTestAudit } from '../support/audit-log.ts';
import { writeLog } from '../support/many-records.ts';
import { until } from '../support/until.ts';

const keys = auditKeys(new Secret(AUDIT_KEY));
const START = Date.parse('2026-01-01T00:00:00Z');
const DAYS = 4;
const REQUESTS_A_DAY = 2_000;
const TRACE_ID = '0af7651916cd43dd8448eb211c80319c';

let directory: string;
let controls: RunningControl[] = [];
let recorded: { event: string; details: AdminDetails }[] = [];

// One log for all tests, two replicas and 16,000 requests, since it is only read.
beforeAll(async () => {
  directory = await mkdtemp(join(tmpdir(), 'audit-api-'));
  for (const replica of ['r1', 'r2@1']) {
    await writeLog(directory, { replica, keys, start: START, days: DAYS, requestsADay: REQUESTS_A_DAY });
  }
  const { audit } = await openTestAudit(directory, { replica: 'r3' });
  audit.admin('reload', { result: 'success', by: 'signal' });
  for (const change of [
    { requestId: 'traced', traceId: TRACE_ID },
    { requestId: '+formula', client: '=cmd' },
    { requestId: 'refused', status: 429, code: 'rate-limited', upstream: undefined, credential: undefined },
  ]) {
    await new Promise<void>((resolve, reject) => {
      audit.access(facts(change), { recorded: resolve, unrecorded: reject });
    });
  }
  await audit.close('stop');
});
afterAll(() => rm(directory, { recursive: true }));
afterEach(async () => {
  await Promise.all(controls.splice(0).map((control) => control.close()));
  recorded = [];
});

interface Change {
  readonly bounds?: Partial<AuditBounds>;
  readonly traceUrl?: string;
  readonly recordedAs?: (criterion: string) => string;
  readonly isWritable?: () => boolean | Promise<boolean>;
  readonly control?: ControlChange;
}

async function start({
  bounds,
  traceUrl,
  recordedAs = (criterion) => criterion,
  isWritable = () => true,
  control,
}: Change = {}) {
  const running = await startControl({
    audit: {
      log: {
        directory,
        keys: [keys],
        keysDirectory: undefined,
        recorded: recordedAs,
        parameters: () => ['ids'],
        lists: () => ({}),
        record: async (event, details) => {
          recorded.push({ event, details });
          return isWritable();
        },
      },
      traceUrl,
      bounds: { ...AUDIT_BOUNDS, ...bounds },
    },
    ...control,
  });
  controls = [...controls, running];
  return running.origin;
}

async function search(origin: string, query: string): Promise<SearchView> {
  const response = await fetch(`${origin}/api/audit/search?${query}`);
  if (!response.ok) throw new Error(await response.text());
  return (await response.json()) as SearchView;
}

function requestIds({ rows }: SearchView): string[] {
  return rows.map((row) => (row.kind === 'admin' ? row.event : row.requestId));
}

/** Names of the threads of this process that search (Linux). */
async function searchThreads(): Promise<string[]> {
  const threads = await readdir('/proc/self/task');
  const names = await Promise.all(
    threads.map((thread) => readFile(`/proc/self/task/${thread}/comm`, 'utf8').catch(() => '')),
  );
  return names.filter((name) => name.startsWith('audit-search'));
}

describe('GET /api/audit/search', () => {
  test('gives the newest first, and the next ones with the cursor', async () => {
    const origin = await start();
    const first = await search(origin, 'limit=2');
    expect(requestIds(first)).toHaveLength(2);
    expect(first.searchedTo).toBe(first.rows.at(-1)?.time);
    const second = await search(origin, `limit=3&cursor=${first.cursor}`);
    expect(new Set([...requestIds(first), ...requestIds(second)]).size).toBe(5);
    const times = [...first.rows, ...second.rows].map(({ time }) => time);
    expect(times).toEqual(times.toSorted().reverse());
  });

  test('finds one request in the whole log by an identifier, and says that it looked everywhere', async () => {
    const origin = await start();
    const { rows } = await search(origin, 'to=2026-01-02&limit=1&replica=r2');
    const [row] = rows as RequestRow[];
    const [, id = ''] = /'(MS-[\d-]+)'/.exec(String(row?.parameters['ids'])) ?? [];
    const found = await search(origin, `identifier=${id}&client=${row?.client}`);
    expect(requestIds(found)).toContain(row?.requestId);
    expect(found).toMatchObject({ cursor: null, searchedTo: null, notes: [] });
    expect(found.recordsRead).toBe(2 * DAYS * REQUESTS_A_DAY * 2 + 5);
    expect((found.rows[0] as RequestRow).outcome?.status).toBe(row?.outcome?.status);
  });

  test.each([
    ['requestId=refused', ['refused']],
    ['code=rate-limited', ['refused']],
    ['status=4xx&replica=r3', ['refused']],
    ['client=%3Dcmd', ['+formula']],
    ['address=192.0.2.7&text=FORMULA', ['+formula']],
    ['kind=events', ['stop', 'reload']],
    ['kind=all&replica=r3&text=success', ['reload']],
    ['from=2025-12-31&to=2026-01-01T00:00:00Z', []],
    ['site=nowhere', []],
  ])('%s finds %j', async (query, names) => {
    expect(requestIds(await search(await start(), query))).toEqual(names);
  });

  test.each([
    ['clients=x', 'clients'],
    ['client=', 'client'],
    ['client=a&client=b', 'client'],
    [`text=${'x'.repeat(513)}`, 'text'],
    ['address=nowhere', 'address'],
    ['status=9xx', 'status'],
    ['code=nonsense', 'code'],
    ['from=yesterday', 'from'],
    ['kind=outcome', 'kind'],
    ['kind=events&client=a', 'kind'],
    ['limit=0', 'limit'],
    ['limit=201', 'limit'],
    ['seconds=21', 'seconds'],
    ['cursor=x', 'cursor'],
    ['replica=..%2Fetc', 'replica'],
  ])('%s is refused, and the parameter is named', async (query, name) => {
    const response = await fetch(`${await start()}/api/audit/search?${query}`);
    expect(response.headers.get('content-type')).toMatch(/^application\/problem\+json/);
    expect([response.status, await response.json()]).toEqual([
      400,
      { status: 400, title: 'Bad Request', detail: expect.stringMatching(/\w\.$/), parameters: [name] },
    ]);
    expect(recorded).toEqual([]);
  });

  test('has cursors that lead to every result once', async () => {
    const origin = await start();
    const ids: string[] = [];
    let cursor: string | null = '';
    let pages = 0;
    while (cursor !== null) {
      const page = await search(origin, `site=journal-7&limit=200&seconds=1${cursor && `&cursor=${cursor}`}`);
      ids.push(...requestIds(page));
      cursor = page.cursor;
      pages += 1;
    }
    expect(pages).toBeGreaterThan(1);
    expect(new Set(ids).size).toBe(ids.length);
    const exported = await fetch(`${origin}/api/audit/export?site=journal-7&format=jsonl`);
    expect((await exported.text()).trim().split('\n')).toHaveLength(ids.length);
  });

  test('tells when the log is too large to come to a place to stop', async () => {
    const origin = await start({ bounds: { searchMs: 1 } });
    const response = await fetch(`${origin}/api/audit/search`);
    expect([response.status, await response.json()]).toMatchObject([504, { detail: /Name a replica/ }]);
    await until(async () => (await searchThreads()).length === 0);
  });

  test('is recorded once, with its query, however often it is repeated', async () => {
    const origin = await start();
    const { cursor } = await search(origin, 'client=app-7&limit=1');
    await search(origin, 'client=app-7&limit=5');
    await search(origin, `client=app-7&limit=1&cursor=${cursor}`);
    await search(origin, 'client=app-8&limit=1');
    // A cursor of the client's own making begins at the newest record.
    const newest = cursorOf({ time: '9000-01-01T00:00:00.000Z', folder: '', seq: 0 });
    await search(origin, `client=app-9&cursor=${newest}`);
    const common = { by: 'api', address: '127.0.0.1' };
    expect(recorded).toEqual([
      { event: 'audit-search', details: { ...common, query: ['client=app-7'] } },
      { event: 'audit-search', details: { ...common, query: ['client=app-8'] } },
      { event: 'audit-search', details: { ...common, query: ['client=app-9'] } },
    ]);
  });

  test('is recorded with pseudonyms of what names persons, where the log has pseudonyms', async () => {
    const origin = await start({ recordedAs: (criterion) => `hidden-${criterion.length}` });
    await search(origin, 'address=192.0.2.7&identifier=A-1&text=ann&client=app-7&limit=1');
    expect(recorded[0]?.details['query']).toEqual([
      'address=hidden-9',
      'identifier=hidden-3',
      'text=hidden-3',
      'client=app-7',
    ]);
  });

  test('needs the token', async () => {
    const origin = await start({ control: { tokenSha256: 'a'.repeat(64) } });
    for (const path of ['audit/search', 'audit/export', 'audit/usage', 'requests/traced']) {
      expect((await fetch(`${origin}/api/${path}`)).status).toBe(401);
    }
    expect(recorded).toEqual([]);
  });

  test('says what to do without an audit log', async () => {
    const control = await startControl();
    controls.push(control);
    const response = await fetch(`${control.origin}/api/audit/search`);
    expect([response.status, await response.json()]).toMatchObject([404, { detail: /Add an audit section/ }]);
  });
});

describe('GET /api/audit/usage', () => {
  const usage = async (origin: string, query: string): Promise<UsageView> =>
    (await (await fetch(`${origin}/api/audit/usage?${query}`)).json()) as UsageView;

  test('counts the requests of all replicas by the fields, and of each day', async () => {
    const { by, rows, other, total, daily, notes } = await usage(await start(), 'by=deployment,status');
    expect(by).toEqual(['deployment', 'status']);
    expect(rows.map(({ values }) => values)).toEqual([
      ['submissions', '200'],
      ['submissions', '404'],
      ['submissions', '429'],
    ]);
    expect(rows.reduce((sum, { requests }) => sum + requests, 0)).toBe(total.requests);
    expect(total).toMatchObject({ requests: 2 * DAYS * REQUESTS_A_DAY + 3, days: DAYS + 1 });
    expect(daily.map(({ requests }) => requests)).toEqual([...Array(DAYS).fill(2 * REQUESTS_A_DAY), 3]);
    expect([other, notes]).toEqual([null, []]);
  });

  test('has a thousand rows, and the rest in one; CSV has all of them', async () => {
    const origin = await start();
    const { rows, other, total, notes } = await usage(origin, 'to=2026-01-05');
    expect([rows.length, other?.days]).toEqual([1_000, DAYS]);
    expect(rows.reduce((sum, { requests }) => sum + requests, other?.requests ?? 0)).toBe(total.requests);
    expect(notes).toEqual([expect.stringMatching(/^There are more groups than rows.*\.$/)]);
    const response = await fetch(`${origin}/api/audit/usage?to=2026-01-05&format=csv`);
    expect(response.headers.get('content-type')).toBe('text/csv; charset=utf-8');
    expect(response.headers.get('content-disposition')).toMatch(/filename="usage-\d{8}T\d{6}Z\.csv"/);
    const lines = (await response.text()).trimEnd().split('\r\n');
    expect(lines[0]).toMatch(/^client,site,operation,credential,requests,/);
    expect(lines.length).toBeGreaterThan(1_001);
  });

  test.each([
    ['by=clients', 'by'],
    ['by=client&by=site', 'by'],
    ['from=yesterday', 'from'],
    ['format=xml', 'format'],
    ['client=a', 'client'],
    ['from=2026-04&to=2026-03', 'from', 'to'],
  ])('%s is refused, and the parameter is named', async (query, ...names) => {
    const response = await fetch(`${await start()}/api/audit/usage?${query}`);
    expect([response.status, await response.json()]).toMatchObject([400, { parameters: names }]);
  });

  test('shares the bounds of the search, and is recorded once', async () => {
    const origin = await start();
    await usage(origin, 'by=client&from=2026-01-04');
    await usage(origin, 'by=client&from=2026-01-04');
    expect(recorded).toEqual([
      {
        event: 'audit-usage',
        details: { by: 'api', address: '127.0.0.1', query: ['by=client', 'from=2026-01-04'] },
      },
    ]);
    const slow = await fetch(`${await start({ bounds: { searchMs: 1 } })}/api/audit/usage`);
    expect([slow.status, await slow.json()]).toMatchObject([504, { detail: /shorter time range/ }]);
    const busy = await fetch(`${await start({ bounds: { searches: 0 } })}/api/audit/usage`);
    expect([busy.status, busy.headers.get('retry-after')]).toEqual([429, '1']);
    await until(async () => (await searchThreads()).length === 0);
  });
});

describe('GET /api/requests/ID', () => {
  test('has the records of the request and the address of its trace', async () => {
    const origin = await start({ traceUrl: 'https://traces.example.org/{traceId}?r={requestId}' });
    const { rows } = (await (await fetch(`${origin}/api/requests/traced`)).json()) as SearchView;
    expect(rows).toMatchObject([
      {
        requestId: 'traced',
        traceId: TRACE_ID,
        traceUrl: `https://traces.example.org/${TRACE_ID}?r=traced`,
      },
    ]);
    expect(recorded).toMatchObject([{ event: 'audit-search', details: { query: ['requestId=traced'] } }]);
    const other = (await (await fetch(`${origin}/api/requests/refused`)).json()) as SearchView;
    expect(other.rows[0]).not.toHaveProperty('traceUrl');
  });

  test('is empty for a request that the log does not have', async () => {
    const response = await fetch(`${await start()}/api/requests/nobody`);
    expect(await response.json()).toMatchObject({ rows: [], cursor: null });
  });
});

test.each(['audit/search?limit=1', 'audit/usage?by=client', 'audit/export', 'requests/traced'])(
  'GET /api/%s is refused while it cannot be recorded, however often it is asked, and recorded once it can',
  async (path) => {
    let isWritable = false;
    const origin = await start({ isWritable: () => isWritable });
    for (let time = 0; time < 2; time += 1) {
      const refused = await fetch(`${origin}/api/${path}`);
      expect([refused.status, await refused.json()]).toEqual([
        503,
        expect.objectContaining({ code: 'audit-unavailable' }),
      ]);
    }
    isWritable = true;
    const served = await fetch(`${origin}/api/${path}`);
    expect(served.status).toBe(200);
    await served.arrayBuffer();
    expect(recorded).toHaveLength(3);
  },
);

describe('GET /api/audit/export', () => {
  test('gives CSV that a spreadsheet does not run', async () => {
    const response = await fetch(`${await start()}/api/audit/export?replica=r3&kind=all`);
    expect(response.headers.get('content-type')).toBe('text/csv; charset=utf-8');
    expect(response.headers.get('content-disposition')).toMatch(
      /^attachment; filename="audit-\d{8}T\d{6}Z\.csv"$/,
    );
    const lines = (await response.text()).split('\r\n');
    expect(lines).toHaveLength(7);
    expect(lines[0]).toMatch(/^time,replica,seq,requestId,.*,event,details$/);
    expect(lines[3]).toMatch(/,'\+formula,'=cmd,/);
    expect(recorded).toEqual([
      {
        event: 'audit-export',
        details: { by: 'api', address: '127.0.0.1', query: ['replica=r3', 'kind=all'], format: 'csv' },
      },
    ]);
  });

  test('gives one JSON object a line, in order of time, of the whole log', async () => {
    const response = await fetch(`${await start()}/api/audit/export?format=jsonl`);
    const lines = (await response.text()).trimEnd().split('\n');
    expect(lines).toHaveLength(2 * DAYS * REQUESTS_A_DAY + 3);
    const times = lines.map((line) => JSON.parse(line).time as string);
    expect(times).toEqual(times.toSorted());
  });

  test.each([
    ['csv', /^"?This export was cut at the limit of 3 results: results after 2026-01-01T.* are missing\."?$/],
    ['jsonl', /^\{"cut":true,"detail":"This export was cut at the limit of 3 results: .*"\}$/],
  ])('says in its last line that %s is cut', async (format, last) => {
    const origin = await start({ bounds: { exportResults: 3 } });
    const response = await fetch(`${origin}/api/audit/export?format=${format}`);
    const lines = (await response.text()).trimEnd().split(/\r?\n/);
    expect(lines.at(-1)).toMatch(last);
    expect(lines.length).toBe(format === 'csv' ? 5 : 4);
  });

  test('names in its last line what cannot be read, as usage does as CSV', async () => {
    const origin = await start();
    const [name = ''] = (await readdir(join(directory, 'r1')))
      .filter((each) => each.includes('.jsonl'))
      .sort();
    const file = join(directory, 'r1', name);
    const whole = await readFile(file);
    const altered = Buffer.from(whole);
    altered[whole.length >> 1] = (whole[whole.length >> 1] ?? 0) ^ 1;
    await writeFile(file, altered);
    try {
      for (const path of ['export?format=jsonl', 'export?format=csv', 'usage?by=client&format=csv']) {
        const text = await (await fetch(`${origin}/api/audit/${path}`)).text();
        expect(text.trimEnd().split('\n').at(-1)).toContain(`r1/${name}: `);
      }
    } finally {
      await writeFile(file, whole);
    }
  });

  test('is cut when its time is over', async () => {
    const origin = await start({ bounds: { exportMs: 1 } });
    const response = await fetch(`${origin}/api/audit/export?format=jsonl&client=nobody`);
    expect(JSON.parse(await response.text())).toMatchObject({ cut: true });
  });

  test('one at a time; its thread waits for a client that does not read, and ends with the connection', async () => {
    const origin = await start();
    const { port } = new URL(origin);
    const stalled = connect(Number(port), '127.0.0.1');
    await once(stalled, 'connect');
    stalled.pause();
    stalled.write('GET /api/audit/export?format=jsonl HTTP/1.1\r\nHost: localhost\r\n\r\n');
    await until(async () => (await searchThreads()).length === 1);
    const refused = await fetch(`${origin}/api/audit/export`);
    // A search would be told to retry sooner.
    expect([refused.status, refused.headers.get('retry-after')]).toEqual([429, '30']);
    stalled.destroy();
    await until(async () => (await searchThreads()).length === 0);
    const response = await fetch(`${origin}/api/audit/export?replica=r3`);
    expect((await response.text()).split('\r\n')).toHaveLength(5);
  });

  test('ends with the connection of a client that reads nothing for too long', async () => {
    const origin = await start({ bounds: { stalledMs: 100 } });
    const { port } = new URL(origin);
    const stalled = connect(Number(port), '127.0.0.1');
    stalled.on('error', () => undefined);
    await once(stalled, 'connect');
    stalled.pause();
    stalled.write('GET /api/audit/export?format=jsonl HTTP/1.1\r\nHost: localhost\r\n\r\n');
    await until(async () => recorded.length === 1);
    await until(async () => (await fetch(`${origin}/api/audit/export?replica=r3`)).status === 200);
    stalled.destroy();
  });

  test('leaves its place when the client leaves before the record is written', async () => {
    const record = Promise.withResolvers<boolean>();
    const answers = [record.promise];
    const origin = await start({ isWritable: () => answers.shift() ?? true });
    const { port } = new URL(origin);
    const client = connect(Number(port), '127.0.0.1');
    client.write('GET /api/audit/export?format=jsonl HTTP/1.1\r\nHost: localhost\r\n\r\n');
    await until(async () => recorded.length === 1);
    client.destroy();
    // The gateway has seen that by then.
    await fetch(`${origin}/livez`);
    record.resolve(true);
    await until(async () => (await fetch(`${origin}/api/audit/export?replica=r3`)).status === 200);
  });

  test('ends with the session that began it', async () => {
    const token = 'token-of-the-auditor';
    const origin = await start({
      control: { tokenSha256: createHash('sha256').update(token).digest('hex') },
    });
    const login = await fetch(`${origin}/login`, {
      method: 'POST',
      body: new URLSearchParams({ token }),
      redirect: 'manual',
    });
    const headers = { cookie: login.headers.get('set-cookie')?.split(';')[0] ?? '' };
    const response = await fetch(`${origin}/api/audit/export?format=jsonl`, { headers });
    expect(response.status).toBe(200);
    const logout = await fetch(`${origin}/logout`, { method: 'POST', headers, redirect: 'manual' });
    expect(logout.status).toBe(303);
    await expect(response.text()).rejects.toThrow();
    await until(async () => (await searchThreads()).length === 0);
  });

  test('ends with the control plane', async () => {
    const origin = await start();
    const response = await fetch(`${origin}/api/audit/export?format=jsonl`);
    await controls.pop()?.close();
    await expect(response.text()).rejects.toThrow();
    await until(async () => (await searchThreads()).length === 0);
  });
});

test('a third search at once is refused, and told when to retry', async () => {
  const origin = await start();
  const responses = await Promise.all(
    Array.from({ length: 6 }, () => fetch(`${origin}/api/audit/search?client=nobody`)),
  );
  const refused = responses.filter(({ status }) => status === 429);
  expect(refused.length).toBeGreaterThan(0);
  expect(refused[0]?.headers.get('retry-after')).toBe('1');
  expect(responses.filter(({ status }) => status === 200).length).toBeGreaterThan(0);
});
