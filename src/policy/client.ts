import { GatewayError } from '../base/errors.ts';

/** The names that a rule allows: all, or those of a set. */
export type Names = '*' | ReadonlySet<string>;

/** Limits of a rule on one query parameter. */
export interface ParameterLimit {
  readonly name: string;
  /** Maximum number of items in its quoted list; undefined: any number. */
  readonly max: number | undefined;
  /**
   * Allowed values, for each item of a quoted list; the parameter is then required. Undefined: any value.
   */
  readonly values: ReadonlySet<string> | undefined;
}

/** One rule of a client; all its parts must hold for a request. */
export interface Rule {
  /** Name of a deployment, or ANY_DEPLOYMENT. */
  readonly deployment: string;
  readonly sites: Names;
  /** `*` includes unlisted operations. */
  readonly operations: Names;
  readonly methods: Names;
  readonly parameters: readonly ParameterLimit[];
  /** Name of the credential for its requests; undefined: that of the site or of the deployment. */
  readonly credential?: string | undefined;
  /** The first instant at which the rule allows nothing any more, in Unix milliseconds; undefined: it has no end. */
  readonly ends?: number | undefined;
}

/** A client and its rules; one of them must hold for a request. */
export interface Client {
  readonly id: string;
  readonly allow: readonly Rule[];
  /** Until this time, in Unix milliseconds, its rules refuse nothing; undefined: they always do. */
  readonly mode?: { readonly until: number } | undefined;
}

/** Matches every deployment; not a valid name of one. */
export const ANY_DEPLOYMENT = '*';

/** The rules of a client that may do everything. */
const EVERYTHING: readonly Rule[] = [
  { deployment: ANY_DEPLOYMENT, sites: '*', operations: '*', methods: '*', parameters: [] },
];

/** The client of unidentified requests if the configuration has `anonymous: true`. */
export const ANONYMOUS: Client = { id: 'anonymous', allow: EVERYTHING };

/** True if the rules of a client only say at this time, in Unix milliseconds, what they would refuse. */
export function isObserved({ mode }: Client, now: number): boolean {
  return mode !== undefined && now < mode.until;
}

/** Returns the client as one that may do everything, with the credential of each site or deployment. */
export function unrestricted({ id }: Client): Client {
  return { id, allow: EVERYTHING };
}

/** The first instant at which the rule allows nothing any more, in Unix milliseconds; infinity if it has no end. */
export function endOf({ ends = Number.POSITIVE_INFINITY }: Rule): number {
  return ends;
}

/** True if the rule allows nothing any more at a time in Unix milliseconds. */
export function hasEnded(rule: Rule, now: number): boolean {
  return endOf(rule) <= now;
}

/** True if the names include this one; a thing without a name is of all. */
export function includes(names: Names, name: string | undefined): boolean {
  return names === '*' || (name !== undefined && names.has(name));
}

/** True if the rule depends on the query. */
export function readsQuery({ sites, parameters }: Rule): boolean {
  return sites !== '*' || parameters.length > 0;
}

/** True if the rule allows less than everything within its deployment. */
export function isRestricted(rule: Rule): boolean {
  return rule.operations !== '*' || rule.methods !== '*' || readsQuery(rule);
}

/** Creates the error for a request that no rule allows; `what` follows the client's name in its message. */
export function forbidden({ id }: Client, what: string): GatewayError {
  return new GatewayError(
    'client-forbidden',
    `The client ${id} ${what}. The operator of this gateway can allow it: see allow in the configuration.`,
  );
}
