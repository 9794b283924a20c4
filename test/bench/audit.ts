import { measurePairs, median, startProxy, startUpstream, stop } from './paired.ts';

/**
 * What the audit log costs: CPU time per request with each durability beyond that without an audit log. Paired
 * runs, since machines are noisy.
 *
 *     node test/bench/audit.ts [pairs] [requests per run] [clients]
 */
const pairs = Number(process.argv[2] ?? 7);
const requests = Number(process.argv[3] ?? 10_000);
const clients = Number(process.argv[4] ?? 32);
const KINDS = ['none', 'async', 'write', 'fsync'] as const;

const { child, origin, ca } = await startUpstream();
const proxies = [];
for (const kind of KINDS) proxies.push(await startProxy('gateway', clients, [origin, ca, kind], kind));
console.log(`${requests} requests a run, ${clients} at a time, 2 KB answers, Node ${process.version}`);
const extra: Record<string, number[]> = { async: [], write: [], fsync: [] };
await measurePairs(proxies, { clients, requests, pairs }, (cpu, pair) => {
  const none = cpu.get('none') ?? 0;
  for (const [kind, costs] of Object.entries(extra)) costs.push((cpu.get(kind) ?? 0) - none);
  console.log(`pair ${pair}: ${[...cpu].map(([kind, us]) => `${kind} ${us.toFixed(1)} us`).join(', ')}`);
});
for (const [kind, costs] of Object.entries(extra)) {
  console.log(`${kind}: ${median(costs).toFixed(1)} us more per request than without an audit log (median)`);
}
await stop(proxies);
child.kill();
