import { GatewayError } from '../base/errors.ts';
import type { RawHeaders } from '../base/raw-headers.ts';
import type { Operation } from './catalogue.ts';
import { type Client, forbidden, includes, isRestricted, type Rule, readsQuery, rulesFor } from './client.ts';
import { ruleWithin } from './limit.ts';
import { checkForm, missing } from './parameter.ts';
import { isAmbiguous, splitTarget } from './path.ts';
import { Query } from './query.ts';
import { withoutPrefix } from './rewrite.ts';
import type { DeploymentRules } from './rules.ts';
import { METHOD, secondTarget } from './second-target.ts';
import { siteOf, withSite } from './site.ts';

/** The parts of a request that policy checks. */
export interface Request {
  readonly method: string;
  /** Path and query, byte for byte. */
  readonly target: string;
  /** As the client sent them. */
  readonly headers: RawHeaders;
}

/** Permission to send a request. */
export interface Grant {
  /** Empty if the deployment has no sites. */
  readonly site: string;
  /** Name of the credential for the upstream request. */
  readonly credential: string;
  /** Empty if the operation is not listed. */
  readonly operation: string;
  /** True if the whole request may take any time. */
  readonly noTotalTimeout: boolean;
  /** Target of the upstream request. */
  readonly target: string;
  /** The site and the operation's parameters: decoded values by name. */
  readonly parameters: ReadonlyMap<string, string>;
  /** The client's rule that allows the request. */
  readonly rule: Rule;
}

const NO_PARAMETERS: ReadonlyMap<string, string> = new Map();

/**
 * Decides if a client may send a request to a deployment, and returns what to send.
 * @throws GatewayError `client-forbidden`, `operation-unlisted`, `site-required`, `site-unknown`,
 * `parameter-invalid`, or `bad-request` if a part that a rule depends on is ambiguous
 */
export function decide(rules: DeploymentRules, client: Client, request: Request): Grant {
  const target = withoutPrefix(request.target, rules.stripPrefix);
  const own = rulesFor(client, rules.deployment);
  const { path, query: text } = splitTarget(target);
  const query = new Query(text);
  const operation = operationOf(rules, client, own, request.method, path);
  const fitting = withMethod(client, withOperation(client, own, operation), request.method);
  const unhidden = withoutSecondTarget(rules, fitting, request.headers, query);
  const [rule] = unhidden;
  const checked = operation?.parameters ?? [];
  if (rule === undefined || rules.sites !== undefined || checked.length > 0 || unhidden.some(readsQuery)) {
    return judgeQuery(rules, client, { target, query, operation, fitting: unhidden });
  }
  const { credential } = rules;
  return {
    site: '',
    credential,
    operation: operation?.name ?? '',
    noTotalTimeout: operation?.noTotalTimeout ?? false,
    target,
    parameters: NO_PARAMETERS,
    rule,
  };
}

interface Judged {
  readonly target: string;
  readonly query: Query;
  readonly operation: Operation | undefined;
  readonly fitting: readonly Rule[];
}

function judgeQuery(
  { sites, credential }: DeploymentRules,
  client: Client,
  { target, query, operation, fitting }: Judged,
): Grant {
  const site = sites && siteOf(sites, query, fitting);
  const rule = ruleWithin(client, fitting, { site: site?.name, query });
  const parameters = new Map<string, string>();
  if (sites !== undefined && site !== undefined) parameters.set(sites.parameter, site.name);
  if (operation !== undefined) readParameters(operation, query, parameters);
  return {
    site: site?.name ?? '',
    credential: site === undefined ? credential : (sites?.credentials.get(site.name) ?? ''),
    operation: operation?.name ?? '',
    noTotalTimeout: operation?.noTotalTimeout ?? false,
    target: sites !== undefined && site?.injected ? withSite(target, sites.parameter, site.name) : target,
    parameters,
    rule,
  };
}

/** Undefined if the operation is unlisted and that is allowed. */
function operationOf(
  { deployment, catalogue, unlistedOperations, isOwnPath }: DeploymentRules,
  client: Client,
  own: readonly Rule[],
  method: string,
  path: string,
): Operation | undefined {
  if (isOwnPath?.(path) === false) throw ambiguousPath();
  const found = catalogue.find(method, path);
  if (found !== undefined) return found;
  const denied = unlistedOperations === 'deny';
  const listedOnly = own.every(({ operations }) => operations !== '*');
  if ((denied || listedOnly) && isAmbiguous(path)) throw ambiguousPath();
  if (denied) {
    throw new GatewayError(
      'operation-unlisted',
      `The deployment ${deployment} serves its listed operations only, and ${method} of this path is none of them. Compare the method and the path, byte by byte, with the description of the API.`,
    );
  }
  if (listedOnly)
    throw forbidden(client, `may use some operations of ${deployment} only, and this is none of them`);
  if (catalogue.resembling(method, path) !== undefined) throw ambiguousPath();
  return undefined;
}

function withOperation(
  client: Client,
  rules: readonly Rule[],
  operation: Operation | undefined,
): readonly Rule[] {
  const fitting = keep(rules, ({ operations }) =>
    operation === undefined ? operations === '*' : includes(operations, operation.name),
  );
  if (fitting.length === 0) throw forbidden(client, `may not use the operation ${operation?.name ?? ''}`);
  return fitting;
}

function withMethod(client: Client, rules: readonly Rule[], method: string): readonly Rule[] {
  const fitting = keep(rules, ({ methods }) => includes(methods, method));
  if (fitting.length === 0) throw forbidden(client, `may not use the method ${method} here`);
  return fitting;
}

/** Returns the rules that pass the test; the same list, not a copy, if all do. */
function keep(rules: readonly Rule[], test: (rule: Rule) => boolean): readonly Rule[] {
  return rules.every(test) ? rules : rules.filter(test);
}

/** Returns the rules that hold even if the upstream prefers a header or the body over the request line. */
function withoutSecondTarget(
  { unlistedOperations }: DeploymentRules,
  rules: readonly Rule[],
  headers: RawHeaders,
  query: Query,
): readonly Rule[] {
  const denied = unlistedOperations === 'deny';
  if (!denied && !rules.some(isRestricted)) return rules;
  const { override: inHeader, form } = secondTarget(headers);
  const override = inHeader || query.has(METHOD);
  if (!override && !form) return rules;
  const fitting = rules.filter(
    (rule) => !(override && (denied || isRestricted(rule))) && !(form && readsQuery(rule)),
  );
  if (fitting.length > 0) return fitting;
  throw new GatewayError(
    'bad-request',
    override
      ? 'The request has a header or a parameter that names another method or path, such as X-HTTP-Method-Override, X-Original-URL or _method, and a rule depends on both. Leave it out.'
      : 'The body of the request is a form. Servers mix its fields with the parameters of the query, and a rule depends on them. Send the parameters in the query.',
  );
}

function readParameters({ parameters }: Operation, query: Query, values: Map<string, string>): void {
  for (const parameter of parameters) {
    if (values.has(parameter.name)) continue;
    const value = query.decode(parameter.name);
    if (value === undefined) {
      if (parameter.optional) continue;
      throw missing(parameter);
    }
    checkForm(parameter, value);
    values.set(parameter.name, value);
  }
}

function ambiguousPath(): GatewayError {
  return new GatewayError(
    'bad-request',
    'Servers can read the path in more than one way (dot segments, //, \\, ;, another case, or a needless encoding), and a rule depends on it. Write it as the API describes it.',
  );
}
