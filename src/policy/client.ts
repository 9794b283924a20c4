import { GatewayError } from '../base/errors.ts';
import { formatInstant } from '../base/units.ts';
import type { DeploymentRules } from './rules.ts';

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

/** The rules of a client for a deployment, and what follows from them for each of its requests. */
export interface ClientRules {
  /** In order; at least one. */
  readonly all: readonly Rule[];
  /** True if it depends on the rule which credential a request gets. */
  readonly mixed: boolean;
  /** True if each rule lists its operations. */
  readonly listedOnly: boolean;
  /** Rules under which a request may not do everything at the upstream, or not with this credential. */
  readonly guarded: ReadonlySet<Rule>;
  /** Rules that depend on the query. */
  readonly queried: ReadonlySet<Rule>;
  /** They hold from the end of the last rule before them to that of the first of them, in Unix milliseconds. */
  readonly from: number;
  readonly until: number;
}

/**
 * Returns the rules that the client has for a deployment at a time in Unix milliseconds.
 * @throws GatewayError `client-forbidden`
 */
export function rulesFor(deployment: DeploymentRules, client: Client, now: number): ClientRules {
  const known = deployment.ofClients.get(client.allow);
  if (known !== undefined && known.from <= now && now < known.until) return known;
  const rules = compileClient(deployment, client, now);
  deployment.ofClients.set(client.allow, rules);
  return rules;
}

function compileClient(
  { deployment, unlistedOperations, isOwnPath }: DeploymentRules,
  client: Client,
  now: number,
): ClientRules {
  const own = client.allow.filter(
    (rule) => rule.deployment === deployment || rule.deployment === ANY_DEPLOYMENT,
  );
  if (own.length === 0) throw forbidden(client, `may not use the deployment ${deployment}`);
  const all = own.filter((rule) => !hasEnded(rule, now));
  const from = Math.max(...own.map(endOf).filter((end) => end <= now));
  const [first] = all;
  if (first === undefined) {
    throw forbidden(
      client,
      `may not use the deployment ${deployment} any more: what allowed it ended ${formatInstant(from)}`,
    );
  }
  const mixed = all.some(({ credential }) => credential !== first.credential);
  const isGuarded = mixed || unlistedOperations === 'deny' || isOwnPath !== undefined;
  return {
    all,
    mixed,
    listedOnly: all.every(({ operations }) => operations !== '*'),
    guarded: new Set(all.filter((rule) => isGuarded || isRestricted(rule))),
    queried: new Set(all.filter(readsQuery)),
    from,
    until: Math.min(...all.map(endOf)),
  };
}

function endOf({ ends = Number.POSITIVE_INFINITY }: Rule): number {
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
function readsQuery({ sites, parameters }: Rule): boolean {
  return sites !== '*' || parameters.length > 0;
}

/** True if the rule allows less than everything within its deployment. */
function isRestricted(rule: Rule): boolean {
  return rule.operations !== '*' || rule.methods !== '*' || readsQuery(rule);
}

/** Creates the error for a request that no rule allows; `what` follows the client's name in its message. */
export function forbidden({ id }: Client, what: string): GatewayError {
  return new GatewayError(
    'client-forbidden',
    `The client ${id} ${what}. The operator of this gateway can allow it: see allow in the configuration.`,
  );
}
