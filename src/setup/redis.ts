import type { Secret } from '../base/secret.ts';
import type { RedisStoreOptions } from '../challenges/store/redis.ts';
import { type StoreKey, storeKeys } from '../challenges/store/value-signer.ts';
import type { Issue } from '../config/issues.ts';
import type { Config } from '../config/schema.ts';
import { issueOf, type SourceReader } from '../credentials/sources.ts';
import { readAuthorityOf } from './tls-files.ts';

export interface RedisSetup {
  /** Undefined without Redis. */
  readonly options: RedisStoreOptions | undefined;
  readonly issues: readonly Issue[];
}

/**
 * Reads the authorities and passwords of Redis and its Sentinels, and the keys for values. `uid`: the user of this
 * process; without one, owners of files are not checked.
 */
export async function readRedis(
  section: Config['redis'],
  reader: SourceReader,
  uid: number | undefined,
): Promise<RedisSetup> {
  const issues: Issue[] = [];
  if (section === undefined) return { options: undefined, issues };
  const { servers, username, sentinelUsername, keyFile, keyPrefix, timeout, tls } = section;
  const read = async (key: 'password' | 'sentinelPassword'): Promise<Secret | undefined> => {
    const source = section[key];
    if (source === undefined) return undefined;
    const path = ['redis', key];
    try {
      return (await reader.read(source)).secret;
    } catch (error) {
      issues.push(issueOf(path, error));
      return undefined;
    }
  };
  const ca = await readAuthorityOf(tls?.caFile, ['redis', 'tls'], uid, issues);
  const password = await read('password');
  const sentinelPassword = await read('sentinelPassword');
  const keys = keyFile === undefined ? [] : await readKeys(keyFile, reader, issues);
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
  return { options, issues };
}

async function readKeys(file: string, reader: SourceReader, issues: Issue[]): Promise<StoreKey[]> {
  const path = ['redis', 'keyFile'];
  try {
    const { secret } = await reader.read({ file, readableByOthers: 'never' });
    return storeKeys(secret);
  } catch (error) {
    const message =
      error instanceof RangeError ? `${file} ${error.message} > ${file}` : issueOf(path, error).message;
    issues.push({ path, message });
    return [];
  }
}
