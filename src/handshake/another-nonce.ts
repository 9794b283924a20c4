import { setTimeout as sleep } from 'node:timers/promises';
import { Nonce } from '../challenges/nonce.ts';

/** So often another nonce is asked for: for more than a second, whatever the pauses. */
const TIMES = 8;
/**
 * The shortest pause before each time, in milliseconds. It is up to twice as long, so that gateways that were refused
 * at the same time do not ask, and collide, at the same time again.
 */
const PAUSE_MS = 130;

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
    await sleep(PAUSE_MS * (1 + Math.random()));
    const asked = await ask();
    const isSame = asked instanceof Nonce && asked.challenge.nonce === refused.challenge.nonce;
    if (!isSame || left <= 1) return asked;
  }
}
