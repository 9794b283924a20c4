import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { Redis } from 'ioredis';
import type { RedisServers } from '../../src/redis/connection.ts';
import type { KeyPair } from '../../src/simulator/certificates.ts';
import { freePort, type Place, type ServerProcess, startServer } from './server-process.ts';
import { needPackages } from './system-packages.ts';
import { until } from './until.ts';

export interface RedisSetup {
  /** Lines of redis.conf, beside those that make it small and private. */
  readonly settings?: readonly string[] | ((port: number) => readonly string[]);
  /** With TLS only. */
  readonly certificate?: KeyPair;
  /** The authority, PEM, that signed the certificates of the servers it speaks with. */
  readonly ca?: string;
  /** Files in the server's folder when it starts, by name. */
  readonly files?: Readonly<Record<string, Buffer>>;
  readonly port?: number;
  readonly sentinel?: boolean;
}

/** A redis-server of the system on a free port. */
export interface RedisServer {
  readonly port: number;
  readonly url: string;
  /** Sends a command over a connection of its own. */
  command(name: string, ...args: (string | number)[]): Promise<unknown>;
  /** Stops the process where it stands (SIGSTOP), with its connections open. */
  hang(): Promise<void>;
  /** Lets it go on (SIGCONT). */
  goOn(): Promise<void>;
  /** Ends the process without a chance to say goodbye (SIGKILL). */
  kill(): Promise<void>;
  /** Starts it again, empty, on the same port, with more settings or files if given. */
  restart(more?: Pick<RedisSetup, 'settings' | 'files'>): Promise<void>;
  /** Reads a file that it has written to its folder. */
  read(name: string): Promise<Buffer>;
  close(): Promise<void>;
}

/** Starts a Redis that keeps nothing on disk; resolves when it listens. */
export async function startRedis(setup: RedisSetup = {}): Promise<RedisServer> {
  needPackages('redis-server');
  let server = await launch(setup, setup.port);
  const { port } = server.place;
  const signal = async (name: NodeJS.Signals): Promise<void> => {
    process.kill(Number(await pidIn(server.place)), name);
  };
  return {
    port,
    url: `redis://127.0.0.1:${port}`,
    async command(name, ...args) {
      const client = new Redis({
        host: '127.0.0.1',
        port,
        retryStrategy: null,
        enableReadyCheck: false,
        ...(setup.certificate && { tls: { rejectUnauthorized: false } }),
      });
      // The command itself is rejected with the same.
      client.on('error', () => undefined);
      try {
        return await client.call(name, args);
      } finally {
        client.disconnect();
      }
    },
    hang: () => signal('SIGSTOP'),
    goOn: () => signal('SIGCONT'),
    async kill() {
      await signal('SIGKILL');
      await server.stop();
    },
    async restart(more = {}) {
      await server.close();
      server = await launch(
        { ...setup, ...more, settings: [...linesOf(setup, port), ...linesOf(more, port)] },
        port,
      );
    },
    read: (name) => readFile(join(server.place.folder, name)),
    close: () => server.close(),
  };
}

function launch(setup: RedisSetup, port?: number): Promise<ServerProcess> {
  return startServer(
    {
      async prepare(place) {
        const { folder } = place;
        for (const [name, content] of Object.entries(setup.files ?? {})) {
          await writeFile(join(folder, name), content);
        }
        if (setup.certificate) {
          await writeFile(join(folder, 'cert.pem'), setup.certificate.cert);
          await writeFile(join(folder, 'key.pem'), setup.certificate.key);
          await writeFile(join(folder, 'ca.pem'), setup.ca ?? setup.certificate.cert);
        }
        const file = join(folder, 'redis.conf');
        await writeFile(file, configuration(setup, place));
        return ['redis-server', file, ...(setup.sentinel ? ['--sentinel'] : [])];
      },
      // It is written once the port is taken.
      answers: async (place) => (await pidIn(place)) !== '',
    },
    port,
  );
}

function configuration(setup: RedisSetup, { folder, port }: Place): string {
  const { certificate, sentinel } = setup;
  return [
    'bind 127.0.0.1',
    `dir ${folder}`,
    `pidfile ${folder}/pid`,
    ...(sentinel ? [] : ['save ""', 'enable-debug-command yes', 'repl-diskless-sync-delay 0']),
    ...(certificate
      ? [
          'port 0',
          `tls-port ${port}`,
          `tls-cert-file ${folder}/cert.pem`,
          `tls-key-file ${folder}/key.pem`,
          `tls-ca-cert-file ${folder}/ca.pem`,
          'tls-auth-clients no',
          'tls-replication yes',
        ]
      : [`port ${port}`]),
    ...linesOf(setup, port),
    '',
  ].join('\n');
}

function linesOf({ settings = [] }: Pick<RedisSetup, 'settings'>, port: number): readonly string[] {
  return typeof settings === 'function' ? settings(port) : settings;
}

async function pidIn({ folder }: Place): Promise<string> {
  const text = await readFile(join(folder, 'pid'), 'utf8').catch(() => '');
  return text.trim();
}

export interface RedisSentinel {
  readonly servers: Extract<RedisServers, { kind: 'sentinel' }>;
  readonly master: RedisServer;
  readonly replica: RedisServer;
  /** The process that watches both. */
  readonly sentinel: RedisServer;
  /** Allows the Sentinel to make the replica the master; resolves when it has. */
  promoted(): Promise<void>;
  close(): Promise<void>;
}

export interface RedisSentinelSetup {
  /** With TLS only: between all of them, too. */
  readonly tls?: Pick<RedisSetup, 'certificate' | 'ca'>;
  /** Lines of sentinel.conf, beside those that watch the master. */
  readonly settings?: readonly string[];
  /** True: nothing takes the place of a failed master until `promoted` is called. */
  readonly waits?: boolean;
}

/** `replica-priority` of a replica that no Sentinel makes the master. */
const NEVER = 0;

/** A master, its replica, and a Sentinel that is quick to put the one in the place of the other. */
export async function startRedisSentinel({
  tls = {},
  settings = [],
  waits = false,
}: RedisSentinelSetup = {}): Promise<RedisSentinel> {
  const master = await startRedis(tls);
  const replica = await startRedis({
    ...tls,
    settings: [`replicaof 127.0.0.1 ${master.port}`, `replica-priority ${waits ? NEVER : 1}`],
  });
  const replication = async (): Promise<string> =>
    String(await replica.command('INFO', 'replication').catch(() => ''));
  await until(async () => (await replication()).includes('link_status:up'));
  const sentinel = await startRedis({
    ...tls,
    sentinel: true,
    settings: [
      `sentinel monitor mymaster 127.0.0.1 ${master.port} 1`,
      'sentinel down-after-milliseconds mymaster 200',
      'sentinel failover-timeout mymaster 1000',
      ...settings,
    ],
  });
  // Before it has seen the replica it could not promote it.
  await until(async () => (await sentinel.read('redis.conf')).includes('known-replica'));
  return {
    servers: {
      kind: 'sentinel',
      sentinels: [{ host: '127.0.0.1', port: sentinel.port }],
      name: 'mymaster',
    },
    master,
    replica,
    sentinel,
    async promoted() {
      await replica.command('CONFIG', 'SET', 'replica-priority', 1);
      await until(async () => (await replication()).includes('role:master'));
    },
    async close() {
      await Promise.all([master, replica, sentinel].map((server) => server.close()));
    },
  };
}

const SLOTS = 16_384;

export interface RedisCluster {
  /** The masters of the beginning, then their replicas in the same order. */
  readonly nodes: readonly RedisServer[];
  readonly servers: RedisServers;
  close(): Promise<void>;
}

export interface RedisClusterSetup extends Pick<RedisSetup, 'certificate' | 'ca'> {
  /** True: each master has a replica, which takes its place. */
  readonly replicas?: boolean;
}

/** A Cluster of masters that share the slots evenly and serve theirs even if others are lost; each with this setup. */
export async function startRedisCluster(
  size: number,
  { replicas = false, ...setup }: RedisClusterSetup = {},
): Promise<RedisCluster> {
  const started = await Promise.all(
    Array.from({ length: replicas ? 2 * size : size }, async () => {
      const bus = await freePort();
      const settings = (port: number): string[] => [
        'cluster-enabled yes',
        'cluster-config-file nodes.conf',
        // By default it is the port and 10000, and that may be too high, or somebody else's.
        `cluster-port ${bus}`,
        // With TLS the bus stays without, for it would want certificates of clients; without this it knows no port.
        `cluster-announce-port ${port}`,
        'cluster-node-timeout 1000',
        'cluster-require-full-coverage no',
        // On a busy machine a replica may lose some elections; its data must not become too old for the next one.
        'cluster-replica-validity-factor 0',
      ];
      return { node: await startRedis({ ...setup, settings }), bus };
    }),
  );
  const [first] = started;
  for (const [at, { node, bus }] of started.entries()) {
    const end = Math.floor((SLOTS * (at + 1)) / size) - 1;
    await node.command('CLUSTER', 'SET-CONFIG-EPOCH', at + 1);
    if (at < size) await node.command('CLUSTER', 'ADDSLOTSRANGE', Math.floor((SLOTS * at) / size), end);
    await first?.node.command('CLUSTER', 'MEET', '127.0.0.1', node.port, bus);
  }
  const nodes = started.map(({ node }) => node);
  for (const node of nodes) await servesAll(node);
  for (const [at, replica] of nodes.slice(size).entries()) {
    await replica.command('CLUSTER', 'REPLICATE', String(await nodes[at]?.command('CLUSTER', 'MYID')));
  }
  return {
    nodes,
    servers: { kind: 'cluster', nodes: nodes.map(({ port }) => ({ host: '127.0.0.1', port })) },
    async close() {
      await Promise.all(nodes.map((node) => node.close()));
    },
  };
}

/** Resolves when the node serves its slots and knows of one for each other slot that does. */
export async function servesAll(node: RedisServer): Promise<void> {
  await until(async () => {
    const info = String(await node.command('CLUSTER', 'INFO'));
    return info.includes('cluster_state:ok') && info.includes(`cluster_slots_ok:${SLOTS}`);
  });
}

/** Kills a node; resolves to what starts it again as the member that it was, which can be called again. */
export async function loseNode({ nodes }: RedisCluster, node: RedisServer): Promise<() => Promise<void>> {
  const membership = await node.read('nodes.conf');
  await node.kill();
  let back: Promise<void> | undefined;
  return () => {
    back ??= (async () => {
      await node.restart({ files: { 'nodes.conf': membership } });
      for (const each of nodes) await servesAll(each);
    })();
    return back;
  };
}

/**
 * Hands a slot and the keys in it over to another node, as it is done while everybody works.
 * @param pauseMs how long it stays under way before its keys move, and how long after that
 */
export async function moveSlot(slot: number, from: RedisServer, to: RedisServer, pauseMs = 0): Promise<void> {
  const [source, target] = [await from.command('CLUSTER', 'MYID'), await to.command('CLUSTER', 'MYID')];
  await to.command('CLUSTER', 'SETSLOT', slot, 'IMPORTING', String(source));
  await from.command('CLUSTER', 'SETSLOT', slot, 'MIGRATING', String(target));
  await delay(pauseMs);
  await until(async () => {
    const keys = await from.command('CLUSTER', 'GETKEYSINSLOT', slot, 100);
    if (!Array.isArray(keys) || keys.length === 0) return true;
    await from.command('MIGRATE', '127.0.0.1', to.port, '', 0, 1_000, 'KEYS', ...keys.map(String));
    return false;
  });
  await delay(pauseMs);
  for (const node of [to, from]) await node.command('CLUSTER', 'SETSLOT', slot, 'NODE', String(target));
}
