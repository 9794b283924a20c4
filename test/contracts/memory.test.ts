import { MemoryChallengeStore } from '../../src/challenges/store/memory.ts';
import { keepsTheContract } from './challenge-store.ts';

keepsTheContract('memory', async () => {
  const store = new MemoryChallengeStore();
  return { open: async () => store.join(), close: () => store.close() };
});
