import type { Cancellation } from '../base/cancellation.ts';
import { cookiePairs } from '../challenges/cookies.ts';
import type { Nonce } from '../challenges/nonce.ts';
import type { ChallengeReason } from '../metrics/metrics.ts';
import { SAYS_NOTHING } from './credential-health.ts';
import type { DigestClient } from './digest-client.ts';
import type { ExchangeResult } from './exchange.ts';
import { onProvenHead } from './proof.ts';
import { signed, type UpstreamRequest, unsigned } from './signing.ts';
import { nowhere } from './sink.ts';

/** A server can say so before it looks at the credential. */
const METHOD_REFUSED: ReadonlySet<number> = new Set([405, 501]);

/** How a probe of a credential ended. */
export type ProbeResult =
  /** The upstream accepted it, or issued a nonce that need not be tried. */
  | { readonly kind: 'accepted' }
  /** The upstream refused an answer to a challenge that nobody else has answered; with its number. */
  | { readonly kind: 'refused'; readonly attempt: number }
  /** Nothing is known: the connection broke, the nonce was stale at once, or the response says nothing. */
  | { readonly kind: 'unclear' };

export interface ProbeOptions {
  readonly request: UpstreamRequest;
  readonly cancellation: Cancellation;
  /** The nonce to take the place of; undefined: none. */
  readonly replaces: Nonce | undefined;
  readonly reason: ChallengeReason;
  /** False: a nonce without a count is not tried, since a request that is refused with it asks for another. */
  readonly triesEachNonce: boolean;
  /** True: on a new connection. */
  readonly freshConnection: boolean;
}

const UNCLEAR: ProbeResult = { kind: 'unclear' };
const ACCEPTED: ProbeResult = { kind: 'accepted' };

/**
 * Obtains a challenge for this purpose alone and answers it once. A nonce that is accepted serves client requests
 * from then on.
 * @throws GatewayError when there is no response, or none with a usable challenge
 */
export async function probeCredential(client: DigestClient, options: ProbeOptions): Promise<ProbeResult> {
  const { pool, choose, onAttempt, onChallenge } = client;
  const { request, reason, replaces } = options;
  const opening = pool.open(replaces);
  try {
    const asked = await exchange(client, options, unsigned(request), () => undefined);
    const challenge = asked.kind === 'challenged' ? choose(asked.challenges) : undefined;
    if (asked.kind !== 'challenged' || challenge === undefined) return UNCLEAR;
    onAttempt('challenged');
    onChallenge(reason, request.trace);
    const nonce = pool.offer(opening, { challenge, cookies: cookiePairs(asked.setCookies) });
    if (nonce.shareable && !options.triesEachNonce) {
      pool.acceptUntried(opening);
      return ACCEPTED;
    }
    return await answerOnce(client, options, nonce, (attempt, nextnonce) =>
      pool.accept(attempt, opening, nextnonce),
    );
  } finally {
    pool.close(opening);
  }
}

type Begun = NonNullable<ReturnType<DigestClient['pool']['begin']>>;

async function answerOnce(
  client: DigestClient,
  options: ProbeOptions,
  nonce: Nonce,
  accept: (attempt: Begun, nextnonce: string | undefined) => void,
): Promise<ProbeResult> {
  const { pool, health, choose, onAttempt, onAccepted } = client;
  const { request } = options;
  const attempt = pool.begin(nonce);
  if (attempt === undefined) return UNCLEAR;
  const number = health.attempt();
  let accepted = false;
  const onHead = onProvenHead(nonce, { uri: request.target, nc: attempt.nc }, (status, nextnonce) => {
    accept(attempt, nextnonce);
    if (SAYS_NOTHING.has(status) || METHOD_REFUSED.has(status)) return;
    accepted = true;
    if (health.accept(number)) onAccepted(status);
  });
  try {
    const result = await exchange(client, options, signed(request, nonce, attempt.nc), onHead);
    if (result.kind === 'answered') return accepted ? ACCEPTED : UNCLEAR;
    if (result.kind === 'lost') {
      pool.abandon(attempt);
      return UNCLEAR;
    }
    const stale = choose(result.challenges)?.stale === true;
    pool.refuse(attempt, stale);
    onAttempt(stale ? 'stale' : 'refused');
    return stale ? UNCLEAR : { kind: 'refused', attempt: number };
  } finally {
    attempt.end();
  }
}

async function exchange(
  client: DigestClient,
  { cancellation, freshConnection }: ProbeOptions,
  message: ReturnType<typeof unsigned>,
  onHead: ReturnType<typeof onProvenHead>,
): Promise<ExchangeResult> {
  const { method, target, headers, body, trace } = message;
  const exchanged = { method, target, headers, body, trace, cancellation, freshConnection, onHead };
  const result = await client.exchange(exchanged, nowhere);
  if (result.kind === 'answered') client.onAttempt('ok');
  return result;
}
