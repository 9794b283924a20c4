import { reloadsUnderLoad } from '../../test/full/reloads.ts';

/**
 * Measures reloads of a gateway that serves requests; one in four configurations is wrong. The times of the processor
 * count where other programs run beside it.
 *
 *     node lab/bench/reloads.ts [reloads] [clients] [deployments]
 */
const [reloads = 100, clients = 1_000, deployments = 200] = process.argv.slice(2).map(Number);
/** A turn that takes longer is a stall. */
const STALL_MS = 50;

const begun = performance.now();
const { load, refused, turns } = await reloadsUnderLoad({ reloads, clients, deployments });
const seconds = (performance.now() - begun) / 1000;
const { answers, failures, slowestMs } = load;
console.log(
  `${reloads} reloads of ${clients} clients and ${deployments} deployments in ${seconds.toFixed(0)} s, ${refused} of them refused, Node ${process.version}`,
);
console.log(`${answers} requests, ${failures.length} failed, the slowest took ${slowestMs.toFixed(0)} ms`);
for (const failure of new Set(failures)) console.log(`  ${failure}`);
for (const [what, values] of [
  ['processor', turns.map(({ cpuMs }) => cpuMs)],
  ['clock', turns.map(({ wallMs }) => wallMs)],
] as const) {
  const sorted = values.toSorted((a, b) => a - b);
  const at = (share: number) => (sorted[Math.ceil(share * sorted.length) - 1] ?? 0).toFixed(1);
  const stalls = values.filter((value) => value > STALL_MS).length;
  console.log(
    `longest turn of each reload, ms of the ${what}: median ${at(0.5)}, 95 % ${at(0.95)}, longest ${at(1)}; above ${STALL_MS} ms: ${stalls}`,
  );
}
if (failures.length > 0) process.exitCode = 1;
