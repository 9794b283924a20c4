import { once } from 'node:events';
import type { Cluster, Redis } from 'ioredis';

/** Milliseconds between two attempts to subscribe. */
const RETRY_MS = 200;
/** The longest that the end of a connection is waited for, in milliseconds. */
const END_MS = 500;

export interface MessagesOptions {
  /** Opens a connection that does not come back by itself. */
  readonly connect: () => Redis;
  readonly channels: readonly string[];
  readonly onMessage: (channel: string, message: string) => void;
  /** The subscription stands: from here on messages arrive, those since the last one ended are lost. */
  readonly onSubscribed: () => void;
  readonly onError: (error: Error) => void;
}

/** A subscription that is renewed, on a new connection, whenever it ends. */
export class RedisMessages {
  readonly #options: MessagesOptions;
  #connection: Redis;
  #retry: NodeJS.Timeout | undefined;
  #closed = false;
  subscribed = false;

  constructor(options: MessagesOptions) {
    this.#options = options;
    this.#connection = this.#connect();
  }

  /** Gives up a connection through which nothing comes. */
  renew(): void {
    this.#connection.disconnect();
  }

  /** Resolves when the connection has ended. */
  async close(): Promise<void> {
    this.#closed = true;
    clearTimeout(this.#retry);
    await ended(this.#connection);
  }

  #connect(): Redis {
    const { connect, channels, onMessage, onSubscribed, onError } = this.#options;
    const connection = connect();
    connection.on('error', onError);
    connection.on('message', onMessage);
    connection.once('ready', async () => {
      try {
        await connection.subscribe(...channels);
        this.subscribed = true;
        onSubscribed();
      } catch (error) {
        onError(error instanceof Error ? error : new Error(String(error)));
        connection.disconnect();
      }
    });
    connection.once('end', () => {
      this.subscribed = false;
      if (this.#closed) return;
      this.#retry = setTimeout(() => {
        this.#connection = this.#connect();
      }, RETRY_MS);
    });
    return connection;
  }
}

/** Closes a connection, or all of a Cluster's; resolves when that is done. */
export async function ended(connection: Redis | Cluster): Promise<void> {
  // Between two attempts there is no connection whose end could be told.
  const open = connection.status !== 'end' && connection.status !== 'reconnecting';
  const end = open ? once(connection, 'end', { signal: AbortSignal.timeout(END_MS) }) : undefined;
  connection.disconnect();
  await end?.catch(() => undefined);
}
