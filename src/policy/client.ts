import { GatewayError } from '../base/errors.ts';

/** What a list of names in a rule lets through: everything, or these. */
export type Names = '*' | ReadonlySet<string>;

/** What a rule demands of one query parameter. */
export interface ParameterLimit {
  readonly name: string;
  /** The most items of its quoted list; undefined: any number. */
  readonly max: number | undefined;
  /** What it, or each item of its quoted list, may be; it must then be there. undefined: anything. */
  readonly values: ReadonlySet<string> | undefined;
}

/** One thing that a client may do: all parts of a rule must hold for a request. */
export interface Rule {
  /** The name of a deployment, or ANY_DEPLOYMENT. */
  readonly deployment: string;
  readonly sites: Names;
  /** `*`: operations that no catalogue lists, too. */
  readonly operations: Names;
  readonly methods: Names;
  readonly parameters: readonly ParameterLimit[];
}

/** Who asks, and what the configuration lets them do: one of the rules must hold. */
export interface Client {
  readonly id: string;
  readonly allow: readonly Rule[];
}

/** No deployment can have this name. */
export const ANY_DEPLOYMENT = '*';

/** Whoever reaches the port of a gateway that says `anonymous: true`. */
export const ANONYMOUS: Client = {
  id: 'anonymous',
  allow: [{ deployment: ANY_DEPLOYMENT, sites: '*', operations: '*', methods: '*', parameters: [] }],
};

export function includes(names: Names, name: string): boolean {
  return names === '*' || names.has(name);
}

/** Whether the rule depends on what the query says. */
export function readsQuery({ sites, parameters }: Rule): boolean {
  return sites !== '*' || parameters.length > 0;
}

/** Whether the rule leaves anything out within its deployment. */
export function isRestricted(rule: Rule): boolean {
  return rule.operations !== '*' || rule.methods !== '*' || readsQuery(rule);
}

/** Says what the client may not do; `what` goes on after its name. */
export function forbidden({ id }: Client, what: string): GatewayError {
  return new GatewayError(
    'client-forbidden',
    `The client ${id} ${what}. The operator of this gateway can allow it: see allow in the configuration.`,
  );
}
