import type { Closable, ProcessPort, StoreServer } from '../../src/base/message-calls.ts';
import { ChannelChallengeStore, primaryChallenges } from '../../src/challenges/store/channel.ts';
import { ChannelLimitStore, primaryLimits } from '../../src/limits/channel.ts';
import { realClocks } from '../support/limited.ts';
import { portPair } from '../support/process-ports.ts';
import { keepsTheContract } from './challenge-store.ts';
import { keepsTheLimitContract } from './limit-store.ts';

const challengesAt = (port: ProcessPort) => new ChannelChallengeStore(port, () => undefined);
const limitsAt = (port: ProcessPort) => new ChannelLimitStore(port);

/** Stores that have a port each to the primary process. */
function workersOf<Store extends Closable>(primary: StoreServer<Store>) {
  const pairs: ReturnType<typeof portPair>[] = [];
  return {
    port(): ProcessPort {
      const pair = portPair();
      pairs.push(pair);
      primary.serve(pair.ports[0]);
      return pair.ports[1];
    },
    async close() {
      for (const pair of pairs) pair.close();
    },
  };
}

keepsTheContract('channel', async () => {
  const workers = workersOf(primaryChallenges());
  return { open: async () => challengesAt(workers.port()), close: () => workers.close() };
});

keepsTheLimitContract('a channel', async () => {
  const workers = workersOf(primaryLimits(realClocks));
  return { open: () => limitsAt(workers.port()), close: () => workers.close() };
});
