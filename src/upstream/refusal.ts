import type { GatewayError } from '../base/errors.ts';
import type { AttemptBudget } from '../handshake/attempt-budget.ts';
import { alwaysStale, cannotRepeat, refusedAgain, targetRefused } from '../handshake/errors.ts';
import type { UpstreamRequest } from '../handshake/exchange.ts';
import type { HandshakeOptions, Refused } from '../handshake/handshake.ts';
import { refusalOf } from './credential-version.ts';
import type { Evidence } from './verification.ts';

/** A challenge that is older, in milliseconds, is not answered after a wait: the upstream may have dropped it. */
const FRESH_MS = 100;

/**
 * Returns how the next handshake of a request begins after a refusal that something else explains than the credential:
 * with a challenge of its own. `isAlone`: it tests the credential, so that no other one has come in between.
 */
export function optionsAfter(refused: Refused, now: number, isAlone: boolean): HandshakeOptions {
  // Where a round trip takes long, the upstream may drop this challenge as well before the answer arrives.
  const isFresh = isAlone || now - refused.attempt.sentAt < FRESH_MS;
  return { freshNonce: true, challenge: isFresh && !refused.isNamedAgain ? refused.inHand : undefined };
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
