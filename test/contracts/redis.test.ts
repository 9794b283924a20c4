import { RedisLimitStore } from '../../src/limits/redis.ts';
import { startRedis } from '../support/redis.ts';
import { openWatched, redisOptions, single } from '../support/redis-store.ts';
import { keepsTheContract } from './challenge-store.ts';
import { keepsTheLimitContract } from './limit-store.ts';

keepsTheContract('Redis', async () => {
  const redis = await startRedis();
  const open = async () => {
    const { store, up } = openWatched(single(redis.port));
    await up();
    return store;
  };
  return { open, close: () => redis.close() };
});

keepsTheLimitContract('Redis', async () => {
  const redis = await startRedis();
  const open = () => new RedisLimitStore(redisOptions(single(redis.port)), () => undefined);
  return { open, close: () => redis.close() };
});
