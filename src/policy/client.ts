import { GatewayError } from '../base/errors.ts';
import { formatInstant } from '../base/units.ts';

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

/** The rules of a client for one deployment. */
interface DeploymentRules {
  readonly rules: readonly Rule[];
  /** When the first of them ends, in Unix milliseconds; infinity if none does. */
  readonly firstEnd: number;
}

/** Rules by deployment; cached for the clients of a configuration. */
const BY_DEPLOYMENT = new WeakMap<Client, ReadonlyMap<string, DeploymentRules>>();

/**
 * Returns the rules that the client has for a deployment at a time in Unix milliseconds, in order; at least one.
 * @throws GatewayError `client-forbidden`
 */
export function rulesFor(client: Client, deployment: string, now: number): readonly Rule[] {
  if (client.allow === EVERYTHING) return EVERYTHING;
  let byDeployment = BY_DEPLOYMENT.get(client);
  if (byDeployment === undefined) {
    byDeployment = byDeploymentOf(client);
    BY_DEPLOYMENT.set(client, byDeployment);
  }
  const own = byDeployment.get(deployment);
  if (own === undefined) throw forbidden(client, `may not use the deployment ${deployment}`);
  if (now < own.firstEnd) return own.rules;
  const rules = own.rules.filter((rule) => !hasEnded(rule, now));
  if (rules.length > 0) return rules;
  const ended = formatInstant(own.rules.reduce((last, rule) => Math.max(last, endOf(rule)), 0));
  throw forbidden(
    client,
    `may not use the deployment ${deployment} any more: what allowed it ended ${ended}`,
  );
}

function byDeploymentOf({ allow }: Client): ReadonlyMap<string, DeploymentRules> {
  const groups = Map.groupBy(allow, (rule) => rule.deployment);
  return new Map(
    Array.from(groups, ([deployment, rules]) => [
      deployment,
      {
        rules,
        firstEnd: rules.reduce((first, rule) => Math.min(first, endOf(rule)), Number.POSITIVE_INFINITY),
      },
    ]),
  );
}

function endOf({ ends = Number.POSITIVE_INFINITY }: Rule): number {
  return ends;
}

/** True if the rule allows nothing any more at a time in Unix milliseconds. */
export function hasEnded(rule: Rule, now: number): boolean {
  return endOf(rule) <= now;
}

/** True if the names include this one. */
export function includes(names: Names, name: string): boolean {
  return names === '*' || names.has(name);
}

/** True if it depends on the rule which credential a request gets. */
export function differInCredential(rules: readonly Rule[]): boolean {
  const first = rules[0]?.credential;
  return rules.some(({ credential }) => credential !== first);
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
