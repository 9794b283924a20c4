import { setTimeout as delay } from 'node:timers/promises';
import { getBorderCharacters, table } from 'table';
import { Pool } from 'undici';
import { RedisLimitStore } from '../../src/limits/redis.ts';
import type { RedisOptions, RedisServers } from '../../src/redis/connection.ts';
import { type BehaviourChange, defaultSettings } from '../../src/simulator/settings.ts';
import { startSimulator } from '../../src/simulator/simulator.ts';
import { cpuBetween, cpuOf } from '../../test/bench/compare/process-tree.ts';
import { type GatewayProcess, startGatewayProcess } from '../../test/support/gateway-process.ts';
import { type RedisServer, startRedis, startRedisCluster } from '../../test/support/redis.ts';
import { authors } from '../../test/support/simulator.ts';

/**
 * Measures what gateways ask of Redis: calls, bytes and CPU time, for 1, 2 and 4 gateway processes with two limits, on
 * one Redis and on a Cluster of three, at two rates; then the cost of settling a limit, by the number of processes.
 *
 *     node lab/bench/scale.ts [seconds for each row]
 */
const seconds = Number(process.argv[2] ?? 20);
/** Requests per second of all gateways together. */
const RATES = [100, 400];
const PROCESSES = [1, 2, 4];
/** Longer than a nonce lives, so that its lifetime is known. */
const LEAD_MS = 12_000;
const TICK_MS = 10;
/** Far more than is sent, so that no request is refused. */
const LIMITS = { rate: '100000/s', concurrent: 10_000 };
const UPSTREAMS: Readonly<Record<string, BehaviourChange>> = {
  'no qop': { nonceLifetimeMs: 10_000 },
  qop: { qop: 'auth', nonceLifetimeMs: 10_000 },
};
const MEMBERS = [1, 2, 4, 10, 50, 200];
const SETTLEMENTS = 2_000;

interface Store {
  readonly name: string;
  readonly nodes: readonly RedisServer[];
  /** The section of the configuration. */
  readonly section: Readonly<Record<string, unknown>>;
  readonly servers: RedisServers;
  close(): Promise<void>;
}

/** Sums over all nodes since their start. */
interface StoreTotals {
  readonly calls: number;
  readonly bytes: number;
  readonly cpuMs: number;
}

console.log(
  await withStores(async (store) => {
    const rows: string[][] = [];
    for (const [upstream, behaviour] of Object.entries(UPSTREAMS)) {
      for (const processes of PROCESSES) {
        for (const rate of RATES) {
          rows.push([
            store.name,
            upstream,
            `${processes}`,
            `${rate}`,
            ...(await row(store, behaviour, processes, rate)),
          ]);
        }
      }
    }
    return rows;
  }).then((rows) =>
    formatted([
      [
        'Redis',
        'upstream',
        'processes',
        'requests/s',
        'challenges',
        'failed',
        'calls/s',
        'calls a request',
        'bytes a request',
        'Redis CPU ms/s',
        'gateway CPU us a request',
      ],
      ...rows.flat(),
    ]),
  ),
);
console.log(await settlements());

async function withStores<T>(use: (store: Store) => Promise<T>): Promise<T[]> {
  const results: T[] = [];
  for (const open of [openSingle, openCluster]) {
    const store = await open();
    try {
      results.push(await use(store));
    } finally {
      await store.close();
    }
  }
  return results;
}

async function openSingle(): Promise<Store> {
  const redis = await startRedis();
  return {
    name: 'one',
    nodes: [redis],
    section: { url: redis.url },
    servers: { kind: 'single', address: { host: '127.0.0.1', port: redis.port }, database: 0 },
    close: () => redis.close(),
  };
}

async function openCluster(): Promise<Store> {
  const cluster = await startRedisCluster(3);
  return {
    name: 'Cluster of 3',
    nodes: cluster.nodes,
    section: { cluster: cluster.nodes.map(({ port }) => `127.0.0.1:${port}`) },
    servers: cluster.servers,
    close: () => cluster.close(),
  };
}

async function row(
  store: Store,
  behaviour: BehaviourChange,
  processes: number,
  rate: number,
): Promise<string[]> {
  const { deployments } = defaultSettings();
  const submissions = { ...deployments.submissions, ...behaviour };
  const simulator = await startSimulator({ deployments: { ...deployments, submissions } });
  const upstream = {
    submissions: {
      origin: simulator.deployments.submissions.origin,
      ca: simulator.ca,
      settings: { limits: LIMITS },
    },
  };
  const clients = [
    {
      id: 'load',
      identify: { addresses: ['127.0.0.1'] },
      allow: [{ deployment: 'submissions' }],
      limits: LIMITS,
    },
  ];
  const gateways: GatewayProcess[] = [];
  try {
    for (let index = 0; index < processes; index += 1) {
      gateways.push(await startGatewayProcess(upstream, { redis: store.section, clients }));
    }
    await load(gateways, rate, LEAD_MS);
    const before = { store: await totalsOf(store), cpu: gateways.map(({ pid }) => cpuOf(pid)) };
    const challenged = simulator.counts('submissions').challenges;
    const { sent, failed } = await load(gateways, rate, seconds * 1000);
    const after = await totalsOf(store);
    const gatewayNs = gateways.reduce(
      (sum, { pid }, index) => sum + cpuBetween(before.cpu[index] ?? new Map(), cpuOf(pid)),
      0,
    );
    const calls = after.calls - before.store.calls;
    return [
      `${simulator.counts('submissions').challenges - challenged}`,
      `${failed}`,
      (calls / seconds).toFixed(0),
      (calls / sent).toFixed(2),
      ((after.bytes - before.store.bytes) / sent).toFixed(0),
      ((after.cpuMs - before.store.cpuMs) / seconds).toFixed(1),
      (gatewayNs / 1e3 / sent).toFixed(0),
    ];
  } finally {
    await Promise.all(gateways.map((gateway) => gateway.close()));
    await simulator.close();
  }
}

/** Sends requests at this rate, to the gateways in turn. */
async function load(
  gateways: readonly GatewayProcess[],
  rate: number,
  milliseconds: number,
): Promise<{ sent: number; failed: number }> {
  const pools = gateways.map(({ origin }) => new Pool(origin, { connections: 32 }));
  let failed = 0;
  const send = async (pool: Pool): Promise<void> => {
    const { statusCode, body } = await pool.request({ path: authors, method: 'GET' });
    await body.dump();
    if (statusCode !== 200) failed += 1;
  };
  const requests: Promise<void>[] = [];
  const begun = performance.now();
  while (performance.now() - begun < milliseconds) {
    const due = ((performance.now() - begun) / 1000) * rate;
    while (requests.length < due) requests.push(send(pools[requests.length % pools.length] as Pool));
    await delay(TICK_MS);
  }
  await Promise.all(requests);
  await Promise.all(pools.map((pool) => pool.close()));
  return { sent: requests.length, failed };
}

/** A script counts as one call; commands inside it and those of this program do not. */
async function totalsOf({ nodes }: Store): Promise<StoreTotals> {
  const each = await Promise.all(
    nodes.map(async (node) => {
      const [stats, commands, cpu] = await Promise.all(
        ['stats', 'commandstats', 'cpu'].map(async (section) => String(await node.command('INFO', section))),
      );
      const field = (text = '', name: string): number =>
        Number(new RegExp(`^${name}:([\\d.]+)`, 'm').exec(text)?.[1] ?? 0);
      const called = [
        ...(commands ?? '').matchAll(/^cmdstat_(evalsha|publish|ping|subscribe):calls=(\d+)/gm),
      ];
      return {
        calls: called.reduce((sum, [, , count]) => sum + Number(count), 0),
        bytes: field(stats, 'total_net_input_bytes') + field(stats, 'total_net_output_bytes'),
        cpuMs: 1000 * (field(cpu, 'used_cpu_user') + field(cpu, 'used_cpu_sys')),
      };
    }),
  );
  const sum = (of: (totals: StoreTotals) => number): number => each.reduce((all, one) => all + of(one), 0);
  return {
    calls: sum(({ calls }) => calls),
    bytes: sum(({ bytes }) => bytes),
    cpuMs: sum(({ cpuMs }) => cpuMs),
  };
}

/** The time that Redis takes for one settlement of a limit that so many processes use. */
async function settlements(): Promise<string> {
  const rows: string[][] = [];
  for (const members of MEMBERS) {
    const store = await openSingle();
    const options: RedisOptions = {
      servers: store.servers,
      keyPrefix: 'scale',
      timeoutMs: 10_000,
      username: undefined,
      password: undefined,
      sentinelUsername: undefined,
      sentinelPassword: undefined,
      tls: undefined,
    };
    const processes = Array.from({ length: members }, () => new RedisLimitStore(options, () => undefined));
    for (let count = 0; count < SETTLEMENTS; count += 1) {
      const total = Math.floor(count / members);
      await processes[count % members]?.settle('client:load', {
        ...{
          total,
          settled: Math.max(0, total - 1),
          forgiven: 0,
          wanted: 1,
          inFlight: 1,
          lifetimeMs: 60_000,
        },
        ...{ perSecond: 1000, burst: 1000, tokens: 1000, used: 0, day: Math.floor(Date.now() / 86_400_000) },
        ofDay: total,
      });
    }
    const [redis] = store.nodes;
    const text = String(await redis?.command('INFO', 'commandstats'));
    const [, usec = ''] = /^cmdstat_evalsha:.*usec_per_call=([\d.]+)/m.exec(text) ?? [];
    rows.push([`${members}`, usec, (1e6 / Number(usec)).toFixed(0)]);
    await Promise.all(processes.map((each) => each.close()));
    await store.close();
  }
  return formatted([['processes of a limit', 'us a settlement', 'settlements/s of one core'], ...rows]);
}

function formatted(rows: readonly (readonly string[])[]): string {
  return table(
    rows.map((each) => [...each]),
    {
      border: getBorderCharacters('void'),
      drawHorizontalLine: () => false,
      columnDefault: { alignment: 'right', paddingLeft: 0, paddingRight: 2 },
    },
  ).replace(/ +$/gm, '');
}
