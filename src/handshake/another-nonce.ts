import { setTimeout as sleep } from 'node:timers/promises';

/** So often another nonce is asked for: for more than a second, whatever the pauses. */
const TIMES = 8;
/**
 * The shortest pause before each time, in milliseconds. It is up to twice as long, so that gateways that were refused
 * at the same time do not ask, and collide, at the same time again.
 */
const PAUSE_MS = 130;

/**
 * Asks until a nonce comes that is not the refused one. Servers that give one nonce to all who ask within a second refuse
 * it to all but the first, so the refusal says nothing of the credential. Returns what was asked for last. `nonceOf`: its
 * nonce; undefined: it has none.
 */
export async function anotherNonce<Asked>(
  refused: string,
  ask: () => Promise<Asked>,
  nonceOf: (asked: Asked) => string | undefined,
): Promise<Asked> {
  for (let left = TIMES; ; left -= 1) {
    await sleep(PAUSE_MS * (1 + Math.random()));
    const asked = await ask();
    if (nonceOf(asked) !== refused || left <= 1) return asked;
  }
}
