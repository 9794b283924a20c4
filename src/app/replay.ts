import { type ErrorCode, GatewayError } from '../base/errors.ts';
import { getOrInsert, ownEntry, putBounded } from '../base/maps.ts';
import { parseAddress } from '../base/network.ts';
import type { RawHeaders } from '../base/raw-headers.ts';
import type { Config } from '../config/schema.ts';
import { canonicalHost } from '../gateway/routing.ts';
import { decide, type Grant } from '../policy/decide.ts';
import { ANONYMOUS, type Client, compileRules, type DeploymentRules } from '../policy/rules.ts';
import { clientIn, identifyOf, routesOf } from './explanation.ts';

/** A request as the audit log has it. */
export interface RecordedRequest {
  /** RFC 3339. Rules are judged as they are at this time. */
  readonly time: string;
  readonly client: string;
  readonly address: string;
  readonly deployment: string;
  readonly site: string;
  readonly method: string;
  readonly path: string;
  /** Null: the value is not recorded. */
  readonly parameters: Readonly<Record<string, string | readonly string[] | null>>;
  readonly cut?: boolean;
  readonly hasBody: boolean;
  readonly credential?: { readonly name: string };
  /** The rule of then that named the credential. */
  readonly credentialRule?: string;
}

/** Why it cannot be known how a request is judged: what the record lacks decides. */
export const UNKNOWN = {
  parameter:
    'the value of a parameter decides, which is recorded by name only, or under a key that is destroyed or missing',
  spelling: 'the spelling of a %, + or ; in a parameter decides, which is not recorded',
  body: 'the type of the body decides, which is not recorded',
  cut: 'path or parameters were too long to be recorded whole',
  address:
    'the address decides, which is recorded under a key that is destroyed or missing, or belongs to another client',
  host: 'the host decides, which is not recorded; the configuration of the log can show it: --log-config',
} as const;

type UnknownReason = keyof typeof UNKNOWN;

/** How a configuration judges a recorded request. */
export type Judgement =
  | { readonly verdict: 'allowed'; readonly deployment: string; readonly grant: Grant }
  | { readonly verdict: 'refused'; readonly deployment: string; readonly code: ErrorCode }
  | {
      readonly verdict: 'unknown';
      readonly deployment: string;
      readonly reason: UnknownReason;
      /** If the request is allowed; undefined: it is not known what it would be granted. */
      readonly grant: Grant | undefined;
    };

type Outcome = Grant | ErrorCode;

/** A value that no parameter may have that is looked at: it holds a control character. */
const REFUSED_VALUE = '%01';
/** A name of a method, which some servers take from a parameter. */
const METHOD_VALUE = 'get';
/** The longest path that is recorded; a longer one is cut. */
const PATH_LENGTH = 2048;
/** Relaxed rules that are kept: one for each set of names that are recorded without value. */
const MAX_RELAXED = 1_000;
const NO_FIELDS: RawHeaders = [];
/** Of a body from which no server reads parameters. */
const OPAQUE_BODY: RawHeaders = ['content-type', 'application/octet-stream'];
/** Characters that a record has in the same way for two spellings, which can be read differently. */
export const AMBIGUOUS = /[%+]/;

/** Separates parameters for the gateway, and is a part of their names and values in a record. */
const SEPARATOR = ';';
/** Characters of names that a record has in the same way for two spellings. */
const AMBIGUOUS_NAME = /[+;]/;

/** The rules of a deployment and a client without what depends on some parameters. */
interface Relaxed {
  readonly rules: DeploymentRules;
  readonly client: Client;
  /** The client with one of its rules each, in their order. */
  readonly alone: readonly Client[];
}

/**
 * Judges recorded requests by a configuration, as a gateway with it would: `decide` with what the record has. Where the
 * record lacks something, it is judged in every way that matters; if the results differ, it cannot be known. Fields that
 * name another method or path are not recorded and are taken to be absent.
 */
export class Replay {
  readonly #config: Config;
  readonly #log: Config;
  /** True: a deployment has a host that led nowhere when the requests were recorded. */
  readonly #hasNewHost: boolean;
  readonly #rules = new Map<string, DeploymentRules>();
  readonly #relaxed = new WeakMap<Client, Map<string, Relaxed>>();

  /** `log`: the configuration with which the requests were recorded. */
  constructor(config: Config, log: Config = config) {
    this.#config = config;
    this.#log = log;
    const before = deploymentHosts(log);
    this.#hasNewHost = deploymentHosts(config).some((host) => !before.includes(host));
  }

  /** Judges a request of the client that is in the record. */
  judge(request: RecordedRequest): Judgement {
    const client = clientIn(this.#config, request.client);
    if (client === undefined) {
      return { verdict: 'refused', deployment: request.deployment, code: 'client-unknown' };
    }
    const address = this.#judgeAddress(client, request.address);
    if (address === 'refused') {
      return { verdict: 'refused', deployment: request.deployment, code: 'client-unknown' };
    }
    const judgement = this.judgeFor(client, request);
    if (address === 'allowed' || judgement.verdict === 'refused') return judgement;
    return { ...judgement, verdict: 'unknown', reason: 'address', grant: judgement.grant };
  }

  /** Judges a request by the rules of a client, whichever it is from. */
  judgeFor(client: Client, request: RecordedRequest): Judgement {
    const { deployment, isKnown } = this.#deploymentOf(request);
    if (deployment === undefined) {
      if (!isKnown) return { verdict: 'unknown', deployment: '', reason: 'host', grant: undefined };
      return { verdict: 'refused', deployment: request.deployment, code: 'no-deployment' };
    }
    const judgement = this.#judgeWithin(this.#rulesOf(deployment), client, request);
    if (isKnown) return judgement;
    const grant = judgement.verdict === 'refused' ? undefined : judgement.grant;
    return { verdict: 'unknown', deployment, reason: 'host', grant };
  }

  /** Whether the client may call from the address. */
  #judgeAddress(client: Client, recorded: string): Judgement['verdict'] {
    const networks = identifyOf(this.#config, client)?.addresses;
    if (networks === undefined) return 'allowed';
    const address = parseAddress(recorded);
    if (address === undefined) {
      const before = identifyOf(this.#log, client)?.addresses;
      return String(before) === String(networks) ? 'allowed' : 'unknown';
    }
    if (networks.some((network) => network.contains(address))) return 'allowed';
    const others = this.#config.clients.some(({ identify }) =>
      identify.addresses?.some((network) => network.contains(address)),
    );
    return others || this.#config.anonymous ? 'unknown' : 'refused';
  }

  /** The deployment that the request would go to; the log has no host, which can decide. */
  #deploymentOf({ deployment, path }: RecordedRequest): {
    readonly deployment: string | undefined;
    readonly isKnown: boolean;
  } {
    const byPath = deploymentByPath(this.#config, path);
    if (deployment === '') {
      // It had none. If its path has one in the configuration of the log, it was in absolute form for another upstream.
      const hadNone = deploymentByPath(this.#log, path) === undefined;
      return { deployment: byPath, isKnown: hadNone && !this.#hasNewHost };
    }
    const isThere = Object.hasOwn(this.#config.deployments, deployment);
    if (byPath === deployment || !isThere) return { deployment: byPath, isKnown: true };
    const isOtherLog = this.#log !== this.#config;
    if (isOtherLog && deploymentByPath(this.#log, path) === deployment) {
      return { deployment: byPath, isKnown: true };
    }
    // Its host or, in absolute form, its upstream has led the request to its deployment.
    const isNamed = isOtherLog || ownEntry(this.#config.deployments, deployment)?.match.host !== undefined;
    return { deployment, isKnown: isNamed };
  }

  #judgeWithin(rules: DeploymentRules, client: Client, request: RecordedRequest): Judgement {
    const { deployment } = rules;
    if (!request.hasBody) return this.#judgeFields(rules, client, request, NO_FIELDS);
    const typeless = this.#judgeFields(rules, client, request, NO_FIELDS);
    const typed = this.#judgeFields(rules, client, request, OPAQUE_BODY);
    if (typeless.verdict === typed.verdict || typed.verdict === 'refused') return typed;
    return { verdict: 'unknown', deployment, reason: 'body', grant: typed.grant };
  }

  #judgeFields(
    rules: DeploymentRules,
    client: Client,
    request: RecordedRequest,
    headers: RawHeaders,
  ): Judgement {
    const { deployment } = rules;
    const isCut = request.cut === true;
    const at = Date.parse(request.time);
    const targets = targetsOf(request, rules);
    const outcomesBy = (given: DeploymentRules, of: Client): Outcome[] =>
      targets.map((target) => decided(given, of, { ...request, target, headers }, at));
    const outcomes = outcomesBy(rules, client);
    const grant = outcomes.find(isGrant);
    const names = withoutValue(request, rules, client);
    const relaxed = this.#relaxedBy(rules, client, names);
    if (!isCut && grant !== undefined) {
      // With another value, a rule before may allow the request, with another credential.
      const before = relaxed.alone.slice(0, client.allow.indexOf(grant.rule));
      const others = before.flatMap((each) => outcomesBy(relaxed.rules, each));
      const all = [...outcomes, ...others.filter(isGrant)];
      if (all.every((each) => isGrant(each) && each.credential === grant.credential)) {
        return { verdict: 'allowed', deployment, grant };
      }
    }
    const reason = isCut ? 'cut' : valueDecides(request) ? 'parameter' : 'spelling';
    if (grant !== undefined || (isCut && request.path.length >= PATH_LENGTH)) {
      return { verdict: 'unknown', deployment, reason, grant };
    }
    // If it is refused whatever the values are, they do not matter.
    const possible = outcomesBy(relaxed.rules, relaxed.client);
    const possibleGrant = possible.find(isGrant);
    if (possibleGrant !== undefined) {
      return { verdict: 'unknown', deployment, reason, grant: possibleGrant };
    }
    return { verdict: 'refused', deployment, code: firstCode(possible) };
  }

  #rulesOf(deployment: string): DeploymentRules {
    return getOrInsert(this.#rules, deployment, () =>
      compileRules(deployment, this.#settingsOf(deployment), this.#config.deployments),
    );
  }

  #settingsOf(deployment: string): Config['deployments'][string] {
    const settings = ownEntry(this.#config.deployments, deployment);
    if (settings === undefined) throw new Error(`there is no deployment ${deployment}`);
    return settings;
  }

  /** The rules without what depends on the values of some parameters. */
  #relaxedBy(rules: DeploymentRules, client: Client, names: readonly string[]): Relaxed {
    if (names.length === 0) return { rules, client, alone: [] };
    const ofClient = getOrInsert(this.#relaxed, client, () => new Map<string, Relaxed>());
    const key = JSON.stringify([rules.deployment, ...names]);
    const known = ofClient.get(key);
    if (known !== undefined) return known;
    const relaxed = this.#relax(rules, client, new Set(names));
    putBounded(ofClient, key, relaxed, MAX_RELAXED);
    return relaxed;
  }

  #relax({ deployment, sites }: DeploymentRules, client: Client, names: ReadonlySet<string>): Relaxed {
    const { deployments } = this.#config;
    const settings = this.#settingsOf(deployment);
    const isUnnamed = (name: string): boolean => !names.has(name);
    const { restricted } = settings;
    const operations = Object.entries(settings.operations).map(([name, operation]) => {
      const kept = Object.entries(operation.parameters).filter(([parameter]) => isUnnamed(parameter));
      return [name, { ...operation, parameters: Object.fromEntries(kept) }] as const;
    });
    const parameterNames = [...restricted.parameterNames, ...names];
    const relaxed = {
      ...settings,
      operations: Object.fromEntries(operations),
      restricted: { ...restricted, parameterNames },
    };
    const rules = compileRules(deployment, relaxed, deployments);
    const isSiteKnown = sites === undefined || isUnnamed(sites.parameter);
    const other = client === ANONYMOUS ? client : withoutLimits(client, isUnnamed);
    return {
      rules: isSiteKnown ? rules : { ...rules, sites: undefined },
      client: other,
      alone: other.allow.map((rule) => ({ ...other, allow: [rule] })),
    };
  }
}

function withoutLimits(client: Client, isKept: (name: string) => boolean): Client {
  const allow = client.allow.map((rule) => ({
    ...rule,
    parameters: rule.parameters.filter(({ name }) => isKept(name)),
  }));
  return { ...client, allow };
}

function deploymentHosts({ deployments }: Config): string[] {
  return Object.values(deployments).flatMap(({ match: { host } }) =>
    host === undefined ? [] : canonicalHost(host),
  );
}

/** The deployment of a path; undefined: there is none. */
function deploymentByPath(config: Config, path: string): string | undefined {
  try {
    return routesOf(config).find({ authority: '', absolute: false, path }).name;
  } catch (error) {
    if (error instanceof GatewayError) return undefined;
    throw error;
  }
}

function decided(
  rules: DeploymentRules,
  client: Client,
  { method, target, headers, hasBody }: Parameters<typeof decide>[2],
  at: number,
): Outcome {
  try {
    return decide(rules, client, { method, target, headers, hasBody }, at);
  } catch (error) {
    if (error instanceof GatewayError) return error.code;
    throw error;
  }
}

function firstCode(outcomes: readonly Outcome[]): ErrorCode {
  return outcomes.find((each) => typeof each === 'string') ?? 'internal-error';
}

function isGrant(outcome: Outcome): outcome is Grant {
  return typeof outcome !== 'string';
}

/** The names of the parameters whose values can decide, apart from those of methods. */
function lookedAt({ parameterNames, deployment }: DeploymentRules, { allow }: Client): string[] {
  const limits = allow
    .filter((rule) => rule.deployment === deployment)
    .flatMap(({ parameters }) => parameters);
  return [...new Set([...parameterNames, ...limits.map(({ name }) => name)])].sort();
}

/** Those of them whose values the record does not have, or not whole. The site is known if there was one. */
function withoutValue(request: RecordedRequest, rules: DeploymentRules, client: Client): string[] {
  const { parameters, site, cut = false } = request;
  return lookedAt(rules, client).filter((name) => {
    if (name === rules.sites?.parameter && name in parameters && site !== '') return false;
    return cut || parameters[name] === null;
  });
}

/** True if a value that is not recorded can decide; otherwise it is the spelling of what is recorded. */
function valueDecides({ parameters }: RecordedRequest): boolean {
  return Object.entries(parameters).some(([name, value]) => value === null && !AMBIGUOUS_NAME.test(name));
}

/**
 * The targets that the request may have had. A parameter without value gets one that is refused wherever it is looked
 * at, and with a name of a method also one that counts as a method.
 */
function targetsOf({ path, parameters, site }: RecordedRequest, { sites }: DeploymentRules): string[] {
  const pairs = Object.entries(parameters).flatMap(([name, values]) =>
    [values].flat().map((value) => [name, value] as const),
  );
  const target = (
    spell: (value: string) => string,
    unrecorded: (name: string) => string,
    spellName = encoded,
  ): string => {
    if (pairs.length === 0) return path;
    const query = pairs.map(
      ([name, value]) => `${spellName(name)}=${value === null ? unrecorded(name) : spell(value)}`,
    );
    return `${path}?${query.join('&')}`;
  };
  const refused = (name: string): string =>
    name === sites?.parameter && site !== '' ? encoded(site) : REFUSED_VALUE;
  const targets = [target(encoded, refused)];
  if (pairs.some(([name, value]) => name.includes('+') || (value !== null && AMBIGUOUS.test(value)))) {
    const spell = (value: string): string => encoded(value).replaceAll('%25', '%').replaceAll('%2B', '+');
    targets.push(target(spell, refused, withPlus));
  }
  if (pairs.some((pair) => pair.some((text) => text?.includes(SEPARATOR)))) {
    const spell = (text: string): string => encoded(text).replaceAll('%3B', SEPARATOR);
    targets.push(target(spell, refused, spell));
  }
  const isMethod = (name: string): boolean => /method/i.test(name);
  if (pairs.some(([name, value]) => value === null && isMethod(name))) {
    targets.push(target(encoded, (name) => (isMethod(name) ? METHOD_VALUE : refused(name)), withPlus));
  }
  return targets;
}

/** A name with its plus signs as they are, which servers that decode forms read as spaces. */
function withPlus(name: string): string {
  return encoded(name).replaceAll('%2B', '+');
}

function encoded(text: string): string {
  return encodeURIComponent(text.toWellFormed());
}
