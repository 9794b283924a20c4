import type { Redis } from 'ioredis';
import { ended } from './connection.ts';

/** Pause between two attempts to subscribe, in milliseconds. */
const RETRY_MS = 200;

export interface SubscriptionOptions {
  /** Opens a connection that does not reconnect. */
  readonly connect: () => Redis;
  readonly channels: readonly string[];
  readonly onMessage: (channel: string, message: string) => void;
  /** Called when messages arrive again; those since the end of the last subscription are lost. */
  readonly onSubscribed: () => void;
  readonly onError: (error: Error) => void;
}

/** A subscription that is renewed on a new connection whenever it ends. */
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

  /** Ends a connection on which no message arrives; a new one replaces it. */
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
