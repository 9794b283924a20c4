import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { Pool } from 'undici';

/**
 * CPU time per request of the gateway against bare express + http-proxy, in front of the same TLS
 * upstream. Paired runs, since machines are noisy: the ratio of each pair counts, not the absolute times.
 *
 *     node test/bench/gateway.ts [pairs] [requests per run]
 */
const CLIENTS = 32;
const PATH = '/api/x?ids=%27DEMO-2026-0001%27&site_name=demo';
const pairs = Number(process.argv[2] ?? 7);
const requests = Number(process.argv[3] ?? 10_000);

interface Proxy {
  readonly name: string;
  readonly child: ChildProcess;
  readonly pool: Pool;
}

const upstream = start('upstream');
const { port, ca } = await told<{ port: number; ca: string }>(upstream);
const origin = `https://127.0.0.1:${port}`;
const gateway = await startProxy('gateway');
const baseline = await startProxy('express-http-proxy');

console.log(`${requests} requests a run, ${CLIENTS} at a time, 2 KB answers, Node ${process.version}`);
await measure(gateway, requests);
await measure(baseline, requests);
const ratios: number[] = [];
for (let pair = 1; pair <= pairs; pair += 1) {
  // Who goes first changes, so that a machine that slows down or speeds up favours neither.
  const order = pair % 2 === 0 ? [gateway, baseline] : [baseline, gateway];
  const cpu = new Map<Proxy, number>();
  for (const proxy of order) cpu.set(proxy, await measure(proxy, requests));
  const [ours = 0, theirs = 0] = [cpu.get(gateway), cpu.get(baseline)];
  ratios.push(ours / theirs);
  console.log(
    `pair ${pair}: gateway ${ours.toFixed(1)} us, express + http-proxy ${theirs.toFixed(1)} us, ratio ${(ours / theirs).toFixed(3)}`,
  );
}
ratios.sort((a, b) => a - b);
const median = ratios[Math.floor(ratios.length / 2)] ?? 0;
console.log(
  `CPU time per request, gateway / baseline: median ${median.toFixed(3)}, min ${ratios[0]?.toFixed(3)}, max ${ratios.at(-1)?.toFixed(3)}`,
);
for (const { child, pool } of [gateway, baseline]) {
  await pool.close();
  child.kill();
}
upstream.kill();

function start(name: string, ...args: string[]): ChildProcess {
  return fork(fileURLToPath(new URL(`proxies/${name}.ts`, import.meta.url)), args);
}

async function told<T>(child: ChildProcess): Promise<T> {
  const [message] = await once(child, 'message');
  return message as T;
}

async function startProxy(name: string): Promise<Proxy> {
  const child = start(name, origin, ca);
  const address = await told<{ port: number }>(child);
  return { name, child, pool: new Pool(`http://127.0.0.1:${address.port}`, { connections: CLIENTS }) };
}

/** CPU time of the proxy's process per request, in microseconds. */
async function measure({ name, child, pool }: Proxy, count: number): Promise<number> {
  const before = await cpuOf(child);
  let left = count;
  const client = async (): Promise<void> => {
    while (left > 0) {
      left -= 1;
      // The baseline does not answer a challenge, so its client brings what satisfies the upstream.
      const { statusCode, body } = await pool.request({
        path: PATH,
        method: 'GET',
        headers: { authorization: 'x' },
      });
      await body.dump();
      if (statusCode !== 200) throw new Error(`${name} answered ${statusCode}`);
    }
  };
  await Promise.all(Array.from({ length: CLIENTS }, client));
  return ((await cpuOf(child)) - before) / count;
}

async function cpuOf(child: ChildProcess): Promise<number> {
  const answer = told<{ cpu: number }>(child);
  child.send('cpu');
  return (await answer).cpu;
}
