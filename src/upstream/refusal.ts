import type { GatewayError } from '../base/errors.ts';
import type { Nonce } from '../challenges/nonce.ts';
import type { NoncePool } from '../challenges/pool.ts';
import type { AttemptBudget } from '../handshake/attempt-budget.ts';
import { alwaysStale, cannotRepeat, refusedAgain, targetRefused } from '../handshake/errors.ts';
import type { UpstreamRequest } from '../handshake/exchange.ts';
import type { HandshakeOptions, Refused } from '../handshake/handshake.ts';
import { refusalOf } from './credential-version.ts';
import type { Evidence } from './verification.ts';

/** A challenge that is older, in milliseconds, is not answered after a wait: the upstream may have dropped it. */
const FRESH_MS = 100;

/** State in which a refusal that something else explains than the credential is followed by another attempt. */
export interface AfterRefusal {
  readonly pool: NoncePool;
  /** When the refusal came. */
  readonly since: number;
  readonly now: number;
  /** True if the request tests the credential, so that no other one has come in between. */
  readonly tests: boolean;
}

/** Returns how the next handshake of a request begins: never with a nonce from before the refusal. */
export function optionsAfter(refused: Refused, after: AfterRefusal): HandshakeOptions {
  // Where a round trip takes long, the upstream may drop this challenge as well before the answer arrives.
  const isFresh = (after.tests || after.now - refused.attempt.sentAt < FRESH_MS) && !refused.isNamedAgain;
  const challenge = isFresh ? refused.inHand : undefined;
  const nonce = challenge === undefined ? verifiedNonce(refused, after) : undefined;
  return nonce === undefined ? { freshNonce: true, challenge } : { nonce };
}

/**
 * Returns a nonce that was obtained and found good since the refusal came, if any number of requests can use it, and the
 * target wants one of the same realm.
 */
function verifiedNonce(
  { attempt: { nonce }, challenge }: Refused,
  { pool, since }: AfterRefusal,
): Nonce | undefined {
  if (!nonce.shareable || nonce.uses < 2 || pool.policy !== 'shared') return undefined;
  const known = pool.reserve();
  const isFresh = known !== undefined && known.obtainedAt > since && known.uses > 0;
  return isFresh && (challenge === undefined || known.challenge.realm === challenge.realm)
    ? known
    : undefined;
}

/**
 * True if a request can itself find out with its second attempt, when no other one is under way. Not if it has shown that
 * already, or if the upstream may drop several nonces within a round trip.
 */
export function canAnswer({ isOwn, attempt: { nonce, sentAt } }: Refused, now: number): boolean {
  return !isOwn && (nonce.uses <= 1 || now - sentAt < FRESH_MS);
}

/** Returns the error of a request whose attempts are used up although its version is not refused. */
export function errorAfter({ isGoodNonce, isStale }: Refused, budget: AttemptBudget): GatewayError {
  if (isGoodNonce && !isStale && budget.confirmed) return targetRefused();
  if (budget.bodySent) return cannotRepeat();
  return budget.onlyStale ? alwaysStale() : refusedAgain();
}

/** Returns what a refusal of this request shows of the version; undefined: nothing. */
export function evidenceOf(refused: Refused, request: UpstreamRequest): Evidence | undefined {
  return refused.isEvidence ? refusalOf(refused, request, 1) : undefined;
}
