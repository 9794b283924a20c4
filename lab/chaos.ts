import { CHAOS_HEAD, runChaos } from './chaos/run.ts';
import type { Finding, LabOptions, LabPart, PartReport, Table } from './part.ts';

const SCENES = [
  { redis: 'alone', title: 'with one Redis' },
  { redis: 'sentinel', title: 'with Redis Sentinel' },
  { redis: 'cluster', title: 'with Redis Cluster' },
] as const;

/**
 * A seed decides which fault follows which, and how long each lasts. A replay has the same ones in the same order, not at
 * the same moments: real processes take as long as they take.
 */
export const chaos: LabPart = {
  name: 'chaos',
  description:
    'Three gateways with two workers each behind HAProxy, with one Redis, then with Sentinel, then with a Cluster, and a fault every second.',
  run,
};

async function run(options: LabOptions): Promise<PartReport> {
  const { seed, limitMs, replays, out, print, progress } = options;
  const seconds = limitMs / 1_000 / SCENES.length;
  const figures: Record<string, number | string> = { seed };
  const tables: Table[] = [];
  const findings: Finding[] = [];
  for (const { redis, title } of SCENES) {
    const report = await runChaos({
      seed,
      redis,
      replicas: 3,
      workers: 2,
      seconds,
      out,
      progress: (text) => progress(`${title}: ${text}`),
      ...(replays && { onEvent: print }),
    });
    for (const [name, value] of Object.entries(report.figures)) figures[`${title}: ${name}`] = value;
    tables.push({ title: `Faults ${title}`, head: CHAOS_HEAD, rows: report.rows });
    const logged = Array.from(report.errors, ([error, count]) => [String(count), error]);
    tables.push({ title: `Errors that gateways logged ${title}`, head: ['times', 'error'], rows: logged });
    if (report.flightRecords.length > 0) {
      const rows = report.flightRecords.map((file) => [file]);
      tables.push({ title: `Flight records at the first finding ${title}`, head: ['file'], rows });
    }
    const replay = `npm run lab -- chaos --minutes ${Math.ceil(limitMs / 60_000)} --seed ${seed}`;
    findings.push(...report.findings.map((what) => ({ seed, what: `${title}: ${what}`, replay })));
  }
  return { figures, tables, findings };
}
