import { GatewayError } from '../base/errors.ts';
import type { Rule } from './client.ts';
import type { Query } from './query.ts';
import type { Sites } from './rules.ts';

/** The site of a request. */
export interface Site {
  readonly name: string;
  /** True if the request does not contain the site, so that the upstream request must add it. */
  readonly injected: boolean;
}

/**
 * Returns the site that a query names; without one, the only site that the rules allow, if injection is on.
 * @throws GatewayError `site-required`, `site-unknown`, `parameter-invalid`
 */
export function siteOf(sites: Sites, query: Query, rules: readonly Rule[]): Site {
  const { parameter, credentials } = sites;
  const name = query.decodeExactly(parameter);
  if (name === undefined) return onlySite(sites, rules);
  if (name === '') throw required(parameter, 'is empty: name a site');
  if (credentials.has(name)) return { name, injected: false };
  throw new GatewayError('site-unknown', `The parameter ${parameter} names a site that is not configured.`);
}

/** Adds the site before the other parameters, since servers may ignore the last of many; no other byte changes. */
export function withSite(target: string, parameter: string, site: string): string {
  const mark = target.indexOf('?');
  const added = `${parameter}=${encodeURIComponent(site)}`;
  if (mark === -1) return `${target}?${added}`;
  const rest = target.slice(mark + 1);
  return `${target.slice(0, mark)}?${added}${rest === '' ? '' : `&${rest}`}`;
}

function onlySite({ parameter, credentials, inject }: Sites, rules: readonly Rule[]): Site {
  if (!inject) throw required(parameter, 'is missing: name a site');
  const allowed = new Set(
    rules.flatMap(({ sites }) => Array.from(sites === '*' ? credentials.keys() : sites)),
  );
  const [name] = allowed;
  if (name !== undefined && allowed.size === 1) return { name, injected: true };
  throw required(parameter, 'is missing, and more than one site is possible: name one');
}

function required(parameter: string, reason: string): GatewayError {
  return new GatewayError('site-required', `The parameter ${parameter} ${reason}.`);
}
