import { mkdtemp, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { monitorEventLoopDelay } from 'node:perf_hooks';
import { setTimeout as delay } from 'node:timers/promises';
import { auditKeys } from '../../src/audit/keys.ts';
import type { Query } from '../../src/audit/reader/query.ts';
import { search } from '../../src/audit/reader/search.ts';
import { searchInThread } from '../../src/audit/reader/search-thread.ts';
import { Secret } from '../../src/base/secret.ts';
import { writeLog } from '../../test/support/many-records.ts';

/**
 * How long a search takes in a year of records, in segments of a day, of two replicas: without the index of time
 * ranges, and with it; then pages of the console's search, which read in a thread of their own. The peak of the
 * process's memory is told, too.
 *
 *     node lab/bench/audit-search.ts [millions of records] [folder that has them already, or is to keep them]
 */
const millions = Number(process.argv[2] ?? 10);
const given = process.argv[3];
const DAYS = 365;
const REPLICAS = ['r1', 'r2'];
const keys = auditKeys(new Secret('0123456789abcdef'.repeat(4)));
const start = Date.parse('2025-11-01T00:00:00Z');
const requestsADay = Math.ceil((millions * 1e6) / DAYS / REPLICAS.length / 2);

/** One that was asked for in that time. */
async function anIdIn(directory: string, query: Query): Promise<string> {
  const ignore = (): void => undefined;
  const events = { onBytes: ignore, onUnreadable: ignore, onNote: ignore, onCut: ignore };
  for await (const found of search({ directory, keys: [keys], query, ...events })) {
    if ('event' in found) continue;
    const [, id] = /'(MS-[\d-]+)'/.exec(String(found.access.parameters['ids'])) ?? [];
    if (id !== undefined) return id;
  }
  throw new Error('there is none');
}

async function measure(directory: string, title: string, query: Query): Promise<void> {
  const begun = performance.now();
  let [found, bytes] = [0, 0];
  const results = search({
    directory,
    keys: [keys],
    query,
    onBytes: (count) => {
      bytes += count;
    },
    onUnreadable: (message) => console.error(message),
    onNote: (message) => console.error(message),
  });
  for await (const _ of results) found += 1;
  const seconds = ((performance.now() - begun) / 1000).toFixed(2);
  const peak = Math.round(process.resourceUsage().maxRSS / 1024);
  console.log(
    `${title}: ${seconds} s, ${found} found, ${Math.round(bytes / 2 ** 20)} MiB read, peak ${peak} MiB`,
  );
}

const directory = given ?? (await mkdtemp(join(tmpdir(), 'audit-search-')));
const there = await stat(join(directory, 'r2')).catch(() => undefined);
if (there === undefined) {
  const sizes = [];
  for (const replica of REPLICAS) {
    sizes.push(await writeLog(directory, { replica, keys, start, days: DAYS, requestsADay }));
  }
  const bytes = sizes.reduce((sum, size) => sum + size, 0);
  console.log(
    `${requestsADay * 2 * DAYS * REPLICAS.length} records, ${(bytes / 1e9).toFixed(1)} GB uncompressed`,
  );
}
const march = { since: '2026-03-01T00:00:00.000Z', until: '2026-04-01T00:00:00.000Z' };
await measure(directory, 'one client in March, no index yet', { client: 'app-7', ...march });
const id = await anIdIn(directory, { site: 'journal-7', ...march });
await measure(directory, 'one id in March', { id, ...march });
await measure(directory, 'one id in the whole year', { id });
await measure(directory, 'one client in March', { client: 'app-7', ...march });
await measure(directory, 'status 404 of one site, whole year', {
  site: 'journal-7',
  status: { from: 400, to: 599 },
});
await measure(directory, 'every request of March', march);

/** One page of the console's search: its time, and the stall of this thread meanwhile. */
async function measurePage(title: string, query: Query): Promise<void> {
  const delays = monitorEventLoopDelay({ resolution: 1 });
  const begun = performance.now();
  delays.enable();
  const scope = { directory, keys: [keys] as const, keysDirectory: undefined, parameters: ['ids'], query };
  const task = { kind: 'page', limit: 50, after: undefined, budgetMs: 20_000 } as const;
  const { page } = await searchInThread(scope, task, new AbortController().signal);
  delays.disable();
  const seconds = ((performance.now() - begun) / 1000).toFixed(2);
  const [p99, max] = [delays.percentile(99), delays.max].map((ns) => (ns / 1e6).toFixed(1));
  const to = page.next === undefined ? 'whole log' : `back to ${page.next.time}`;
  console.log(
    `page, ${title}: ${seconds} s, ${page.found.length} found, ${page.records} records read, ${to}; timers late by ${p99} ms (p99), ${max} ms (most)`,
  );
}

const idle = monitorEventLoopDelay({ resolution: 1 });
idle.enable();
await delay(5_000);
idle.disable();
const [idleP99, idleMax] = [idle.percentile(99), idle.max].map((ns) => (ns / 1e6).toFixed(1));
console.log(`without a search: timers late by ${idleP99} ms (p99), ${idleMax} ms (most)`);
console.log(`resident before the pages: ${Math.round(process.memoryUsage.rss() / 2 ** 20)} MiB`);
await measurePage('the newest', {});
await measurePage('one id in the whole year', { id });
await measurePage('a request id that is nowhere', { requestId: 'nowhere' });
await measurePage('text that is nowhere', { text: 'nowhere' });
const peak = Math.round(process.resourceUsage().maxRSS / 1024);
console.log(`peak of the process: ${peak} MiB`);
if (given === undefined) await rm(directory, { recursive: true });
