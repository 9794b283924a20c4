import type { Config } from '../config/schema.ts';
import type { Client, Names, ParameterLimit, Rule } from '../policy/rules.ts';
import type { Judgement, RecordedRequest, Replay } from './replay.ts';

/** Values of a parameter that are kept at most; with more, a rule does not list them. */
const MAX_VALUES = 1_000;
/** Characters that a record has in the same way for two spellings. */
const AMBIGUOUS = /[%+]/;

/** A value that a rule can name; the empty one is none. */
const NAMEABLE = /./u;

/** A rule with what it has served. */
export interface LearnedRule extends Rule {
  readonly requests: number;
  /** Requests of each site, operation and method; empty where the rule does not name any. */
  readonly ofSites: ReadonlyMap<string, number>;
  readonly ofOperations: ReadonlyMap<string, number>;
  readonly ofMethods: ReadonlyMap<string, number>;
}

/** A kind of requests that no rule of a client can serve. */
export interface Unservable {
  readonly deployment: string;
  /** Code of the error, or the reason why it cannot be known. */
  readonly code: string;
  readonly requests: number;
}

/** The values of a parameter, as far as they are known. */
interface Values {
  max: number;
  /** Undefined: there are too many. */
  values: Set<string> | undefined;
  isMissing: boolean;
  /** True: a value is not recorded, or a limit would refuse its request. */
  isUnlimited: boolean;
}

/** Requests of one operation, method and site. */
interface Shape {
  readonly operation: string;
  readonly method: string;
  /** Undefined: a rule must not depend on the site. */
  readonly site: string | undefined;
  requests: number;
  readonly values: Map<string, Values>;
}

/** The requests of a deployment. */
interface Used {
  readonly shapes: Map<string, Shape>;
  /** Requests that a rule with restrictions would refuse. */
  unrestricted: number;
}

/**
 * Learns the tightest rules of a client from what was served. A rule names the deployment, sites, operations and methods
 * of requests, and limits of parameters that a present rule of the client limits. A request that a rule with a restriction
 * would refuse, since servers can read it in two ways, makes that restriction go.
 */
export class Learner {
  readonly #replay: Replay;
  readonly #id: string;
  readonly #deployments: readonly string[];
  readonly #present: readonly Rule[];
  readonly #used = new Map<string, Used>();
  readonly #unservable = new Map<string, { deployment: string; code: string; requests: number }>();
  readonly #limits = new Map<string, readonly ParameterLimit[]>();
  /** Clients with one rule for each deployment, or one rule alone. */
  readonly #clients = new Map<string, Client>();

  /** `replay`: judges by the configuration that the rules are for. */
  constructor(config: Config, replay: Replay, id: string) {
    this.#replay = replay;
    this.#id = id;
    this.#deployments = Object.keys(config.deployments);
    this.#present = config.clients.find((client) => client.id === id)?.allow ?? [];
  }

  get unservable(): readonly Unservable[] {
    return [...this.#unservable.values()].sort((a, b) => b.requests - a.requests);
  }

  /** Takes a request that was served. */
  add(request: RecordedRequest): void {
    const judgement = this.#judgeWithoutRules(request);
    const grant = judgement.verdict === 'refused' ? undefined : judgement.grant;
    if (grant === undefined) {
      this.#addUnservable(judgement);
      return;
    }
    const { deployment } = judgement;
    const { operation } = grant;
    const used = this.#usedOf(deployment);
    // Where it cannot be known, the request was served: the tighter rule stays.
    const holds = (client: Client): boolean => this.#replay.judgeFor(client, request).verdict !== 'refused';
    for (const site of grant.site === '' ? [undefined] : [grant.site, undefined]) {
      const use = { deployment, operation, method: request.method, site };
      const client = this.#clientOf(use);
      if (!holds(client)) continue;
      const shape = shapeIn(used.shapes, use);
      shape.requests += 1;
      this.#addValues(shape, request, client, holds);
      return;
    }
    used.unrestricted += 1;
  }

  /** The rules, as few as are exact. */
  rules(): LearnedRule[] {
    return [...this.#used].flatMap(([deployment, { shapes, unrestricted }]) => {
      const all = [...shapes.values()];
      if (unrestricted === 0) return this.#rulesOf(deployment, all);
      const requests = all.reduce((sum, shape) => sum + shape.requests, unrestricted);
      return [{ ...learnedRule(deployment, '*', [], []), operations: '*', methods: '*', requests }];
    });
  }

  #rulesOf(deployment: string, shapes: readonly Shape[]): LearnedRule[] {
    const byUse = Map.groupBy(shapes, ({ operation, method }) => JSON.stringify([operation, method]));
    const bySites = Map.groupBy(byUse.values(), (uses) => JSON.stringify(sitesOf(uses)));
    return [...bySites.values()].flatMap((group) => {
      const sites = namesOf(sitesOf(group[0] ?? []));
      const all = group.flat();
      const unlisted = new Set(all.filter(({ operation }) => operation === '').map(({ method }) => method));
      // A rule for what no operation lists covers what operations list, too.
      const covered = all.filter(({ method }) => unlisted.has(method));
      const others = all.filter(({ method }) => !unlisted.has(method));
      const byOperation = Map.groupBy(others, ({ operation }) => operation);
      const byMethods = Map.groupBy(byOperation.values(), (each) =>
        JSON.stringify([...new Set(each.map(({ method }) => method))].sort()),
      );
      const rules = [...byMethods.values()].map((each) =>
        learnedRule(deployment, sites, each.flat(), this.#limitsOf(deployment, each.flat())),
      );
      if (covered.length === 0) return rules;
      const rule = learnedRule(deployment, sites, covered, this.#limitsOf(deployment, covered));
      return [...rules, { ...rule, operations: '*' as const, ofOperations: new Map() }];
    });
  }

  /** The limits of the parameters that a present rule limits, as far as they are known. */
  #limitsOf(deployment: string, shapes: readonly Shape[]): ParameterLimit[] {
    return this.#limitsIn(deployment).flatMap(({ name, max, values }) => {
      const known = shapes.flatMap((shape) => shape.values.get(name) ?? []);
      if (known.some(({ isUnlimited }) => isUnlimited)) return [];
      const most = Math.max(0, ...known.map((each) => each.max));
      const isListed = values !== undefined && known.every((each) => each.values && !each.isMissing);
      const limit = {
        name,
        max: max === undefined || most === 0 ? undefined : most,
        values: isListed ? new Set(known.flatMap((each) => [...(each.values ?? [])])) : undefined,
      };
      return limit.max === undefined && limit.values === undefined ? [] : [limit];
    });
  }

  /** The limits of present rules for a deployment, those of one parameter as one. */
  #limitsIn(deployment: string): readonly ParameterLimit[] {
    const known = this.#limits.get(deployment);
    if (known !== undefined) return known;
    const all = this.#present
      .filter((rule) => rule.deployment === deployment)
      .flatMap(({ parameters }) => parameters);
    const limits = [...Map.groupBy(all, ({ name }) => name)].map(([name, same]) => ({
      name,
      max: same.find(({ max }) => max !== undefined)?.max,
      values: same.find(({ values }) => values !== undefined)?.values,
    }));
    this.#limits.set(deployment, limits);
    return limits;
  }

  #addValues(
    shape: Shape,
    { parameters }: RecordedRequest,
    client: Client,
    holds: (client: Client) => boolean,
  ): void {
    const [rule] = client.allow;
    const present = this.#limitsIn(rule?.deployment ?? '');
    if (rule === undefined || present.length === 0) return;
    const limits = present.map((limit) => ({ limit, just: justLimit(limit, parameters[limit.name]) }));
    // A limit reads the query of requests without the parameter, too, and refuses some of them for other names.
    const given = limits.flatMap(({ limit: { name, max }, just }) => {
      if (just !== undefined) return just;
      return max === undefined || name in parameters ? [] : { name, max: 1, values: undefined };
    });
    const isLimited = holds({ ...client, allow: [{ ...rule, parameters: given }] });
    for (const { limit, just } of limits) {
      const isUnlimited = !isLimited || (just === undefined && limit.name in parameters);
      addValues(shape.values, limit.name, just, isUnlimited);
    }
  }

  /** Judges a request as if its client had every right, or else every right for the site that it was for. */
  #judgeWithoutRules(request: RecordedRequest): Judgement {
    const judgement = this.#replay.judgeFor(this.#clientFor(undefined), request);
    if (judgement.verdict !== 'refused' || request.site === '') return judgement;
    return this.#replay.judgeFor(this.#clientFor(request.site), request);
  }

  /** A client with every right for that site, or for all. */
  #clientFor(site: string | undefined): Client {
    return this.#known(JSON.stringify([site]), () =>
      this.#deployments.map((deployment) => ruleOf({ deployment, site, operation: '', method: undefined })),
    );
  }

  #clientOf(use: Use): Client {
    const { deployment, site, operation, method } = use;
    return this.#known(JSON.stringify([site, deployment, operation, method]), () => [ruleOf(use)]);
  }

  #known(key: string, rules: () => Rule[]): Client {
    const known = this.#clients.get(key);
    if (known !== undefined) return known;
    const client = { id: this.#id, allow: rules() };
    this.#clients.set(key, client);
    return client;
  }

  #usedOf(deployment: string): Used {
    const known = this.#used.get(deployment);
    if (known !== undefined) return known;
    const used = { shapes: new Map<string, Shape>(), unrestricted: 0 };
    this.#used.set(deployment, used);
    return used;
  }

  #addUnservable(judgement: Judgement): void {
    if (judgement.verdict === 'allowed') return;
    const { deployment } = judgement;
    const code = judgement.verdict === 'refused' ? judgement.code : judgement.reason;
    const key = JSON.stringify([deployment, code]);
    const known = this.#unservable.get(key) ?? { deployment, code, requests: 0 };
    known.requests += 1;
    this.#unservable.set(key, known);
  }
}

/** A use of a deployment. */
interface Use {
  readonly deployment: string;
  /** Undefined: any. */
  readonly site: string | undefined;
  /** Empty: any, and what no operation lists. */
  readonly operation: string;
  /** Undefined: any. */
  readonly method: string | undefined;
}

function ruleOf({ deployment, site, operation, method }: Use): Rule {
  return {
    deployment,
    sites: site === undefined ? '*' : new Set([site]),
    operations: operation === '' ? '*' : new Set([operation]),
    methods: method === undefined ? '*' : new Set([method]),
    parameters: [],
  };
}

function shapeIn(
  shapes: Map<string, Shape>,
  { operation, method, site }: Pick<Shape, 'operation' | 'method' | 'site'>,
): Shape {
  const key = JSON.stringify([operation, method, site]);
  const known = shapes.get(key);
  if (known !== undefined) return known;
  const shape = { operation, method, site, requests: 0, values: new Map<string, Values>() };
  shapes.set(key, shape);
  return shape;
}

/** The sites of uses; empty: a rule must not depend on them. */
function sitesOf(shapes: readonly Shape[]): string[] {
  const sites = shapes.map(({ site }) => site);
  return sites.includes(undefined) ? [] : [...new Set(sites.filter((site) => site !== undefined))].sort();
}

function namesOf(list: readonly string[]): Names {
  return list.length === 0 ? '*' : new Set(list);
}

function learnedRule(
  deployment: string,
  sites: Names,
  shapes: readonly Shape[],
  parameters: readonly ParameterLimit[],
): LearnedRule {
  const counted = (of: (shape: Shape) => string | undefined): Map<string, number> => {
    const counts = new Map<string, number>();
    for (const shape of shapes) {
      const name = of(shape);
      if (name !== undefined) counts.set(name, (counts.get(name) ?? 0) + shape.requests);
    }
    return new Map([...counts].sort(([a], [b]) => (a < b ? -1 : 1)));
  };
  const ofOperations = counted(({ operation }) => operation);
  const ofMethods = counted(({ method }) => method);
  return {
    deployment,
    sites,
    operations: new Set(ofOperations.keys()),
    methods: new Set(ofMethods.keys()),
    parameters,
    requests: shapes.reduce((sum, shape) => sum + shape.requests, 0),
    ofSites: counted(({ site }) => (sites === '*' ? undefined : site)),
    ofOperations,
    ofMethods,
  };
}

/** The limit of the same kind that just allows a value; undefined: it is not known, or there is none. */
function justLimit(
  { name, max, values }: ParameterLimit,
  value: RecordedRequest['parameters'][string] | undefined,
): ParameterLimit | undefined {
  if (typeof value !== 'string' || AMBIGUOUS.test(value)) return undefined;
  const items = Array.from(value.matchAll(/'([^']*)'/g), ([, item = '']) => item);
  const listed = value.startsWith("'") ? items : [value];
  return {
    name,
    max: max === undefined ? undefined : value.split(',').length,
    values: values && listed.every((each) => NAMEABLE.test(each)) ? new Set(listed) : undefined,
  };
}

function addValues(
  known: Map<string, Values>,
  name: string,
  just: ParameterLimit | undefined,
  isUnlimited: boolean,
): void {
  const before = known.get(name) ?? { max: 0, values: new Set(), isMissing: false, isUnlimited: false };
  known.set(name, before);
  before.isUnlimited ||= isUnlimited;
  before.max = Math.max(before.max, just?.max ?? 0);
  before.isMissing ||= just === undefined;
  if (just !== undefined && just.values === undefined) before.values = undefined;
  for (const each of just?.values ?? []) before.values?.add(each);
  if (before.values !== undefined && before.values.size > MAX_VALUES) before.values = undefined;
}
