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
    says(payload.aud, rule.audience) &&
    (rule.subject === undefined || payload.sub === rule.subject) &&
    Object.entries(rule.claims ?? {}).every(([name, wanted]) =>
      says(Object.hasOwn(payload, name) ? values(name, payload[name]) : undefined, wanted),
    )
  );
}

function says(claim: unknown, wanted: string | number | boolean): boolean {
  return Array.isArray(claim) ? claim.includes(wanted) : claim === wanted;
}

/** `scope` is a list in one text (RFC 8693 §4.2). */
function values(name: string, claim: unknown): unknown {
  return name === 'scope' && typeof claim === 'string' ? claim.split(' ') : claim;
}
