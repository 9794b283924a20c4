import { setTimeout as delay } from 'node:timers/promises';
import type { RunningGateway } from './gateway.ts';

export interface HealthSeen {
  readonly polls: number;
  /** Content of `/readyz` each time that it was not 200. */
  readonly unready: readonly string[];
}

/** Asks for `/readyz` as a balancer with quick checks does, until it is stopped. */
export function watchHealth({ control }: Pick<RunningGateway, 'control'>, everyMs = 20) {
  const unready: string[] = [];
  let polls = 0;
  let going = true;
  const polling = (async () => {
    while (going) {
      const answer = await fetch(`${control}/readyz`);
      const text = await answer.text();
      polls += 1;
      if (answer.status !== 200) unready.push(text);
      await delay(everyMs);
    }
  })();
  return {
    async stop(): Promise<HealthSeen> {
      going = false;
      await polling;
      return { polls, unready };
    },
  };
}
