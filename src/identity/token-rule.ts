import type { JWTPayload } from 'jose';

/** Conditions on the claims of a client's verified token. */
export interface TokenRule {
  readonly issuer: string;
  readonly audience: string;
  readonly subject?: string | undefined;
  /** Each claim must equal the value, or be a list that contains it. */
  readonly claims?: Readonly<Record<string, string | number | boolean>> | undefined;
}

/** True if the claims of a verified token match the rule. */
export function fitsToken(rule: TokenRule, payload: JWTPayload): boolean {
  return (
    payload.iss === rule.issuer &&
    claimValues(payload, 'aud').includes(rule.audience) &&
    (rule.subject === undefined || payload.sub === rule.subject) &&
    Object.entries(rule.claims ?? {}).every(([name, wanted]) => claimValues(payload, name).includes(wanted))
  );
}

/** Returns the values of a claim: one, those of a list, or `undefined` if it is absent. */
export function claimValues(payload: JWTPayload, name: string): readonly unknown[] {
  const claim = Object.hasOwn(payload, name) ? payload[name] : undefined;
  // Scopes are separated by spaces (RFC 8693 §4.2).
  if (name === 'scope' && typeof claim === 'string') return claim.split(' ');
  return Array.isArray(claim) ? claim : [claim];
}
