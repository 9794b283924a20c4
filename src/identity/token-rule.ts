import type { JWTPayload } from 'jose';

/** What a client's token has to say, beside being right. */
export interface TokenRule {
  readonly issuer: string;
  readonly audience: string;
  readonly subject?: string | undefined;
  /** Each claim equals the value, or is a list that holds it. */
  readonly claims?: Readonly<Record<string, string | number | boolean>> | undefined;
}

export function fitsToken(rule: TokenRule, payload: JWTPayload): boolean {
  return (
    payload.iss === rule.issuer &&
    claimSays(payload, 'aud').includes(rule.audience) &&
    (rule.subject === undefined || payload.sub === rule.subject) &&
    Object.entries(rule.claims ?? {}).every(([name, wanted]) => claimSays(payload, name).includes(wanted))
  );
}

/** The values of a claim: one, those of a list, or none. */
export function claimSays(payload: JWTPayload, name: string): readonly unknown[] {
  const claim = Object.hasOwn(payload, name) ? payload[name] : undefined;
  // A list in one text (RFC 8693 §4.2).
  if (name === 'scope' && typeof claim === 'string') return claim.split(' ');
  return Array.isArray(claim) ? claim : [claim];
}
