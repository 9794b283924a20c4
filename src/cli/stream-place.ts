import { ConfigError } from '../config/faults.ts';
import { loadLocated } from '../config/load.ts';
import { SourceReader } from '../credentials/sources.ts';
import type { RedisOptions } from '../redis/connection.ts';
import { readAuthorities } from '../setup/authorities.ts';
import { readRedis } from '../setup/redis.ts';
import { surroundings } from './surroundings.ts';

/** Reads where the stream of a configuration's audit log is, and what opens it. */
export async function streamRedisOf(file: string): Promise<RedisOptions> {
  const { config, faultAt } = await loadLocated(file);
  if (config.audit?.stream?.redis !== true) {
    const message = 'is missing: there is no stream to follow; give { redis: true }';
    throw new ConfigError([faultAt({ path: ['audit', 'stream'], message })]);
  }
  const offered = surroundings();
  const authorities = await readAuthorities(config, offered.uid);
  const reader = new SourceReader(offered, config.sealed);
  const { options, findings } = await readRedis(config.redis, authorities.redis, reader);
  const inRedis = authorities.findings.filter(({ path }) => path[0] === 'redis');
  if (options === undefined || findings.length > 0 || inRedis.length > 0) {
    throw new ConfigError([...inRedis, ...findings].map(faultAt));
  }
  return options;
}
