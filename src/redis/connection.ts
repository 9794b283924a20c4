import { once } from 'node:events';
import { createRequire } from 'node:module';
import type { Cluster, Redis, RedisOptions as RedisClientOptions } from 'ioredis';
import { reportDefect } from '../base/expected-errors.ts';
import type { Secret } from '../base/secret.ts';
import { boundReplies } from './replies.ts';

const require = createRequire(import.meta.url);

interface RedisAddress {
  readonly host: string;
  readonly port: number;
}

export type RedisServers =
  | { readonly kind: 'single'; readonly address: RedisAddress; readonly database: number }
  | { readonly kind: 'sentinel'; readonly sentinels: readonly RedisAddress[]; readonly name: string }
  | { readonly kind: 'cluster'; readonly nodes: readonly RedisAddress[] };

export interface RedisOptions {
  readonly servers: RedisServers;
  /** Undefined: the user `default` of Redis. */
  readonly username: string | undefined;
  readonly password: Secret | undefined;
  /** User at the Sentinels, which do not use the two keys above; undefined: their user `default`. */
  readonly sentinelUsername: string | undefined;
  readonly sentinelPassword: Secret | undefined;
  /** Prefix of every key and channel. Contains no brace, because braces mark the hash tag in a Cluster. */
  readonly keyPrefix: string;
  /** Maximum wait for a reply, in milliseconds. */
  readonly timeoutMs: number;
  /** TLS, also to Sentinels; `ca` is PEM, or undefined for the authorities of Node.js. Undefined: no TLS. */
  readonly tls: { readonly ca: string | undefined } | undefined;
}

type ClientOptions = Omit<RedisClientOptions, 'replyMapping'>;

/** The connection or connections for commands. */
export type Commands = Redis | Cluster;

/** Lua scripts by the names of the commands that call them. */
export type Scripts = Record<string, { lua: string; numberOfKeys?: number; readOnly?: boolean }>;

/** Time limit for connecting, and for silence on a connection with pending commands, in milliseconds. */
const SILENCE_MS = 1_000;
/** Maximum pause between two attempts to connect, in milliseconds. */
const RETRY_MS = 500;
/** Maximum wait for the end of a connection, in milliseconds. */
const END_MS = 500;
/** Minimum time between two attempts to find another server where one refuses writes, in milliseconds. */
const READONLY_MS = 1_000;
/** Interval between checks of a Redis that is still loading its data, in milliseconds. */
const LOADING_MS = 200;

/** Slots of a Cluster, and the most nodes that Redis recommends. */
const SLOTS = 16_384;
const MAX_NODES = 1_000;
/** Maximum number of nodes that a command is sent on to, one after another: a node can name any address. */
const MAX_REDIRECTIONS = 3;

let loaded: typeof import('ioredis') | undefined;

/** Loads ioredis with the first connection: without Redis, its 10 MiB of memory are not needed. */
function library(): typeof import('ioredis') {
  if (loaded === undefined) boundReplies(require);
  loaded ??= require('ioredis') as typeof import('ioredis');
  return loaded;
}

/**
 * Checks a reply to CLUSTER SLOTS: ioredis keeps each slot that it names, and an object for each node. A few bytes could
 * name more slots than there is memory. Other replies pass.
 * @throws Error if no Cluster has such slots or nodes
 */
function checkSlots(reply: unknown): unknown {
  if (!Array.isArray(reply)) return reply;
  const nodes = new Set<string>();
  let slots = 0;
  for (const [first, last, ...servers] of reply) {
    if (!Number.isInteger(first) || !Number.isInteger(last) || first < 0 || last < first) throw badSlots();
    slots += last - first + 1;
    for (const [host, port] of servers) nodes.add(`${host}:${port}`);
    if (last >= SLOTS || slots > SLOTS || nodes.size > MAX_NODES) throw badSlots();
  }
  return reply;
}

function badSlots(): Error {
  return new Error('the reply to CLUSTER SLOTS names slots or nodes that no Cluster has');
}

/**
 * Opens connections for commands. They reconnect without limit; commands are not queued while disconnected.
 */
export function connectCommands(options: RedisOptions, scripts: Scripts): Commands {
  const { Redis, Cluster, Command } = library();
  const { servers } = options;
  const client = clientOptions(options);
  if (servers.kind === 'cluster') {
    Command.setReplyTransformer('cluster', checkSlots);
    const cluster = new Cluster([...servers.nodes], {
      redisOptions: client,
      enableOfflineQueue: false,
      clusterRetryStrategy: pause,
      slotsRefreshTimeout: SILENCE_MS,
      maxRedirections: MAX_REDIRECTIONS,
      scripts,
    });
    return cluster.on('+node', (node: Redis) => {
      // Nodes of redirections stay until a reply to CLUSTER SLOTS, which may never come.
      if (cluster.nodes().length > MAX_NODES) {
        cluster.emit(
          'node error',
          new Error('the nodes of the Cluster name more nodes than any Cluster has'),
        );
        cluster.disconnect(true);
      }
      guarded(node);
      // Each is asked for the slots on a connection of its own.
      const duplicate = node.duplicate.bind(node);
      node.duplicate = (override) => guarded(duplicate(override));
    });
  }
  const retries = { retryStrategy: pause, sentinelRetryStrategy: pause };
  return guarded(new Redis({ ...client, ...serverOptions(options, servers), ...retries, scripts }));
}

/**
 * Opens one connection for messages. It does not reconnect. In a Cluster every node receives all messages.
 */
export function connectMessages(options: RedisOptions, commands: Commands): Redis {
  const { Redis } = library();
  const { servers } = options;
  const isCluster = servers.kind === 'cluster';
  const server = isCluster ? anyNode(commands, servers.nodes) : serverOptions(options, servers);
  const retries = { retryStrategy: null, sentinelRetryStrategy: () => null };
  return guarded(new Redis({ ...clientOptions(options), ...server, ...retries }));
}

/** Listens for the errors of each socket of a connection. */
function guarded(connection: Redis): Redis {
  return connection.on('error', () => {
    // ioredis listens for the first error only; TLS can have two (the check of the certificate, then the server's
    // alert), and an error without a listener is uncaught.
    const { stream } = connection;
    if (stream?.listenerCount('error') === 0) stream.on('error', () => undefined);
  });
}

function clientOptions({ username, password, tls }: RedisOptions): ClientOptions {
  return {
    username,
    password: password?.reveal(),
    tls: tls && { ca: tls.ca },
    connectionName: 'digest-gateway',
    disableClientInfo: true,
    protocol: 2,
    enableOfflineQueue: false,
    autoResendUnfulfilledCommands: false,
    autoResubscribe: false,
    maxRetriesPerRequest: 0,
    connectTimeout: SILENCE_MS,
    socketTimeout: SILENCE_MS,
    // A hanging Redis does not reply to QUIT.
    disconnectTimeout: 100,
    maxLoadingRetryTime: LOADING_MS,
  };
}

/** Where one server is, or the master that Sentinels name. */
function serverOptions(
  { tls, sentinelUsername, sentinelPassword }: RedisOptions,
  servers: Exclude<RedisServers, { kind: 'cluster' }>,
): ClientOptions {
  const reconnectOnError = reconnectOnReadOnly();
  if (servers.kind === 'single') return { ...servers.address, db: servers.database, reconnectOnError };
  return {
    sentinels: [...servers.sentinels],
    name: servers.name,
    ...(sentinelUsername !== undefined && { sentinelUsername }),
    ...(sentinelPassword && { sentinelPassword: sentinelPassword.reveal() }),
    sentinelCommandTimeout: SILENCE_MS,
    ...(tls && { enableTLSForSentinelMode: true, sentinelTLS: { ca: tls.ca } }),
    reconnectOnError,
  };
}

/** Returns whether the error is that of a replica, which a script of Redis 6.2 has in the middle of its own. */
export function isReadOnly({ message }: Error): boolean {
  return message.includes('READONLY');
}

/** A master that became a replica keeps its connections and refuses writes; its name may lead to the new master. */
function reconnectOnReadOnly(): (error: Error) => boolean {
  let next = 0;
  return (error) => {
    const now = performance.now();
    if (!isReadOnly(error) || now < next) return false;
    next = now + READONLY_MS;
    return true;
  };
}

function anyNode(commands: Commands, seeds: readonly RedisAddress[]): Partial<RedisAddress> | undefined {
  const known = commands instanceof library().Cluster ? commands.nodes() : [];
  const ready = known.filter(({ status }) => status === 'ready');
  const addresses = ready.map(({ options: { host = '', port = 0 } }) => ({ host, port }));
  const choice = addresses.length > 0 ? addresses : seeds;
  return choice[Math.floor(Math.random() * choice.length)];
}

/** The slot of a key in a Cluster. */
export function slotOf(key: string): number {
  const { Command } = library();
  return new Command('get', [key]).getSlot() ?? 0;
}

function pause(attempt: number): number {
  return Math.min(50 * 2 ** Math.min(attempt, 10), RETRY_MS);
}

/** Closes a connection, or all of a Cluster; resolves when they have ended. */
export async function ended(connection: Redis | Cluster): Promise<void> {
  // Between two attempts there is no connection, so 'end' would not be emitted.
  const open = connection.status !== 'end' && connection.status !== 'reconnecting';
  const end = open ? once(connection, 'end', { signal: AbortSignal.timeout(END_MS) }) : undefined;
  connection.disconnect();
  await end?.catch(reportDefect);
}
