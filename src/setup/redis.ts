import type { RedisStoreOptions } from '../challenges/store/redis.ts';
import { type StoreKey, storeKeys } from '../challenges/store/value-signer.ts';
import type { Config } from '../config/schema.ts';
import type { SourceReader } from '../credentials/sources.ts';
import type { ContentReading } from './content.ts';

/**
 * Reads the authorities and passwords of Redis and its Sentinels, and the keys for values; undefined without Redis.
 */
export async function readRedis(
  section: Config['redis'],
  reading: ContentReading,
): Promise<RedisStoreOptions | undefined> {
  if (section === undefined) return undefined;
  const { servers, username, sentinelUsername, keyFile, keyPrefix, timeout, tls } = section;
  const ca = await reading.authority(tls?.caFile, ['redis', 'tls']);
  const password = await reading.secret(section.password, ['redis', 'password']);
  const sentinelPassword = await reading.secret(section.sentinelPassword, ['redis', 'sentinelPassword']);
  const keys = keyFile && (await reading.value(['redis', 'keyFile'], (reader) => readKeys(keyFile, reader)));
  return {
    servers,
    username,
    password,
    sentinelUsername,
    sentinelPassword,
    keyPrefix,
    timeoutMs: timeout,
    keys: keys || [],
    tls: tls && { ca },
  };
}

/** @throws Error with the reason */
async function readKeys(file: string, reader: SourceReader): Promise<StoreKey[]> {
  const { secret } = await reader.read({ file, readableByOthers: 'never' });
  try {
    return storeKeys(secret);
  } catch (error) {
    throw error instanceof RangeError ? new Error(`${file} ${error.message} > ${file}`) : error;
  }
}
