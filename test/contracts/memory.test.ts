import { MemoryChallengeStore } from '../../src/challenges/store/memory.ts';
import { MemoryLimitStore } from '../../src/limits/channel.ts';
import { realClocks } from '../support/limited.ts';
import { keepsTheContract } from './challenge-store.ts';
import { keepsTheLimitContract } from './limit-store.ts';

keepsTheContract('memory', async () => {
  const store = new MemoryChallengeStore();
  return { open: async () => store.join(), close: () => store.close() };
});

keepsTheLimitContract('memory', async () => {
  const store = new MemoryLimitStore(realClocks);
  return { open: () => store.join(), close: () => store.close() };
});
