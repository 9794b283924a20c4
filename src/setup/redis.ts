import type { Secret } from '../base/secret.ts';
import type { RedisStoreOptions } from '../challenges/store/redis.ts';
import { type StoreKey, storeKeys } from '../challenges/store/value-signer.ts';
import type { Finding } from '../config/faults.ts';
import type { Config } from '../config/schema.ts';
import { findingOf, type SourceReader } from '../credentials/sources.ts';

export interface RedisSetup {
  /** Undefined without Redis. */
  readonly options: RedisStoreOptions | undefined;
  readonly findings: readonly Finding[];
  /** Issues that do not prevent the use of Redis. */
  readonly warnings: readonly Finding[];
}

/**
 * Reads the passwords of Redis and its Sentinels, and the keys for values; `ca` is the content of its
 * `tls.caFile`.
 */
export async function readRedis(
  section: Config['redis'],
  ca: string | undefined,
  reader: SourceReader,
): Promise<RedisSetup> {
  const findings: Finding[] = [];
  const warnings: Finding[] = [];
  if (section === undefined) return { options: undefined, findings, warnings };
  const { servers, username, sentinelUsername, keyFile, keyPrefix, timeout, tls } = section;
  const read = async (key: 'password' | 'sentinelPassword'): Promise<Secret | undefined> => {
    const source = section[key];
    if (source === undefined) return undefined;
    const path = ['redis', key];
    if ('value' in source) {
      warnings.push({ path, message: 'is written in the configuration itself: use env, file or sealed' });
    }
    try {
      return (await reader.read(source)).secret;
    } catch (error) {
      findings.push(findingOf(path, error));
      return undefined;
    }
  };
  const password = await read('password');
  const sentinelPassword = await read('sentinelPassword');
  const keys = keyFile === undefined ? [] : await readKeys(keyFile, reader, findings);
  const options = {
    servers,
    username,
    password,
    sentinelUsername,
    sentinelPassword,
    keyPrefix,
    timeoutMs: timeout,
    keys,
    tls: tls && { ca },
  };
  return { options, findings, warnings };
}

async function readKeys(file: string, reader: SourceReader, findings: Finding[]): Promise<StoreKey[]> {
  const path = ['redis', 'keyFile'];
  try {
    const { secret } = await reader.read({ file });
    return storeKeys(secret);
  } catch (error) {
    const message =
      error instanceof RangeError ? `${file} ${error.message} > ${file}` : findingOf(path, error).message;
    findings.push({ path, message });
    return [];
  }
}
