import { mkdtemp, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { auditKeys } from '../../src/audit/keys.ts';
import { countUsage, type UsageField } from '../../src/audit/reader/usage.ts';
import { BufferGc } from '../../src/base/buffer-gc.ts';
import { Secret } from '../../src/base/secret.ts';
import { writeLog } from '../../test/support/many-records.ts';

/**
 * How long `audit usage` takes for a year of records, in segments of a day, of two replicas; and the peak of the
 * process's memory. With --expose-gc, as the program runs.
 *
 *     node --expose-gc lab/bench/audit-usage.ts [millions of records] [folder that has them already, or is to keep them]
 */
const millions = Number(process.argv[2] ?? 10);
const given = process.argv[3];
const DAYS = 365;
const REPLICAS = ['r1', 'r2'];
const keys = auditKeys(new Secret('0123456789abcdef'.repeat(4)));
const start = Date.parse('2025-11-01T00:00:00Z');
const requestsADay = Math.ceil((millions * 1e6) / DAYS / REPLICAS.length / 2);

async function measure(directory: string, title: string, by: readonly UsageField[]): Promise<void> {
  const gc = new BufferGc();
  const begun = performance.now();
  const before = process.cpuUsage();
  let bytes = 0;
  const { rows, total } = await countUsage({
    directory,
    keys: [keys],
    by,
    lists: {},
    query: {},
    onBytes: (count) => {
      gc.add(count);
      bytes += count;
    },
    onUnreadable: (message) => console.error(message),
    onNote: (message) => console.error(message),
  });
  const seconds = ((performance.now() - begun) / 1000).toFixed(1);
  const { user, system } = process.cpuUsage(before);
  const peak = Math.round(process.resourceUsage().maxRSS / 1024);
  console.log(
    `${title}: ${seconds} s, ${((user + system) / 1e6).toFixed(1)} s of CPU, ${total.requests} requests in ${rows.length} rows, ${Math.round(bytes / 2 ** 20)} MiB read, peak ${peak} MiB`,
  );
}

const directory = given ?? (await mkdtemp(join(tmpdir(), 'audit-usage-')));
const there = await stat(join(directory, 'r2')).catch(() => undefined);
if (there === undefined) {
  for (const replica of REPLICAS) {
    await writeLog(directory, { replica, keys, start, days: DAYS, requestsADay });
  }
  console.log(`${requestsADay * 2 * DAYS * REPLICAS.length} records`);
}
await measure(directory, 'by client', ['client']);
await measure(directory, 'by client, site, operation, credential', [
  'client',
  'site',
  'operation',
  'credential',
]);
await measure(directory, 'by client, address, status', ['client', 'address', 'status']);
if (given === undefined) await rm(directory, { recursive: true });
