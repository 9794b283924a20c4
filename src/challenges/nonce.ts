import { type Credential, type PreparedAnswer, prepareAnswer } from '../digest/authorization.ts';
import type { Challenge } from '../digest/challenge.ts';
import type { HeldChallenge } from './store.ts';

/** RFC 7616 §3.4: nc is eight hex digits. */
const LAST_COUNT = 0xffffffff;

/** One challenge in use by this process: what answers it, and the count of answers. */
export class Nonce implements HeldChallenge {
  readonly challenge: Challenge;
  readonly cookies: readonly string[];
  readonly answer: PreparedAnswer;
  /** One for the life of the nonce: with -sess it is part of A1 (RFC 7616 §3.4.2). */
  readonly cnonce: string;
  #count = 0;

  constructor(held: HeldChallenge, credential: Credential, cnonce: string) {
    this.challenge = held.challenge;
    this.cookies = held.cookies;
    this.cnonce = cnonce;
    this.answer = prepareAnswer(held.challenge, credential, cnonce);
  }

  /** Without qop there is no count, so nothing is lost when several processes use the nonce. */
  get shareable(): boolean {
    return this.answer.qop === undefined;
  }

  get exhausted(): boolean {
    return this.#count >= LAST_COUNT;
  }

  /** The next nc, never given twice. */
  count(): number {
    this.#count += 1;
    return this.#count;
  }
}
