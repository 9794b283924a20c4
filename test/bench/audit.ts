import { measurePairs, median, startProxy, startUpstream, stop } from './paired.ts';

/**
 * What the audit log costs: CPU time per request with each durability beyond that without an audit log. Paired runs,
 * since machines are noisy; in rounds with new processes, since two processes of one program differ by as much as what
 * is measured. What a batch costs is shared by the requests in it, so it depends on how many come at a time.
 *
 *     node test/bench/audit.ts [rounds] [clients ...]
 */
const [, , rounds = '9', ...numbers] = process.argv;
const KINDS = ['none', 'async', 'write', 'fsync'] as const;
const PAIRS = 5;
const REQUESTS = 8_000;

const { child, origin, ca } = await startUpstream();
console.log(
  `2 KB answers, Node ${process.version}; more CPU per request than without an audit log, by rounds`,
);
for (const clients of numbers.length > 0 ? numbers.map(Number) : [32, 128]) await compare(clients);
child.kill();

async function compare(clients: number): Promise<void> {
  const extra: Record<string, number[]> = { async: [], write: [], fsync: [] };
  const bare: number[] = [];
  for (let round = 1; round <= Number(rounds); round += 1) {
    const proxies = [];
    for (const kind of KINDS) proxies.push(await startProxy('gateway', clients, [origin, ca, kind], kind));
    const pairs: ReadonlyMap<string, number>[] = [];
    await measurePairs(proxies, { clients, requests: REQUESTS, pairs: PAIRS }, (cpu) => pairs.push(cpu));
    await stop(proxies);
    const none = (pair: ReadonlyMap<string, number>): number => pair.get('none') ?? 0;
    bare.push(median(pairs.map(none)));
    for (const [kind, costs] of Object.entries(extra)) {
      costs.push(median(pairs.map((pair) => (pair.get(kind) ?? 0) - none(pair))));
    }
  }
  console.log(`${clients} at a time, ${median(bare).toFixed(1)} us a request without an audit log`);
  for (const [kind, costs] of Object.entries(extra)) {
    const all = costs.toSorted((a, b) => a - b).map((cost) => cost.toFixed(1));
    console.log(`  ${kind.padEnd(5)} ${median(costs).toFixed(1)} us more (median of ${all.join(' ')})`);
  }
}
