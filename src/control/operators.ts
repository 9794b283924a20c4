import type { Secret } from '../base/secret.ts';
import { ControlError } from './control-error.ts';

export const ROLES = ['viewer', 'operator', 'auditor'] as const;

/** `viewer` sees the console without audit records, `operator` acts, `auditor` reads the audit log. */
export type Role = (typeof ROLES)[number];

/** A person who signed in. */
export interface Operator {
  /** As the console and the audit log name this person. */
  readonly name: string;
  /** Tells people of one provider apart: names may be shared or change. */
  readonly subject: string;
}

/** The claims that name a person and give roles. */
export interface RoleRules extends Partial<Readonly<Record<Role, readonly string[]>>> {
  readonly claim: string;
  readonly nameClaim: string;
}

/** A person who signed in, with what the session may do. */
export interface SignedIn {
  readonly operator: Operator;
  readonly roles: ReadonlySet<Role>;
  /** The ID token, which the provider wants back when the person signs out. Empty: it was too long. */
  readonly idToken: Secret;
}

/** Longest name or subject that is accepted, in characters. */
const MAX_LENGTH = 256;
/** Characters by which a name looks like another one, or ends a line. */
const MISLEADING = /[\p{Cc}\p{Bidi_Control}]/u;

export type Claims = Readonly<Record<string, unknown>>;

/** Returns the value of a claim; `a.b` is also the member `b` of the claim `a`. */
export function claimIn(claims: Claims, name: string): unknown {
  if (Object.hasOwn(claims, name)) return claims[name];
  return name
    .split('.')
    .reduce<unknown>(
      (value, key) =>
        typeof value === 'object' && value !== null && Object.hasOwn(value, key)
          ? (value as Claims)[key]
          : undefined,
      claims,
    );
}

/**
 * Returns the person and the roles that the claims of a provider give.
 * @throws ControlError if a claim is missing; RoleMissingError
 */
export function operatorFrom(claims: Claims, rules: RoleRules): Omit<SignedIn, 'idToken'> {
  const subject = claimText(claims, 'sub');
  const name = claimText(claims, rules.nameClaim);
  const value = claimIn(claims, rules.claim);
  if (value === undefined) throw missing(rules.claim);
  const values = new Set<unknown>(Array.isArray(value) ? value : [value]);
  const roles = new Set(ROLES.filter((role) => rules[role]?.some((each) => values.has(each))));
  const operator = { name, subject };
  if (roles.size === 0) throw new RoleMissingError(operator, rules);
  return { operator, roles };
}

/** The provider knows the person, and the claims give no role. */
export class RoleMissingError extends ControlError {
  readonly operator: Operator;

  constructor(operator: Operator, rules: RoleRules) {
    const values = ROLES.flatMap((role) => valuesFor(role, rules)).join('; ');
    super(
      'role-missing',
      `${operator.name} has no role here. Ask the administrator of the provider for one of these values of the claim ${rules.claim}: ${values}.`,
    );
    this.operator = operator;
  }
}

function claimText(claims: Claims, name: string): string {
  const value = claimIn(claims, name);
  if (typeof value !== 'string' || value === '' || value.length > MAX_LENGTH || MISLEADING.test(value)) {
    throw missing(name);
  }
  return value;
}

function missing(claim: string): ControlError {
  return new ControlError(
    'claim-missing',
    `The provider sent no usable claim ${claim}. Let it send the claim for this client, request its scope in control.oidc.scopes, or name another claim in control.oidc.roles.`,
  );
}

function valuesFor(role: Role, rules: RoleRules): string[] {
  const values = rules[role];
  return values === undefined ? [] : [`${values.join(' or ')} (${role})`];
}

/**
 * Says that a request needs a role, and what gives it to a person; undefined: a token. `rules` undefined: sign-in by name
 * is not configured.
 */
export function roleRequired(
  role: Role,
  operator: Operator | undefined,
  rules: RoleRules | undefined,
): ControlError {
  if (operator === undefined) return new ControlError('read-only');
  const [values] = rules === undefined ? [] : valuesFor(role, rules);
  const remedy =
    values === undefined
      ? 'No sign-in gives it: see control.oidc.roles.'
      : `These values of the claim ${rules?.claim} give it: ${values}. Sign in again when you have one.`;
  return new ControlError('role-required', `This needs the role ${role}. ${remedy}`);
}

/** The members of an audit record that name a person; none for a token. */
export function operatorDetails(operator: Operator | undefined): {
  readonly operator?: string;
  readonly operatorSubject?: string;
} {
  if (operator === undefined) return {};
  const { name, subject } = operator;
  return name === subject ? { operator: name } : { operator: name, operatorSubject: subject };
}
