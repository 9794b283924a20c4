import { setTimeout as sleep } from 'node:timers/promises';
import { Nonce } from '../challenges/nonce.ts';

/** So often another nonce is asked for, with this pause before each time, in milliseconds: a bit more than a second. */
const TIMES = 8;
const PAUSE_MS = 150;

/**
 * Asks until a nonce comes that is not the refused one. Servers that give one nonce to all who ask within a second refuse
 * it to all but the first, so the refusal says nothing of the credential. Returns what was asked for last: that nonce, the
 * refused one once more, or what stands in the place of a nonce.
 */
export async function anotherNonce<Other>(
  refused: Nonce,
  ask: () => Promise<Nonce | Other>,
): Promise<Nonce | Other> {
  for (let left = TIMES; ; left -= 1) {
    await sleep(PAUSE_MS);
    const asked = await ask();
    const isSame = asked instanceof Nonce && asked.challenge.nonce === refused.challenge.nonce;
    if (!isSame || left <= 1) return asked;
  }
}
