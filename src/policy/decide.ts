import { GatewayError } from '../base/errors.ts';
import type { RawHeaders } from '../base/raw-headers.ts';
import type { Operation } from './catalogue.ts';
import { type JudgedFields, judgeFields } from './fields.ts';
import { checkForm, checkList, itemsOf, missing } from './parameter.ts';
import { isAmbiguous, splitTarget, withoutPrefix, withSite } from './path.ts';
import { parameterInvalid, Query } from './query.ts';
import {
  type Client,
  type ClientRules,
  type DeploymentRules,
  forbidden,
  includes,
  type ParameterLimit,
  type Rule,
  rulesFor,
  type Sites,
} from './rules.ts';
import { hidesQuery } from './spelling.ts';

/** The parts of a request that policy checks. */
export interface Request {
  readonly method: string;
  /** Path and query, byte for byte. */
  readonly target: string;
  /** As the upstream gets them, apart from those that only `decide` removes. */
  readonly headers: RawHeaders;
  readonly hasBody: boolean;
}

/** Permission to send a request. */
export interface Grant {
  /** Empty if the deployment has no sites. */
  readonly site: string;
  /** Name of the credential for the upstream request. */
  readonly credential: string;
  /** The rule that names the credential, such as `allow[0]`; empty: it is that of the site or of the deployment. */
  readonly credentialRule: string;
  /** Empty if the operation is not listed. */
  readonly operation: string;
  /** True if the whole request may take any time. */
  readonly noTotalTimeout: boolean;
  /** Target of the upstream request. */
  readonly target: string;
  /** Fields of the upstream request: those of a restricted client are from the list of allowed ones. */
  readonly headers: RawHeaders;
  /** The client's rule that allows the request. */
  readonly rule: Rule;
}

/**
 * Decides if a client may send a request to a deployment at a time in Unix milliseconds, and returns what to send.
 * @throws GatewayError `client-forbidden`, `operation-unlisted`, `site-required`, `site-unknown`,
 * `parameter-invalid`, or `bad-request` if a part that a rule depends on is ambiguous
 */
export function decide(rules: DeploymentRules, client: Client, request: Request, now: number): Grant {
  const target = withoutPrefix(request.target, rules.stripPrefix);
  const own = rulesFor(rules, client, now);
  const { path, query: text } = splitTarget(target);
  const query = new Query(text, path);
  const operation = operationOf(rules, client, own, request.method, path);
  const allowed = allowedRules(client, own.all, operation?.name, request.method);
  const fields = hasOneOf(own.guarded, allowed) ? judgeFields(request, rules) : undefined;
  const fitting = fields === undefined ? allowed : withoutSecondTarget(own, allowed, fields, query);
  const isChecked = rules.sites !== undefined || (operation !== undefined && operation.parameters.length > 0);
  let rule = fitting[0];
  let site: Site | undefined;
  if (rule === undefined || isChecked || hasOneOf(own.queried, fitting)) {
    const readable = withClearQuery(rules, own, fitting, { path, query, isChecked });
    site = rules.sites && siteOf(rules.sites, query, readable);
    rule = ruleWithin(client, readable, site?.name, query);
    checkParameters(operation, query, rules.sites);
  }
  return {
    site: site?.name ?? '',
    credential: rule.credential ?? site?.credential ?? rules.credential,
    credentialRule: rule.credential === undefined ? '' : `allow[${client.allow.indexOf(rule)}]`,
    operation: operation?.name ?? '',
    noTotalTimeout: operation?.noTotalTimeout ?? false,
    target: site?.added === undefined ? target : withSite(target, site.added, site.name),
    headers: fields !== undefined && own.guarded.has(rule) ? fields.kept : request.headers,
    rule,
  };
}

function hasOneOf(some: ReadonlySet<Rule>, rules: readonly Rule[]): boolean {
  return some.size > 0 && rules.some((rule) => some.has(rule));
}

/** Undefined if the operation is unlisted and that is allowed. */
function operationOf(
  { deployment, catalogue, unlistedOperations, isOwnPath }: DeploymentRules,
  client: Client,
  { listedOnly }: ClientRules,
  method: string,
  path: string,
): Operation | undefined {
  if (isOwnPath?.(path) === false) throw ambiguousPath();
  const found = catalogue.find(method, path);
  if (found !== undefined) {
    if (catalogue.resemblesOther(method, path, found)) throw ambiguousPath();
    return found;
  }
  const denied = unlistedOperations === 'deny';
  if ((denied || listedOnly) && isAmbiguous(path)) throw ambiguousPath();
  if (denied) {
    throw new GatewayError(
      'operation-unlisted',
      `The deployment ${deployment} serves its listed operations only, and ${method} of this path is none of them. Compare the method and the path, byte by byte, with the description of the API.`,
    );
  }
  if (listedOnly)
    throw forbidden(client, `may use some operations of ${deployment} only, and this is none of them`);
  if (catalogue.resemblesOther(method, path, undefined)) throw ambiguousPath();
  return undefined;
}

/**
 * Returns the rules that allow the operation and the method; the same list, not a copy, if all do. `operation`: undefined
 * if it is not listed.
 */
function allowedRules(
  client: Client,
  rules: readonly Rule[],
  operation: string | undefined,
  method: string,
): readonly Rule[] {
  for (const rule of rules) {
    if (includes(rule.operations, operation) && includes(rule.methods, method)) continue;
    const fitting = rules.filter(({ operations }) => includes(operations, operation));
    if (fitting.length === 0) throw forbidden(client, `may not use the operation ${operation ?? ''}`);
    const allowed = fitting.filter(({ methods }) => includes(methods, method));
    if (allowed.length === 0) throw forbidden(client, `may not use the method ${method} here`);
    return allowed;
  }
  return rules;
}

/**
 * Returns the rules that hold even if the upstream prefers a header or the body over the request line. Where rules differ
 * in their credential, a spelling that one of them refuses must not reach another.
 */
function withoutSecondTarget(
  { mixed, guarded, queried }: ClientRules,
  rules: readonly Rule[],
  { override: inHeader, form }: JudgedFields,
  query: Query,
): readonly Rule[] {
  const override = inHeader || query.overridesMethod();
  if (!override && !form) return rules;
  const fitting = rules.filter((rule) => !(override && guarded.has(rule)) && !(form && queried.has(rule)));
  if (fitting.length > 0 && !(mixed && fitting.length < rules.length)) return fitting;
  throw new GatewayError(
    'bad-request',
    override
      ? 'The request has a header or a parameter that names another method or path, such as X-HTTP-Method-Override, X-Original-URL, Destination or _method, and a rule depends on both. Leave it out.'
      : 'Servers could read the body as a form, as JSON or as XML and mix its fields with the parameters of the query, or read the query by the charset of Content-Type, and a rule depends on them. Send the parameters in the query, and the body with one Content-Type that is none of a form, of JSON or of XML, such as text/csv, its charset utf-8 or none; the operator of this gateway can allow another type: see restricted.bodyTypes in the configuration.',
  );
}

/** Returns the rules that hold however servers split the target into path and parameters. */
function withClearQuery(
  { parameterNames }: DeploymentRules,
  { mixed, queried }: ClientRules,
  rules: readonly Rule[],
  { path, query, isChecked }: { path: string; query: Query; isChecked: boolean },
): readonly Rule[] {
  const error = hidesQuery(path)
    ? hiddenQuery()
    : query.ambiguity(
        (name) =>
          parameterNames.has(name) ||
          rules.some(({ parameters }) => parameters.some((each) => each.name === name)),
      );
  if (error === undefined) return rules;
  const others = isChecked || mixed ? [] : rules.filter((rule) => !queried.has(rule));
  if (others.length > 0) return others;
  throw error;
}

/** Checks the parameters of the operation but for that of the site, which has been read. */
function checkParameters(operation: Operation | undefined, query: Query, sites: Sites | undefined): void {
  for (const parameter of operation?.parameters ?? []) {
    const { name, optional } = parameter;
    if (name === sites?.parameter) continue;
    const value = query.decode(name);
    if (value !== undefined) checkForm(parameter, value);
    else if (!optional) throw missing(parameter);
  }
}

function ambiguousPath(): GatewayError {
  return new GatewayError(
    'bad-request',
    'Servers can read the path in more than one way (dot segments, //, \\, ;, another case, a needless encoding, an encoded ? or #, control characters, or bytes that are not UTF-8), and a rule depends on it. Write it as the API describes it.',
  );
}

function hiddenQuery(): GatewayError {
  return new GatewayError(
    'bad-request',
    'The path has an & or an encoded ?, # or & (%3F, %23 or %26), behind which some servers look for parameters, and a rule depends on the query. Leave it out of the path.',
  );
}

/**
 * Returns the first rule that holds for the site, if the deployment has sites, and for the parameters.
 * @throws GatewayError `client-forbidden` or `parameter-invalid`, for the first rule of the site
 */
function ruleWithin(client: Client, rules: readonly Rule[], site: string | undefined, query: Query): Rule {
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
    // A value that is not a list has no number of items.
    checkList(name, value);
    // Some servers separate at each comma, also at one between quotes.
    let items = 1;
    for (let comma = value.indexOf(','); comma !== -1; comma = value.indexOf(',', comma + 1)) items += 1;
    if (items > max) {
      throw parameterInvalid(name, `has ${items} items: this client may send at most ${max} at once`);
    }
  }
  if (values === undefined || values.has(value)) return;
  if (!value.startsWith("'") || !itemsOf(name, value).every((item) => values.has(item))) {
    throw forbidden(client, `may not send this value of the parameter ${name}`);
  }
}

/** The site of a request. */
interface Site {
  readonly name: string;
  readonly credential: string;
  /** The parameter that the upstream request must add; undefined: the request contains the site. */
  readonly added?: string;
}

/**
 * Returns the site that a query names; without one, the only site that the rules allow, if injection is on.
 * @throws GatewayError `site-required`, `site-unknown`, `parameter-invalid`
 */
function siteOf(sites: Sites, query: Query, rules: readonly Rule[]): Site {
  const { parameter, credentials } = sites;
  const name = query.decodeExactly(parameter);
  if (name === undefined) return onlySite(sites, rules);
  if (name === '') throw required(parameter, 'is empty: name a site');
  const credential = credentials.get(name);
  if (credential !== undefined) return { name, credential };
  throw new GatewayError('site-unknown', `The parameter ${parameter} names a site that is not configured.`);
}

function onlySite({ parameter, credentials, inject }: Sites, rules: readonly Rule[]): Site {
  if (!inject) throw required(parameter, 'is missing: name a site');
  const allowed = new Set(
    rules.flatMap(({ sites }) => Array.from(sites === '*' ? credentials.keys() : sites)),
  );
  const [name] = allowed;
  const credential = credentials.get(name ?? '');
  if (name !== undefined && credential !== undefined && allowed.size === 1) {
    return { name, credential, added: parameter };
  }
  throw required(parameter, 'is missing, and more than one site is possible: name one');
}

function required(parameter: string, reason: string): GatewayError {
  return new GatewayError('site-required', `The parameter ${parameter} ${reason}.`);
}
