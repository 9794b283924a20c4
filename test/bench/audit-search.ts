import { mkdir, mkdtemp, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { zstdCompressSync } from 'node:zlib';
import { auditKeys } from '../../src/audit/keys.ts';
import type { Query } from '../../src/audit/reader/query.ts';
import { search } from '../../src/audit/reader/search.ts';
import { RecordText, recordedTarget, recordLine } from '../../src/audit/record.ts';
import { GENESIS, sealFor, sealLine } from '../../src/audit/seal.ts';
import { compressedName, headerLine, segmentName } from '../../src/audit/segments/segment.ts';
import { Secret } from '../../src/base/secret.ts';

/**
 * How long a search takes in a year of records, in segments of a day, of two replicas: without the index of time
 * ranges, and with it. The peak of the process's memory is told, too.
 *
 *     node test/bench/audit-search.ts [millions of records] [folder that has them already, or is to keep them]
 */
const millions = Number(process.argv[2] ?? 10);
const given = process.argv[3];
const DAYS = 365;
const DAY_MS = 86_400_000;
const REPLICAS = ['r1', 'r2'];
const REQUESTS_A_SEAL = 25;
const keys = auditKeys(new Secret('0123456789abcdef'.repeat(4)));
const start = Date.parse('2025-11-01T00:00:00Z');
const requestsADay = Math.ceil((millions * 1e6) / DAYS / REPLICAS.length / 2);

/** Always the same numbers, so that two runs can be compared. */
let state = 1;
function random(below: number): number {
  state = (state * 48_271) % 2_147_483_647;
  return state % below;
}

function requestAt(time: number, seq: number, text: RecordText): string {
  const requestId = `${random(1e9).toString(16)}-${random(1e9).toString(16)}-${random(1e9).toString(16)}`;
  const site = `journal-${random(40)}`;
  const ids = Array.from({ length: 1 + random(4) }, () => `%27MS-2026-${random(2_000_000)}%27`).join(',');
  const target = `/api/manuscripts/v2/submissions/full/contributors/authors/submissionids?ids=${ids}&site_name=${site}&external_id=${random(1e6)}`;
  const status = random(50) === 0 ? 404 : 200;
  const durationMs = 20 + random(2000) / 10;
  const access = text.access(
    {
      requestId,
      client: `app-${random(60)}`,
      address: `10.1.${random(8)}.${random(250)}`,
      deployment: 'submissions',
      site,
      operation: `operation-${random(30)}`,
      method: 'GET',
      target,
      status,
      code: '',
      upstream: {
        status,
        attempts: 1,
        challenged: false,
        durationMs,
        address: 'submissions.example.org',
      },
      credential: { name: site, version: '1' },
    },
    { address: '10.1.2.3', ...recordedTarget(target, new Set(['ids', 'site_name', 'external_id'])) },
  );
  const outcome = text.outcome({
    access: seq,
    requestId,
    status,
    code: '',
    outcome: '',
    bytes: { in: 0, out: random(50_000) },
    durationMs: durationMs + 1,
  });
  const [came, ended] = [time, time + 50].map((at) => new Date(at).toISOString());
  return recordLine(seq, came ?? '', access) + recordLine(seq + 1, ended ?? '', outcome);
}

async function writeReplica(directory: string, replica: string): Promise<number> {
  await mkdir(join(directory, replica), { recursive: true });
  const text = new RecordText(replica);
  let [seq, previous, bytes] = [1, GENESIS, 0];
  for (let day = 0; day < DAYS; day += 1) {
    const from = start + day * DAY_MS;
    const header = headerLine({
      replica,
      first: seq,
      previous,
      key: keys.id,
      opened: new Date(from).toISOString(),
    });
    const name = segmentName(seq);
    const parts = [header];
    let batch = header;
    let first = seq;
    for (let request = 0; request < requestsADay; request += 1) {
      const lines = requestAt(from + Math.floor((request * DAY_MS) / requestsADay), seq, text);
      parts.push(lines);
      batch += lines;
      seq += 2;
      if (request % REQUESTS_A_SEAL !== REQUESTS_A_SEAL - 1 && request !== requestsADay - 1) continue;
      const seal = sealFor(keys, { replica, previous }, { first, last: seq - 1 }, Buffer.from(batch));
      parts.push(sealLine(seal));
      [previous, batch, first] = [seal.hmac, '', seq];
    }
    const content = Buffer.from(parts.join(''));
    bytes += content.length;
    const open = day === DAYS - 1;
    const file = join(directory, replica, open ? name : compressedName(name));
    await writeFile(file, open ? content : zstdCompressSync(content), { mode: 0o600 });
  }
  return bytes;
}

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
    onCut: () => undefined,
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
  for (const replica of REPLICAS) sizes.push(await writeReplica(directory, replica));
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
if (given === undefined) await rm(directory, { recursive: true });
