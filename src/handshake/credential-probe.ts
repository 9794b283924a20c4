import { fieldValues } from '../base/raw-headers.ts';
import { cookiePairs } from '../challenges/cookies.ts';
import { Nonce } from '../challenges/nonce.ts';
import type { PendingChallenge } from '../challenges/pending-challenges.ts';
import type { ChallengeReason } from '../metrics/metrics.ts';
import { anotherNonce } from './another-nonce.ts';
import { SAYS_NOTHING } from './credential-health.ts';
import type { DigestClient, ExchangeCall } from './digest-client.ts';
import { signed, unsigned } from './signing.ts';

/** A server can answer so before it looks at the credential. */
export const METHOD_REFUSED: ReadonlySet<number> = new Set([405, 501]);

/** Result of a probe. */
export type ProbeResult =
  /** The upstream accepted it, or issued a nonce that need not be tried. */
  | { readonly kind: 'accepted' }
  /** The upstream refused an answer to a challenge of its own; with its number, and that of the attempts. */
  | { readonly kind: 'refused'; readonly attempt: number; readonly attempts: number }
  /**
   * Nothing is known: the connection broke, the nonce was stale at once, or the response says nothing. `isUnprotected`:
   * the upstream asked for no authentication.
   */
  | { readonly kind: 'unclear'; readonly isUnprotected: boolean };

export interface ProbeOptions {
  readonly call: ExchangeCall;
  readonly freshConnection: boolean;
  /** The nonce to take the place of; undefined: none. */
  readonly replaces: Nonce | undefined;
  readonly reason: ChallengeReason;
  /** False: a nonce without a count is not tried, since a request that is refused with it asks for another. */
  readonly triesEachNonce: boolean;
}

export const UNCLEAR: ProbeResult = { kind: 'unclear', isUnprotected: false };
const UNPROTECTED: ProbeResult = { kind: 'unclear', isUnprotected: true };
const ACCEPTED: ProbeResult = { kind: 'accepted' };

/**
 * Obtains a challenge for this purpose alone and answers it once. A nonce that is accepted serves client requests
 * from then on. A refusal that names the very nonce that it refuses proves nothing, since some servers give one nonce to
 * all who ask within a second: then the next nonce is answered, too.
 * @throws GatewayError when there is no response, or none with a usable challenge
 */
export async function probeCredential(client: DigestClient, options: ProbeOptions): Promise<ProbeResult> {
  const pending = client.pool.open(options.replaces);
  try {
    const probe = new Probe(client, options, pending);
    const nonce = await probe.ask();
    if (!(nonce instanceof Nonce)) return nonce;
    if (nonce.shareable && !options.triesEachNonce) {
      client.pool.acceptUntried(pending);
      return ACCEPTED;
    }
    const answered = await probe.answer(nonce);
    if (answered !== 'named-again') return answered;
    const next = await anotherNonce(nonce, () => probe.ask());
    const again = next instanceof Nonce ? await probe.answer(next) : next;
    return again === 'named-again' ? probe.refused : again;
  } finally {
    client.pool.close(pending);
  }
}

/** The exchanges of one probe. */
class Probe {
  readonly #client: DigestClient;
  readonly #options: ProbeOptions;
  readonly #pending: PendingChallenge;
  #attempt = 0;
  #attempts = 0;

  constructor(client: DigestClient, options: ProbeOptions, pending: PendingChallenge) {
    this.#client = client;
    this.#options = options;
    this.#pending = pending;
  }

  get refused(): ProbeResult {
    return { kind: 'refused', attempt: this.#attempt, attempts: this.#attempts };
  }

  /** Returns a nonce that the upstream issues now. */
  async ask(): Promise<Nonce | ProbeResult> {
    const client = this.#client;
    const { call, freshConnection, reason } = this.#options;
    const asked = await client.exchange(unsigned(call.request), call, freshConnection);
    if (asked.kind === 'lost') return UNCLEAR;
    if (!client.isChallenged(asked)) {
      await client.skip(asked);
      return UNPROTECTED;
    }
    const challenge = client.choose(asked);
    if (challenge === undefined) return UNCLEAR;
    client.listener.onAttempt('challenged');
    client.obtained(reason, call.request.trace);
    const cookies = cookiePairs(fieldValues(asked.headers, 'set-cookie'));
    return client.pool.offer(this.#pending, { challenge, cookies });
  }

  /** `named-again`: the refusal names this nonce once more. */
  async answer(nonce: Nonce): Promise<ProbeResult | 'named-again'> {
    const { pool, health, listener } = this.#client;
    const { call, freshConnection } = this.#options;
    const { request } = call;
    const attempt = pool.begin(nonce);
    if (attempt === undefined) return UNCLEAR;
    const number = health.attempt();
    this.#attempt = number;
    this.#attempts += 1;
    try {
      const { nc } = attempt;
      const message = signed(request, nonce, nc, this.#client.options.field);
      const result = await this.#client.exchange(message, call, freshConnection);
      if (result.kind === 'lost') {
        pool.abandon(attempt);
        return UNCLEAR;
      }
      if (!this.#client.isChallenged(result)) {
        let accepted = false;
        this.#client.prove(result, nonce, { uri: request.target, nc }, (nextnonce) => {
          pool.accept(attempt, this.#pending, nextnonce);
          if (SAYS_NOTHING.has(result.status) || METHOD_REFUSED.has(result.status)) return;
          accepted = true;
          if (health.accept(number)) listener.onAccepted(result.status);
        });
        await this.#client.skip(result);
        return accepted ? ACCEPTED : UNCLEAR;
      }
      const challenge = this.#client.choose(result);
      const stale = challenge?.stale === true;
      pool.refuse(attempt, stale);
      listener.onAttempt(stale ? 'stale' : 'refused');
      if (stale) return UNCLEAR;
      return challenge?.nonce === nonce.challenge.nonce ? 'named-again' : this.refused;
    } finally {
      attempt.end();
    }
  }
}
