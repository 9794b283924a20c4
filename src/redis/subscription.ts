import type { Redis } from 'ioredis';
import { ended } from './connection.ts';

/** Milliseconds between two attempts to subscribe. */
const RETRY_MS = 200;

export interface SubscriptionOptions {
  /** Opens a connection that does not come back by itself. */
  readonly connect: () => Redis;
  readonly channels: readonly string[];
  readonly onMessage: (channel: string, message: string) => void;
  /** The subscription stands: from here on messages arrive, those since the last one ended are lost. */
  readonly onSubscribed: () => void;
  readonly onError: (error: Error) => void;
}

/** A subscription that is renewed, on a new connection, whenever it ends. */
export class RedisSubscription {
  readonly #options: SubscriptionOptions;
  #connection: Redis;
  #retry: NodeJS.Timeout | undefined;
  #closed = false;
  subscribed = false;

  constructor(options: SubscriptionOptions) {
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
