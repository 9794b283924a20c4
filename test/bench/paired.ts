import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { Pool } from 'undici';

const PATH = '/api/x?ids=%27DEMO-2026-0001%27&site_name=demo';

/** A proxy in a process of its own. */
export interface Proxy {
  readonly name: string;
  readonly child: ChildProcess;
  readonly pool: Pool;
}

/** A TLS upstream, for proxies to stand before. */
export async function startUpstream(): Promise<{ child: ChildProcess; origin: string; ca: string }> {
  const child = start('upstream');
  const { port, ca } = await told<{ port: number; ca: string }>(child);
  return { child, origin: `https://127.0.0.1:${port}`, ca };
}

export async function startProxy(
  file: string,
  clients: number,
  args: readonly string[],
  name = file,
): Promise<Proxy> {
  const child = start(file, ...args);
  const address = await told<{ port: number }>(child);
  return { name, child, pool: new Pool(`http://127.0.0.1:${address.port}`, { connections: clients }) };
}

/** CPU time of the proxy's process per request, in microseconds. */
export async function measure({ name, child, pool }: Proxy, clients: number, count: number): Promise<number> {
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
  await Promise.all(Array.from({ length: clients }, client));
  return ((await cpuOf(child)) - before) / count;
}

/** Measures each once for every pair; who goes first changes, so that a machine that slows down favours nobody. */
export async function measurePairs(
  proxies: readonly Proxy[],
  { clients, requests, pairs }: { clients: number; requests: number; pairs: number },
  onPair: (cpu: ReadonlyMap<string, number>, pair: number) => void,
): Promise<void> {
  for (const proxy of proxies) await measure(proxy, clients, requests);
  for (let pair = 1; pair <= pairs; pair += 1) {
    const cpu = new Map<string, number>();
    for (const proxy of pair % 2 === 0 ? proxies : proxies.toReversed()) {
      cpu.set(proxy.name, await measure(proxy, clients, requests));
    }
    onPair(cpu, pair);
  }
}

export async function stop(proxies: readonly Proxy[]): Promise<void> {
  for (const { child, pool } of proxies) {
    await pool.close();
    child.kill();
  }
}

export function median(values: readonly number[]): number {
  return values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)] ?? 0;
}

function start(name: string, ...args: string[]): ChildProcess {
  return fork(fileURLToPath(new URL(`proxies/${name}.ts`, import.meta.url)), args);
}

async function told<T>(child: ChildProcess): Promise<T> {
  const [message] = await once(child, 'message');
  return message as T;
}

async function cpuOf(child: ChildProcess): Promise<number> {
  const answer = told<{ cpu: number }>(child);
  child.send('cpu');
  return (await answer).cpu;
}
