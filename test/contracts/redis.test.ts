import { startRedis } from '../support/redis.ts';
import { openWatched, single } from '../support/redis-store.ts';
import { keepsTheContract } from './challenge-store.ts';

keepsTheContract('Redis', async () => {
  const redis = await startRedis();
  const open = async () => {
    const { store, up } = openWatched(single(redis.port));
    await up();
    return store;
  };
  return { open, close: () => redis.close() };
});
