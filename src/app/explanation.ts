import { type ErrorCode, GatewayError } from '../base/errors.ts';
import { getOrInsert } from '../base/maps.ts';
import { joinedValue, type RawHeaders } from '../base/raw-headers.ts';
import { endText, formatInstant } from '../base/units.ts';
import { type ApiKey, apiKeysOf } from '../config/api-keys.ts';
import { formatPath } from '../config/issues.ts';
import { sharedSettings } from '../config/listen.ts';
import type { Config } from '../config/schema.ts';
import type { ExplanationView, ObservedRefusalView } from '../control/client-view.ts';
import { outboundHeaders } from '../gateway/headers.ts';
import { bodyFraming, checkRequestLine } from '../gateway/request-reader.ts';
import {
  checkHost,
  checkMethod,
  checkSite,
  checkUpgrade,
  commonScheme,
  hostOf,
  hostsOf,
  parseTarget,
  Routes,
} from '../gateway/routing.ts';
import { hasApiKey } from '../identity/client-index.ts';
import type { LimitSettings } from '../limits/store.ts';
import { decide, type Grant, type Request } from '../policy/decide.ts';
import { splitTarget, withoutPrefix } from '../policy/path.ts';
import { Query } from '../policy/query.ts';
import {
  ANONYMOUS,
  type Client,
  compileRules,
  type DeploymentRules,
  isObserved,
  type Rule,
  unrestricted,
} from '../policy/rules.ts';

type Identify = Config['clients'][number]['identify'];

/** A request to explain. */
interface ExplainedRequest {
  readonly client: Client;
  readonly method: string;
  readonly target: string;
  /** Host of the Host header; undefined: a name of the gateway. */
  readonly host: string | undefined;
  /** Other header fields; Content-Length or Transfer-Encoding stands for a body. */
  readonly headers?: RawHeaders;
  /** When it is sent, in Unix milliseconds: keys and rules end. */
  readonly now: number;
}

/** Returns the client of this id, or the anonymous one if everyone is served; undefined: there is none. */
export function clientIn({ clients, anonymous }: Config, id: string | undefined): Client | undefined {
  if (anonymous && (id === undefined || id === ANONYMOUS.id)) return ANONYMOUS;
  return clients.find((client) => client.id === id);
}

/** Returns how requests of a client are recognised; undefined: it is the anonymous one, or there is none. */
export function identifyOf({ clients }: Config, { id }: Pick<Client, 'id'>): Identify | undefined {
  return clients.find((client) => client.id === id)?.identify;
}

/** Decides on a request as a gateway with this configuration does, without sending it. */
export function explain(
  config: Config,
  { client, method, target, host: named, headers = [], now }: ExplainedRequest,
): ExplanationView {
  const identified = clientConditions(config, client, now);
  const hosts = commonHosts(config);
  const [first = ''] = hosts ?? ['localhost'];
  const host = named ?? joinedValue(headers, 'host') ?? first;
  let deployment = '';
  try {
    checkRequestLine(method, target, sharedSettings(config.listen).limits.headerSize);
    const framing = bodyFraming(headers, '1.1');
    if (framing instanceof GatewayError) throw framing;
    hostOf({ httpVersion: '1.1', headers: ['Host', host] });
    const parsed = parseTarget(target, host);
    checkMethod({ method, headers });
    checkUpgrade({ httpVersion: '1.1', headers });
    checkHost(hosts, parsed);
    checkKeys(config, client, now);
    if (isAmbient(config, client)) checkSite({ method, headers }, parsed, commonScheme(config));
    const { name, settings } = routesOf(config).find(parsed);
    deployment = name;
    const rules = compileRules(name, settings, config.deployments);
    const fields = outboundHeaders(headers, '1.1', settings.forwardTrace);
    const request = { method, target: parsed.path, headers: fields, hasBody: hasBody(headers) };
    const { grant, refusal } = judged(rules, client, request, now);
    const { rule } = grant;
    const decidingRule =
      refusal === undefined ? rulePath(config, client, rule) : `${clientPath(config, client)}.mode`;
    return {
      allowed: true,
      client: client.id,
      identifiedBy: identified,
      deployment,
      rule: decidingRule,
      ...(refusal && { wouldRefuse: observedRefusal(refusal, client, clientPath(config, client)) }),
      ends: rule.ends === undefined ? '' : formatInstant(rule.ends),
      endedRules: endedRules(config, client, name, now),
      operation: grant.operation,
      site: grant.site,
      credential: grant.credential,
      credentialBy:
        rule.credential === undefined
          ? formatPath(['deployments', name, ...(grant.site === '' ? [] : ['sites', grant.site])])
          : decidingRule,
      sends: `${method} ${settings.baseUrl[0]}${grant.target}`,
      siteAdded: grant.target !== withoutPrefix(parsed.path, rules.stripPrefix),
      drops: namesOf(fields).filter((name) => !namesOf(grant.headers).includes(name)),
      parameters: checkedParameters(rules, grant),
      limits: [
        ...limitTexts(`client ${client.id}`, config.clients.find(({ id }) => id === client.id)?.limits),
        ...limitTexts(`deployment ${name}`, settings.limits),
      ],
    };
  } catch (error) {
    if (!(error instanceof GatewayError)) throw error;
    const { code, detail, kind } = error;
    const rule = decidingPart(code, clientPath(config, client), deployment);
    return {
      allowed: false,
      client: client.id,
      identifiedBy: identified,
      deployment,
      rule,
      endedRules: endedRules(config, client, deployment, now),
      status: kind.status,
      code,
      detail,
    };
  }
}

/** The names of the gateway at any listener; undefined: one takes any name. */
function commonHosts(config: Config): ReadonlySet<string> | undefined {
  const hosts = hostsOf(config);
  return hosts.includes(undefined) ? undefined : new Set(hosts.flatMap((names) => [...(names ?? [])]));
}

/** @throws GatewayError `client-key-expired` if no API key of the client holds any more */
function checkKeys(config: Config, client: Client, now: number): void {
  const identify = identifyOf(config, client);
  if (identify === undefined || !hasApiKey(identify)) return;
  for (const { expires } of apiKeysOf(identify)) if (expires === undefined || expires > now) return;
  throw new GatewayError(
    'client-key-expired',
    `Each API key of the client ${client.id} has ended. Add another one under identify.apiKeys.`,
  );
}

/** True if requests of the client need no credential, so that a page can make a browser send them. */
function isAmbient(config: Config, client: Client): boolean {
  const identify = identifyOf(config, client);
  return identify === undefined || (identify.jwt === undefined && !hasApiKey(identify));
}

function namesOf(fields: RawHeaders): string[] {
  return fields.filter((_, at) => at % 2 === 0);
}

/** The site and the parameters of the operation of a granted request, decoded, by name. */
function checkedParameters(
  { sites, catalogue }: DeploymentRules,
  { operation, target }: Grant,
): Readonly<Record<string, string>> {
  const query = new Query(splitTarget(target).query);
  const { parameters = [] } = catalogue.operations.find(({ name }) => name === operation) ?? {};
  const names = [...(sites === undefined ? [] : [sites.parameter]), ...parameters.map(({ name }) => name)];
  const values = new Map(names.map((name) => [name, query.decode(name)]));
  return Object.fromEntries([...values].filter((entry): entry is [string, string] => entry[1] !== undefined));
}

/** Decides as the gateway does; `refusal`: that of rules which are only observed. */
function judged(
  rules: DeploymentRules,
  client: Client,
  request: Request,
  now: number,
): { readonly grant: Grant; readonly refusal?: GatewayError } {
  try {
    return { grant: decide(rules, client, request, now) };
  } catch (refusal) {
    if (!(refusal instanceof GatewayError) || !isObserved(client, now)) throw refusal;
    return { grant: decide(rules, unrestricted(client), request, now), refusal };
  }
}

/** The rules of the client alone decide: without them the request is granted. */
function observedRefusal(
  { code, detail, kind }: GatewayError,
  { mode }: Client,
  path: string,
): ObservedRefusalView {
  const until = formatInstant(mode?.until ?? 0);
  return { rule: `${path}.allow`, status: kind.status, code, detail, until };
}

function hasBody(headers: RawHeaders): boolean {
  const length = joinedValue(headers, 'content-length') ?? '0';
  return Number(length) !== 0 || joinedValue(headers, 'transfer-encoding') !== undefined;
}

/** Returns the conditions of a client at a time in Unix milliseconds, one in each line. */
export function clientConditions(config: Config, client: Client, now: number): string[] {
  const identify = identifyOf(config, client);
  if (identify === undefined) return [IDENTIFIED_BY_NOTHING];
  return identifiedBy(identify, (keys) => keysText(keys, now));
}

/** The console shows this, so no part of a hash is in it. */
function keysText(keys: readonly ApiKey[], now: number): string {
  const [all, one] = keys.length === 1 ? ['an API key', ''] : [`one of ${keys.length} API keys`, 'one '];
  const ends = keys.flatMap(({ note, expires }) =>
    expires === undefined ? [] : `${note === undefined ? one : `${note} `}${endText(expires, now)}`,
  );
  return ends.length === 0 ? all : `${all} (${ends.join(', ')})`;
}

type ExplainedRoutes = Routes<{ readonly name: string; readonly settings: Config['deployments'][string] }>;

/** Many deployments make many routes, which the console asks for with each request that it explains. */
const knownRoutes = new WeakMap<Config, ExplainedRoutes>();

/** The routes of a configuration. */
export function routesOf(config: Config): ExplainedRoutes {
  return getOrInsert(knownRoutes, config, () => {
    const routes = Object.entries(config.deployments).map(([name, settings]) => ({
      deployment: { name, settings },
      match: { ...settings.match, baseUrl: settings.baseUrl },
    }));
    return new Routes(routes);
  });
}

export function rulePath(config: Config, client: Client, rule: Rule): string {
  return client === ANONYMOUS
    ? 'anonymous'
    : `${clientPath(config, client)}.allow[${client.allow.indexOf(rule)}]`;
}

function endedRules(config: Config, client: Client, deployment: string, now: number): string[] {
  return client.allow.flatMap((rule) =>
    rule.deployment === deployment && rule.ends !== undefined && rule.ends <= now
      ? `${rulePath(config, client, rule)} ended ${formatInstant(rule.ends)}`
      : [],
  );
}

function clientPath({ clients }: Config, { id }: Client): string {
  return `clients[${clients.findIndex((client) => client.id === id)}]`;
}

function decidingPart(code: ErrorCode, client: string, deployment: string): string {
  const ofDeployment = (key: string): string => formatPath(['deployments', deployment, key]);
  switch (code) {
    case 'client-forbidden':
      return `${client}.allow`;
    case 'operation-unlisted':
      return ofDeployment('unlistedOperations');
    case 'site-unknown':
    case 'site-required':
      return ofDeployment('sites');
    case 'parameter-invalid':
      return ofDeployment('operations');
    case 'client-key-expired':
      return `${client}.identify.apiKeys`;
    case 'host-unknown':
      return 'listen.hosts';
    case 'no-deployment':
      return 'deployments';
    default:
      return '';
  }
}

function limitTexts(whose: string, limits: LimitSettings | undefined): string[] {
  const { rate, concurrent, daily } = limits ?? {};
  return [
    rate && `${whose}: ${perSecond(rate.perSecond)}, ${rate.burst} at once after a pause`,
    concurrent === undefined ? undefined : `${whose}: ${concurrent} in flight at the same time`,
    daily === undefined ? undefined : `${whose}: ${daily} a day, UTC`,
  ].filter((text) => text !== undefined);
}

function perSecond(rate: number): string {
  return rate >= 1
    ? `${Number(rate.toFixed(2))} requests per second`
    : `${Number((rate * 60).toFixed(2))} requests per minute`;
}

/** Shown as the condition of the client `anonymous`. */
export const IDENTIFIED_BY_NOTHING = 'any other request that presents no API key, token or certificate';

/**
 * Returns a line for each condition of a client; all of them must hold. A request that presents another key, token or
 * certificate is not the client's. `keysText`: describes its API keys.
 */
export function identifiedBy(identify: Identify, keysText: (keys: readonly ApiKey[]) => string): string[] {
  const { addresses, certificate, jwt } = identify;
  const keys = [...apiKeysOf(identify)];
  return [
    addresses && `address ${addresses.join(', ')}`,
    keys.length > 0 ? keysText(keys) : undefined,
    certificate && `certificate ${pairs(certificate)}`,
    jwt && `token ${pairs({ ...jwt, ...jwt.claims, claims: undefined })}`,
  ].filter((line) => line !== undefined);
}

function pairs(conditions: object): string {
  return Object.entries(conditions)
    .filter(([, value]) => value !== undefined)
    .map(([name, value]) => `${name} ${String(value)}`)
    .join(', ');
}
