import { measurePairs, median, startProxy, startUpstream, stop } from './paired.ts';

/**
 * CPU time per request of the gateway against bare express + http-proxy, in front of the same TLS
 * upstream. Paired runs, since machines are noisy: the ratio of each pair counts, not the absolute times.
 *
 *     node test/bench/gateway.ts [pairs] [requests per run]
 */
const clients = 32;
const pairs = Number(process.argv[2] ?? 7);
const requests = Number(process.argv[3] ?? 10_000);

const { child, origin, ca } = await startUpstream();
const proxies = [
  await startProxy('gateway', clients, [origin, ca]),
  await startProxy('express-http-proxy', clients, [origin, ca]),
];
console.log(`${requests} requests a run, ${clients} at a time, 2 KB answers, Node ${process.version}`);
const ratios: number[] = [];
await measurePairs(proxies, { clients, requests, pairs }, (cpu, pair) => {
  const [ours = 0, theirs = 0] = [cpu.get('gateway'), cpu.get('express-http-proxy')];
  ratios.push(ours / theirs);
  console.log(
    `pair ${pair}: gateway ${ours.toFixed(1)} us, express + http-proxy ${theirs.toFixed(1)} us, ratio ${(ours / theirs).toFixed(3)}`,
  );
});
console.log(
  `CPU time per request, gateway / baseline: median ${median(ratios).toFixed(3)}, min ${Math.min(...ratios).toFixed(3)}, max ${Math.max(...ratios).toFixed(3)}`,
);
await stop(proxies);
child.kill();
