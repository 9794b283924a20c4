import { ChannelChallengeStore } from '../../src/challenges/store/channel.ts';
import { PrimaryChallenges } from '../../src/challenges/store/primary.ts';
import { portPair, startPrimary } from '../support/process-ports.ts';
import { keepsTheContract, type StorePlace } from './challenge-store.ts';

const open = (port: ConstructorParameters<typeof ChannelChallengeStore>[0]) =>
  new ChannelChallengeStore(port, () => undefined);

/** Each store has a port of its own to the primary. */
function placeOf(primary: PrimaryChallenges, end: () => Promise<void>): StorePlace {
  const pairs: ReturnType<typeof portPair>[] = [];
  return {
    open: async () => {
      const pair = portPair();
      pairs.push(pair);
      primary.serve(pair.ports[0]);
      return open(pair.ports[1]);
    },
    close: async () => {
      for (const pair of pairs) pair.close();
      await end();
    },
  };
}

keepsTheContract('channel', async () => placeOf(new PrimaryChallenges(), async () => undefined));

keepsTheContract('other process', async () => {
  const primary = await startPrimary();
  return { open: async () => open(primary.port), close: () => primary.close() };
});

keepsTheContract('handed over', async () => {
  const [before, after] = [new PrimaryChallenges(), await startPrimary()];
  await before.handOver(() => open(after.port));
  return placeOf(before, () => after.close());
});
