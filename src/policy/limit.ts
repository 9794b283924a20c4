import { GatewayError } from '../base/errors.ts';
import { type Client, forbidden, includes, type ParameterLimit, type Rule } from './client.ts';
import { itemsOf } from './parameter.ts';
import { parameterInvalid, type Query } from './query.ts';

/** The parts of a request that limits of a rule apply to. */
export interface Asked {
  /** Undefined if the deployment has no sites. */
  readonly site: string | undefined;
  readonly query: Query;
}

/**
 * Returns the first rule that holds for the site and the parameters.
 * @throws GatewayError `client-forbidden` or `parameter-invalid`, for the first rule of the site
 */
export function ruleWithin(client: Client, rules: readonly Rule[], { site, query }: Asked): Rule {
  let failure: GatewayError | undefined;
  for (const rule of rules) {
    if (site !== undefined && !includes(rule.sites, site)) continue;
    try {
      for (const limit of rule.parameters) checkLimit(client, limit, query);
      return rule;
    } catch (error) {
      if (!(error instanceof GatewayError)) throw error;
      failure ??= error;
    }
  }
  throw failure ?? forbidden(client, 'may not use this site');
}

function checkLimit(client: Client, { name, max, values }: ParameterLimit, query: Query): void {
  const value = values === undefined ? query.decode(name) : query.decodeExactly(name);
  if (value === undefined) {
    if (values !== undefined) throw forbidden(client, `may not leave out the parameter ${name}`);
    return;
  }
  if (max !== undefined) {
    // A value that is no list has no number of items.
    itemsOf(name, value);
    // Some servers separate at each comma, also at one between quotes.
    const items = commasIn(value) + 1;
    if (items > max) {
      throw parameterInvalid(name, `has ${items} items: this client may send at most ${max} at once`);
    }
  }
  if (values === undefined || values.has(value)) return;
  if (!value.startsWith("'") || !itemsOf(name, value).every((item) => values.has(item))) {
    throw forbidden(client, `may not send this value of the parameter ${name}`);
  }
}

function commasIn(value: string): number {
  let count = 0;
  for (let at = value.indexOf(','); at !== -1; at = value.indexOf(',', at + 1)) count += 1;
  return count;
}
