import { cookiePairs } from '../challenges/cookies.ts';
import type { Nonce } from '../challenges/nonce.ts';
import type { ChallengeReason } from '../metrics/metrics.ts';
import { SAYS_NOTHING } from './credential-health.ts';
import type { DigestClient, ExchangeContext } from './digest-client.ts';
import { onProvenHead } from './proof.ts';
import type { UpstreamRequest } from './request.ts';
import { discardResponse } from './response-handler.ts';
import { signed, unsigned } from './signing.ts';

/** A server can answer so before it looks at the credential. */
const METHOD_REFUSED: ReadonlySet<number> = new Set([405, 501]);

/** Result of a probe. */
export type ProbeResult =
  /** The upstream accepted it, or issued a nonce that need not be tried. */
  | { readonly kind: 'accepted' }
  /** The upstream refused an answer to a challenge that nobody else has answered; with its number. */
  | { readonly kind: 'refused'; readonly attempt: number }
  /** Nothing is known: the connection broke, the nonce was stale at once, or the response says nothing. */
  | { readonly kind: 'unclear' };

export interface ProbeOptions {
  readonly request: UpstreamRequest;
  readonly context: ExchangeContext;
  /** The nonce to take the place of; undefined: none. */
  readonly replaces: Nonce | undefined;
  readonly reason: ChallengeReason;
  /** False: a nonce without a count is not tried, since a request that is refused with it asks for another. */
  readonly triesEachNonce: boolean;
}

const UNCLEAR: ProbeResult = { kind: 'unclear' };
const ACCEPTED: ProbeResult = { kind: 'accepted' };

/**
 * Obtains a challenge for this purpose alone and answers it once. A nonce that is accepted serves client requests
 * from then on.
 * @throws GatewayError when there is no response, or none with a usable challenge
 */
export async function probeCredential(client: DigestClient, options: ProbeOptions): Promise<ProbeResult> {
  const { pool, listener } = client;
  const { request, context, reason, replaces } = options;
  const pending = pool.open(replaces);
  try {
    const asked = await client.exchange(unsigned(request), context, () => undefined, discardResponse);
    const challenge = asked.kind === 'challenged' ? client.choose(asked.challenges) : undefined;
    if (asked.kind !== 'challenged' || challenge === undefined) return UNCLEAR;
    listener.onAttempt('challenged');
    client.obtained(reason, request.trace);
    const nonce = pool.offer(pending, { challenge, cookies: cookiePairs(asked.setCookies) });
    if (nonce.shareable && !options.triesEachNonce) {
      pool.acceptUntried(pending);
      return ACCEPTED;
    }
    return await answerOnce(client, options, nonce, (attempt, nextnonce) =>
      pool.accept(attempt, pending, nextnonce),
    );
  } finally {
    pool.close(pending);
  }
}

type Begun = NonNullable<ReturnType<DigestClient['pool']['begin']>>;

async function answerOnce(
  client: DigestClient,
  options: ProbeOptions,
  nonce: Nonce,
  accept: (attempt: Begun, nextnonce: string | undefined) => void,
): Promise<ProbeResult> {
  const { pool, health, listener } = client;
  const { request, context } = options;
  const attempt = pool.begin(nonce);
  if (attempt === undefined) return UNCLEAR;
  const number = health.attempt();
  let accepted = false;
  const onHead = onProvenHead(nonce, { uri: request.target, nc: attempt.nc }, (status, nextnonce) => {
    accept(attempt, nextnonce);
    if (SAYS_NOTHING.has(status) || METHOD_REFUSED.has(status)) return;
    accepted = true;
    if (health.accept(number)) listener.onAccepted(status);
  });
  try {
    const message = signed(request, nonce, attempt.nc, client.options.field);
    const result = await client.exchange(message, context, onHead, discardResponse);
    if (result.kind === 'answered') return accepted ? ACCEPTED : UNCLEAR;
    if (result.kind === 'lost') {
      pool.abandon(attempt);
      return UNCLEAR;
    }
    const stale = client.choose(result.challenges)?.stale === true;
    pool.refuse(attempt, stale);
    listener.onAttempt(stale ? 'stale' : 'refused');
    return stale ? UNCLEAR : { kind: 'refused', attempt: number };
  } finally {
    attempt.end();
  }
}
