import type { Secret } from '../base/secret.ts';
import type { RedisOptions } from '../challenges/redis-connection.ts';
import type { Finding } from '../config/faults.ts';
import type { Config } from '../config/schema.ts';
import { findingOf, type SourceReader } from '../credentials/sources.ts';

export interface RedisSetup {
  /** undefined: without Redis. */
  readonly options: RedisOptions | undefined;
  readonly findings: readonly Finding[];
  /** What works, and should not stay as it is. */
  readonly warnings: readonly Finding[];
}

/** Reads the passwords of Redis and of its Sentinels; `ca` is what was read of its `tls.caFile`. */
export async function readRedis(
  section: Config['redis'],
  ca: string | undefined,
  reader: SourceReader,
): Promise<RedisSetup> {
  const findings: Finding[] = [];
  const warnings: Finding[] = [];
  if (section === undefined) return { options: undefined, findings, warnings };
  const { servers, username, sentinelUsername, keyPrefix, tls } = section;
  const read = async (key: 'password' | 'sentinelPassword'): Promise<Secret | undefined> => {
    const source = section[key];
    if (source === undefined) return undefined;
    const path = ['redis', key];
    if ('value' in source) {
      warnings.push({ path, message: 'stands in the configuration itself: use env, file or sealed' });
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
  const options = {
    servers,
    username,
    password,
    sentinelUsername,
    sentinelPassword,
    keyPrefix,
    tls: tls && { ca },
  };
  return { options, findings, warnings };
}
