import { hash } from 'node:crypto';
import { once } from 'node:events';
import { Redis } from 'ioredis';

/** Somebody who can write to the Redis of the gateways, and has none of their keys. */
export interface Intruder {
  readonly client: Redis;
  /** The challenge key of the last announcement; waits for the first. */
  key(): Promise<string>;
  /** Where a part of this key is stored. */
  place(key: string, part: 'shared' | 'parked' | 'learned' | 'leader'): string;
  /** Puts a shared challenge of any content in place. */
  putShared(key: string, value: string, nonce: string, lifeMs?: number): Promise<void>;
  /** Announces a change under the key, as a gateway does. */
  announce(key: string): Promise<void>;
  close(): void;
}

/** `prefix`: what keys begin with. */
export async function openIntruder(port: number, prefix = 'test:v2'): Promise<Intruder> {
  const client = new Redis(port, '127.0.0.1');
  const listener = new Redis(port, '127.0.0.1');
  await Promise.all([once(client, 'ready'), once(listener, 'ready')]);
  const first = Promise.withResolvers<void>();
  let heard = '';
  listener.on('message', (_channel, message: string) => {
    heard = message.slice(message.indexOf('['));
    first.resolve();
  });
  await listener.subscribe(`${prefix}:changes`);
  const place: Intruder['place'] = (key, part) => `${prefix}:{${hash('sha256', key)}}:${part}`;
  return {
    client,
    key: async () => {
      await first.promise;
      return heard;
    },
    place,
    async putShared(key, value, nonce, lifeMs = 60_000) {
      const at = place(key, 'shared');
      await client
        .multi()
        .del(at)
        .hset(at, 'nonce', nonce, 'value', value, 'max', lifeMs)
        .pexpire(at, lifeMs)
        .exec();
    },
    async announce(key) {
      await client.publish(`${prefix}:changes`, `00000000-0000-4000-8000-000000000000 ${key}`);
    },
    close() {
      client.disconnect();
      listener.disconnect();
    },
  };
}

/** The text of a shared challenge as a gateway writes it. */
export function sharedText(challenge: string, cookies: readonly string[] = []): string {
  return JSON.stringify({ challenge, cookies });
}
