import { ChannelChallengeStore } from '../../../src/challenges/store/channel.ts';
import { ChannelLimitStore } from '../../../src/limits/channel.ts';
import { keepsTheContract } from '../../contracts/challenge-store.ts';
import { keepsTheLimitContract } from '../../contracts/limit-store.ts';
import { startPrimary } from '../../support/process-ports.ts';

keepsTheContract('other process', async () => {
  const primary = await startPrimary();
  return {
    open: async () => new ChannelChallengeStore(primary.port, () => undefined),
    close: () => primary.close(),
  };
});

keepsTheLimitContract('another process', async () => {
  const primary = await startPrimary();
  return { open: () => new ChannelLimitStore(primary.port), close: () => primary.close() };
});
