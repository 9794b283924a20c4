import { once } from 'node:events';
import { Cluster, Redis, type RedisOptions as RedisClientOptions } from 'ioredis';
import type { Secret } from '../base/secret.ts';

export interface RedisAddress {
  readonly host: string;
  readonly port: number;
}

export type RedisServers =
  | { readonly kind: 'single'; readonly address: RedisAddress; readonly database: number }
  | { readonly kind: 'sentinel'; readonly sentinels: readonly RedisAddress[]; readonly name: string }
  | { readonly kind: 'cluster'; readonly nodes: readonly RedisAddress[] };

export interface RedisOptions {
  readonly servers: RedisServers;
  /** undefined: Redis's user `default`. */
  readonly username: string | undefined;
  readonly password: Secret | undefined;
  /** Of the Sentinels, who have nothing of the two above; undefined: their user `default`. */
  readonly sentinelUsername: string | undefined;
  readonly sentinelPassword: Secret | undefined;
  /** Before every key and channel. Holds no brace: those mark what stays on one node of a Cluster. */
  readonly keyPrefix: string;
  /** The longest that anybody waits for a reply, in milliseconds. */
  readonly timeoutMs: number;
  /** With TLS, of Sentinels too; `ca` is PEM, undefined: the authorities that Node.js has. undefined: no TLS. */
  readonly tls: { readonly ca: string | undefined } | undefined;
}

type ClientOptions = Omit<RedisClientOptions, 'replyMapping'>;

/** Where commands go. */
export type Commands = Redis | Cluster;

/** Lua scripts by the names of the commands that call them. */
export type Scripts = Record<string, { lua: string; numberOfKeys?: number; readOnly?: boolean }>;

/** Milliseconds within which a connection stands, or one with unanswered commands says something. */
const SILENCE_MS = 1_000;
/** The longest pause between two attempts to connect, in milliseconds. */
const RETRY_MS = 500;
/** The longest that the end of a connection is waited for, in milliseconds. */
const END_MS = 500;
/** How often a Redis that reads its data is asked whether it is done, in milliseconds. */
const LOADING_MS = 200;

/**
 * Opens connections for commands that come back by themselves, as often as it takes. Nothing is queued while they are
 * away.
 */
export function connectCommands(options: RedisOptions, scripts: Scripts): Commands {
  const { servers } = options;
  const client: ClientOptions = { ...clientOptions(options), retryStrategy: pause, scripts };
  switch (servers.kind) {
    case 'single':
      return bearing(new Redis({ ...client, ...servers.address, db: servers.database }));
    case 'sentinel':
      return bearing(
        new Redis({
          ...client,
          ...sentinelOptions(options, servers),
          sentinelRetryStrategy: pause,
          // A master that was replaced keeps its connections, as a replica.
          reconnectOnError: (error) => error.message.startsWith('READONLY'),
        }),
      );
    case 'cluster':
      return new Cluster([...servers.nodes], {
        redisOptions: clientOptions(options),
        enableOfflineQueue: false,
        clusterRetryStrategy: pause,
        slotsRefreshTimeout: SILENCE_MS,
        scripts,
      }).on('+node', (node: Redis) => bearing(node));
  }
}

/** Opens one connection for messages; when it ends, it ends. In a Cluster every node has all messages. */
export function connectMessages(options: RedisOptions, commands: Commands): Redis {
  const { servers } = options;
  const client: ClientOptions = { ...clientOptions(options), retryStrategy: null };
  switch (servers.kind) {
    case 'single':
      return bearing(new Redis({ ...client, ...servers.address }));
    case 'sentinel':
      return bearing(
        new Redis({
          ...client,
          ...sentinelOptions(options, servers),
          sentinelRetryStrategy: () => null,
        }),
      );
    case 'cluster':
      return bearing(new Redis({ ...client, ...anyNode(commands, servers.nodes) }));
  }
}

/**
 * ioredis listens for the first error of a socket only. TLS can have two (its own verdict on a certificate, then the
 * server's alert), and an error without a listener is uncaught.
 */
function bearing(connection: Redis): Redis {
  return connection.on('error', () => connection.stream?.on('error', () => undefined));
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
    // A Redis that hangs does not answer a farewell.
    disconnectTimeout: 100,
    maxLoadingRetryTime: LOADING_MS,
  };
}

function sentinelOptions(
  { tls, sentinelUsername, sentinelPassword }: RedisOptions,
  { sentinels, name }: Extract<RedisServers, { kind: 'sentinel' }>,
): ClientOptions {
  return {
    sentinels: [...sentinels],
    name,
    ...(sentinelUsername !== undefined && { sentinelUsername }),
    ...(sentinelPassword && { sentinelPassword: sentinelPassword.reveal() }),
    sentinelCommandTimeout: SILENCE_MS,
    ...(tls && { enableTLSForSentinelMode: true, sentinelTLS: { ca: tls.ca } }),
  };
}

function anyNode(commands: Commands, seeds: readonly RedisAddress[]): Partial<RedisAddress> | undefined {
  const known = commands instanceof Cluster ? commands.nodes() : [];
  const ready = known.filter(({ status }) => status === 'ready');
  const addresses = ready.map(({ options: { host = '', port = 0 } }) => ({ host, port }));
  const choice = addresses.length > 0 ? addresses : seeds;
  return choice[Math.floor(Math.random() * choice.length)];
}

function pause(attempt: number): number {
  return Math.min(50 * 2 ** Math.min(attempt, 10), RETRY_MS);
}

/** Closes a connection, or all of a Cluster's; resolves when that is done. */
export async function ended(connection: Redis | Cluster): Promise<void> {
  // Between two attempts there is no connection whose end could be told.
  const open = connection.status !== 'end' && connection.status !== 'reconnecting';
  const end = open ? once(connection, 'end', { signal: AbortSignal.timeout(END_MS) }) : undefined;
  connection.disconnect();
  await end?.catch(() => undefined);
}
