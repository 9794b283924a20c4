import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { mkdir, readFile, rmdir, writeFile } from 'node:fs/promises';
import { connect, type Socket } from 'node:net';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { getBorderCharacters, table } from 'table';
import { Client } from 'undici';
import { parse, stringify } from 'yaml';
import { builtGateway } from '../../test/bench/compare/built-gateway.ts';
import { cpuBetween, cpuOf } from '../../test/bench/compare/process-tree.ts';
import { type BenchUpstream, startBenchUpstream } from '../../test/bench/compare/upstream.ts';
import { type GatewayProcess, startGatewayProcess } from '../../test/support/gateway-process.ts';
import { until } from '../../test/support/until.ts';

/**
 * One gateway at the limits of the machine: 10,000 idle client connections, 1,000 clients that send a byte a second,
 * 2,000 deployments with a credential each and 10,000 clients with a key each, all of them used by real requests
 * through Digest, in a control group of 512 MiB; the same with one of each is what it is compared with. Arguments:
 * seconds of each load (60), requests a second (200), MiB (512), deployments (2000), clients (10000), idle (10000),
 * slow (1000). Where there are no control groups of version 1, the heap is limited to three quarters, and only memory
 * is told.
 */
const [
  seconds = 60,
  rate = 200,
  limitMiB = 512,
  deployments = 2_000,
  clients = 10_000,
  idle = 10_000,
  slow = 1_000,
] = process.argv.slice(2).map(Number);
const MIB = 2 ** 20;
const TICK_MS = 10;
const CONNECTIONS = 32;
/** Connections from one address of loopback: each has its own ports. */
const PER_ADDRESS = 1_000;
/** Requests before the load: V8 compiles for the first thousands of a process, which cost up to twice as much. */
const SWEEP = 10_000;
const LIMIT_MS = 600_000;

interface Scale {
  readonly deployments: number;
  readonly clients: number;
  readonly idle: number;
  readonly slow: number;
}

interface Outcome {
  sent: number;
  readonly failures: Map<string, number>;
}

/** Deployments that have requests all the time, so that their connections stay open. */
const BUSY = 50;

type Choice = (n: number, scale: Scale) => number;

/** Each client in turn, and so each deployment. */
const everyClient: Choice = (n, scale) => n % scale.clients;

/** The clients of the busy deployments in turn. */
const busyClients: Choice = (n, scale) => {
  const busy = Math.min(BUSY, scale.deployments);
  return ((n % busy) + scale.deployments * Math.floor(n / busy)) % scale.clients;
};

const group = await memoryGroup();
const upstream = await startBenchUpstream();
try {
  const one = await measure({ deployments: 1, clients: 1, idle: 0, slow: 0 });
  const many = await measure({ deployments, clients, idle, slow });
  const rows = Object.keys(one).map((what) => [what, one[what] ?? '', many[what] ?? '']);
  const head = [
    '',
    'one of each',
    `${deployments} deployments, ${clients} clients, ${idle} idle, ${slow} slow`,
  ];
  const border = getBorderCharacters('void');
  console.log(table([head, ...rows], { border, drawHorizontalLine: () => false }).replace(/ +$/gm, ''));
  console.log(`${rate} requests/s for ${seconds} s, ${limitMiB} MiB, Node ${process.version}`);
} finally {
  await upstream.close();
  if (group !== undefined) await rmdir(group);
}

/** What one gateway of this scale shows, by the name of the figure. */
async function measure(scale: Scale): Promise<Record<string, string>> {
  const begun = performance.now();
  await using gateway = await start(scale, upstream);
  const died = gateway.ended.then((status) => {
    throw new Error(
      `The gateway ended (${status ?? 'by a signal'}):\n${gateway.printed
        .filter((line) => !line.includes('is written in the configuration itself'))
        .slice(-20)
        .join('\n')}`,
    );
  });
  // Disposal ends it, too.
  died.catch(() => undefined);
  return await Promise.race([died, figuresOf(gateway, scale, begun)]);
}

async function figuresOf(
  gateway: GatewayProcess,
  scale: Scale,
  begun: number,
): Promise<Record<string, string>> {
  const startMs = performance.now() - begun;
  const startCpu = cpuBetween(new Map(), cpuOf(gateway.pid));
  const figures: Record<string, string> = {
    'start, s': (startMs / 1000).toFixed(1),
    'start, CPU s': (startCpu / 1e9).toFixed(1),
    'RSS after start, MiB': await memory(gateway),
  };
  const outcome: Outcome = { sent: 0, failures: new Map() };
  const sweep = cpuOf(gateway.pid);
  await load(gateway, scale, SWEEP, outcome, rate * 2, everyClient);
  figures['CPU a request, each client in turn, with all that goes on meanwhile, us'] = (
    cpuBetween(sweep, cpuOf(gateway.pid)) /
    1e3 /
    SWEEP
  ).toFixed(0);
  figures['RSS with all used, MiB'] = await memory(gateway);
  const scraped = performance.now();
  const { byteLength } = await (await fetch(`${gateway.control}/metrics`)).arrayBuffer();
  figures['/metrics, MiB'] = (byteLength / MIB).toFixed(1);
  figures['/metrics, s'] = ((performance.now() - scraped) / 1000).toFixed(1);
  const sockets = await Promise.all(Array.from({ length: scale.idle }, (_, at) => open(gateway, at)));
  const slowEnds = Array.from({ length: scale.slow }, (_, at) => askSlowly(gateway, scale, scale.idle + at));
  figures['RSS with connections, MiB'] = await memory(gateway);
  figures['CPU without requests, ms/s'] = (await cpuPerSecond(gateway, 10)).toFixed(0);

  const before = cpuOf(gateway.pid);
  const loadBegun = performance.now();
  await load(gateway, scale, rate * seconds, outcome, rate, busyClients);
  const cpuMs = cpuBetween(before, cpuOf(gateway.pid)) / 1e6;
  figures['CPU with requests, ms/s'] = ((1e3 * cpuMs) / (performance.now() - loadBegun)).toFixed(0);

  const stopReload = new AbortController();
  const during = load(
    gateway,
    scale,
    Number.POSITIVE_INFINITY,
    outcome,
    rate,
    busyClients,
    stopReload.signal,
  );
  const beforeReload = cpuOf(gateway.pid);
  const reloadMs = await reload(gateway);
  figures['reload, s'] = (reloadMs / 1000).toFixed(1);
  figures['CPU of reload, requests included, s'] = (
    cpuBetween(beforeReload, cpuOf(gateway.pid)) / 1e9
  ).toFixed(1);
  stopReload.abort();
  await during;
  const slowFailures = (await Promise.all(slowEnds)).filter((status) => status !== 200);
  figures['RSS at the end, MiB'] = await memory(gateway);
  const { peak } = await gateway.memory();
  figures['highest RSS, MiB'] = (peak / MIB).toFixed(0);
  figures['highest of the control group, MiB'] =
    group === undefined
      ? ''
      : (Number(await readFile(join(group, 'memory.max_usage_in_bytes'), 'utf8')) / MIB).toFixed(0);
  figures['requests'] = `${outcome.sent}`;
  figures['requests refused'] =
    [...outcome.failures].map(([what, count]) => `${count} ${what}`).join('; ') || '0';
  figures['slow requests refused'] =
    `${slowFailures.length}${slowFailures.length > 0 ? ` (${[...new Set(slowFailures)]})` : ''}`;
  figures['idle connections closed'] =
    `${sockets.filter(({ closed, readyState }) => closed || readyState !== 'open').length}`;
  for (const socket of sockets) socket.destroy();
  return figures;
}

async function start(scale: Scale, { caFile, origin }: BenchUpstream): Promise<GatewayProcess> {
  const [node = '', ...command] = await builtGateway();
  const program = command.pop() ?? '';
  const flags = group === undefined ? [`--max-old-space-size=${(limitMiB * 3) / 4}`] : [];
  if (group !== undefined) await writeFile(join(group, 'memory.max_usage_in_bytes'), '0');
  const enter = group === undefined ? '' : `echo $$ > ${group}/cgroup.procs; `;
  const each = <T>(count: number, make: (at: number) => T): T[] =>
    Array.from({ length: count }, (_, at) => make(at));
  const named = each(scale.deployments, (at) => [
    `d${at}`,
    {
      origin,
      settings: {
        match: { pathPrefix: `/d${at}/` },
        rewrite: { stripPrefix: `/d${at}` },
        tls: { caFile },
        operations: {
          document: { method: 'GET', path: '/digest/{name}', parameters: { ids: 'quoted-list?' } },
        },
      },
    },
  ]);
  return startGatewayProcess(
    Object.fromEntries(named),
    {
      anonymous: false,
      listen: {
        port: 0,
        limits: {
          connections: 20_000,
          connectionsPerAddress: 2_000,
          headersTimeout: '10m',
          keepAliveTimeout: '30m',
        },
      },
      clients: each(scale.clients, (at) => ({
        id: `client-${at}`,
        identify: { apiKeySha256: createHash('sha256').update(`key-${at}`).digest('hex') },
        allow: [{ deployment: `d${at % scale.deployments}` }],
        limits: { rate: '1000000/s', concurrent: 10_000 },
      })),
    },
    { runner: ['sh', '-c', `${enter}exec "$@"`, 'sh', node, ...flags, ...command], program },
  );
}

/** The n-th request. */
function request(n: number, scale: Scale, choose: Choice): { path: string; headers: Record<string, string> } {
  const client = choose(n, scale);
  return { path: `/d${client % scale.deployments}/digest/2KB`, headers: { 'x-api-key': `key-${client}` } };
}

/** Sends so many requests at this rate, over a few connections. */
async function load(
  { origin }: GatewayProcess,
  scale: Scale,
  count: number,
  outcome: Outcome,
  perSecond: number,
  choose: Choice,
  signal?: AbortSignal,
): Promise<void> {
  const connections = Array.from({ length: CONNECTIONS }, () => new Client(origin));
  const note = (what: string): void => void outcome.failures.set(what, (outcome.failures.get(what) ?? 0) + 1);
  const send = async (client: Client, n: number): Promise<void> => {
    try {
      const { statusCode, body } = await client.request({ method: 'GET', ...request(n, scale, choose) });
      const text = await body.text();
      if (statusCode !== 200) note(`${statusCode} ${/"code":"([^"]*)"/.exec(text)?.[1] ?? ''}`);
    } catch (error) {
      note(String(error));
    }
  };
  const waiting: Promise<void>[] = [];
  const begun = performance.now();
  let sent = 0;
  while (sent < count && signal?.aborted !== true) {
    const due = Math.min(count, ((performance.now() - begun) / 1000) * perSecond);
    for (; sent < due; sent += 1)
      waiting.push(send(connections[sent % CONNECTIONS] as Client, outcome.sent++));
    await delay(TICK_MS);
  }
  await Promise.all(waiting);
  await Promise.all(connections.map((client) => client.close()));
}

/** Opens a connection, from an address of its thousand. */
async function open({ origin }: GatewayProcess, at: number): Promise<Socket> {
  const { hostname: host, port } = new URL(origin);
  const localAddress = `127.0.1.${1 + Math.floor(at / PER_ADDRESS)}`;
  const socket = connect({ host, port: Number(port), localAddress });
  await once(socket, 'connect');
  socket.on('error', () => undefined);
  return socket;
}

/** Sends the head of a request a byte a second; resolves to the status of the response, 0 for none. */
async function askSlowly(gateway: GatewayProcess, scale: Scale, at: number): Promise<number> {
  const socket = await open(gateway, at);
  const { path, headers } = request(at, scale, everyClient);
  const head = `GET ${path} HTTP/1.1\r\nHost: g\r\nX-Api-Key: ${headers['x-api-key']}\r\n\r\n`;
  const answered = new Promise<number>((resolve) => {
    socket.once('data', (data) => resolve(Number(data.toString('latin1').split(' ')[1])));
    socket.once('close', () => resolve(0));
  });
  // Not all in the same millisecond.
  await delay(at % 1_000);
  for (const byte of head) {
    if (socket.destroyed) break;
    socket.write(byte);
    await delay(1_000);
  }
  const status = await answered;
  socket.destroy();
  return status;
}

async function memory(gateway: GatewayProcess): Promise<string> {
  return ((await gateway.memory()).now / MIB).toFixed(0);
}

async function cpuPerSecond({ pid }: GatewayProcess, count: number): Promise<number> {
  const before = cpuOf(pid);
  const begun = performance.now();
  await delay(count * 1000);
  return cpuBetween(before, cpuOf(pid)) / 1e3 / (performance.now() - begun);
}

/**
 * Reloads with the clients in another order and each deployment changed; resolves to milliseconds until it is in force.
 */
async function reload({ configFile, pid, logged }: GatewayProcess): Promise<number> {
  const config = parse(await readFile(configFile, 'utf8'), { maxAliasCount: -1 });
  config.clients.reverse();
  for (const each of Object.values<Record<string, unknown>>(config.deployments)) each['connections'] = 7;
  await writeFile(configFile, stringify(config, { aliasDuplicateObjects: false }));
  const seen = logged.length;
  const begun = performance.now();
  process.kill(pid, 'SIGHUP');
  await until(
    () => logged.slice(seen).some(({ msg }) => /^configuration (reloaded|refused)/.test(`${msg}`)),
    LIMIT_MS,
  );
  const ended = logged.slice(seen).find(({ msg }) => /^configuration (reloaded|refused)/.test(`${msg}`));
  if (ended?.['msg'] !== 'configuration reloaded') throw new Error(JSON.stringify(ended));
  return performance.now() - begun;
}

/** A control group with the limit; undefined where there is none. */
async function memoryGroup(): Promise<string | undefined> {
  const folder = join('/sys/fs/cgroup/memory', `digest-gateway-limits-${process.pid}`);
  try {
    await mkdir(folder);
    await writeFile(join(folder, 'memory.limit_in_bytes'), `${limitMiB * MIB}`);
    return folder;
  } catch {
    return undefined;
  }
}
