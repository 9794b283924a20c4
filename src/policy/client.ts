import { GatewayError } from '../base/errors.ts';
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
}

/** A client and its rules; one of them must hold for a request. */
export interface Client {
  readonly id: string;
  readonly allow: readonly Rule[];
}

/** Matches every deployment; not a valid name of one. */
export const ANY_DEPLOYMENT = '*';

/** The client of unidentified requests if the configuration has `anonymous: true`. */
export const ANONYMOUS: Client = {
  id: 'anonymous',
  allow: [{ deployment: ANY_DEPLOYMENT, sites: '*', operations: '*', methods: '*', parameters: [] }],
};

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
}

/**
 * Returns the rules that the client has for a deployment.
 * @throws GatewayError `client-forbidden`
 */
export function rulesFor(deployment: DeploymentRules, client: Client): ClientRules {
  return deployment.byClient.get(client) ?? compileClient(deployment, client);
}

function compileClient(
  { deployment, unlistedOperations, isOwnPath, byClient }: DeploymentRules,
  client: Client,
): ClientRules {
  const all = client.allow.filter(
    (rule) => rule.deployment === deployment || rule.deployment === ANY_DEPLOYMENT,
  );
  const [first] = all;
  if (first === undefined) throw forbidden(client, `may not use the deployment ${deployment}`);
  const mixed = all.some(({ credential }) => credential !== first.credential);
  const isGuarded = mixed || unlistedOperations === 'deny' || isOwnPath !== undefined;
  const rules = {
    all,
    mixed,
    listedOnly: all.every(({ operations }) => operations !== '*'),
    guarded: new Set(all.filter((rule) => isGuarded || isRestricted(rule))),
    queried: new Set(all.filter(readsQuery)),
  };
  byClient.set(client, rules);
  return rules;
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
