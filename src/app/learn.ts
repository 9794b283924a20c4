import { getOrInsert, ownEntry } from '../base/maps.ts';
import type { Config } from '../config/schema.ts';
import { type Client, endOf, type Names, type ParameterLimit, type Rule } from '../policy/rules.ts';
import { addValues, limitsOf, type Values } from './learned-values.ts';
import type { Judgement, RecordedRequest, Replay } from './replay.ts';

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

/** Requests of one operation, method and site. */
interface Shape {
  readonly operation: string;
  readonly method: string;
  /** Undefined: a rule must not depend on the site. */
  readonly site: string | undefined;
  requests: number;
  readonly values: Map<string, Values>;
}

/** The requests of a deployment whose present rules have one credential and one end. */
interface Used {
  readonly terms: Terms;
  /** The present rule of them all; undefined: they may be of several. */
  readonly rule: Rule | undefined;
  /** Of the present rule in its list. */
  readonly place: number;
  readonly shapes: Map<string, Shape>;
  /** Requests that a rule with restrictions would refuse. */
  unrestricted: number;
}

/** The terms that a rule takes over from the present one, since no request shows them. */
type Terms = Pick<Rule, 'credential' | 'ends'>;

/**
 * Learns the tightest rules of a client from what was served. A rule names the deployment, sites, operations and methods
 * of requests, and limits of parameters that a present rule of the client limits. It has the credential and the end of
 * the present rule that allows its requests. A request that a rule with a restriction
 * would refuse, since servers can read it in two ways, makes that restriction go.
 */
export class Learner {
  readonly #replay: Replay;
  readonly #id: string;
  readonly #deployments: readonly string[];
  readonly #credentials: Config['credentials'];
  readonly #present: Client;
  /** By deployment, then by terms, and by present rule where credentials differ. */
  readonly #used = new Map<string, Map<string, Used>>();
  readonly #unservable = new Map<string, { deployment: string; code: string; requests: number }>();
  readonly #limits = new Map<string, readonly ParameterLimit[]>();
  /** Clients with one rule for each deployment, or one rule alone. */
  readonly #clients = new Map<string, Client>();

  /** `replay`: judges by the configuration that the rules are for. */
  constructor(config: Config, replay: Replay, id: string) {
    this.#replay = replay;
    this.#id = id;
    this.#deployments = Object.keys(config.deployments);
    this.#credentials = config.credentials;
    this.#present = { id, allow: config.clients.find((client) => client.id === id)?.allow ?? [] };
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
    const present = this.#presentRule(deployment, request);
    const used = this.#usedOf(deployment, present, this.#termsOf(deployment, present, request));
    // Where it cannot be known, the request was served: the tighter rule stays.
    const holds = (client: Client): boolean => this.#replay.judgeFor(client, request).verdict !== 'refused';
    for (const site of grant.site === '' ? [undefined] : [grant.site, undefined]) {
      const use = { deployment, operation, method: request.method, site };
      const client = this.#clientOf(use);
      if (!holds(client)) continue;
      const shape = shapeIn(used.shapes, use);
      shape.requests += 1;
      this.#addValues(shape, request, client, used, holds);
      return;
    }
    used.unrestricted += 1;
  }

  /** The rules, as few as are exact. */
  rules(): LearnedRule[] {
    return [...this.#used].flatMap(([deployment, byTerms]) =>
      [...byTerms.values()]
        .sort((a, b) => a.place - b.place)
        .flatMap(({ terms, shapes, unrestricted }) =>
          this.#rulesWith(deployment, [...shapes.values()], unrestricted).map((rule) => ({
            ...rule,
            ...terms,
          })),
        ),
    );
  }

  #rulesWith(deployment: string, shapes: readonly Shape[], unrestricted: number): LearnedRule[] {
    if (unrestricted === 0) return this.#rulesOf(deployment, shapes);
    const requests = shapes.reduce((sum, shape) => sum + shape.requests, unrestricted);
    return [{ ...learnedRule(deployment, '*', [], []), operations: '*', methods: '*', requests }];
  }

  #rulesOf(deployment: string, shapes: readonly Shape[]): LearnedRule[] {
    const byUse = Map.groupBy(shapes, ({ operation, method }) => JSON.stringify([operation, method]));
    const bySites = Map.groupBy(byUse.values(), (uses) => JSON.stringify(sitesOf(uses)));
    return [...bySites.values()].flatMap((group) => {
      const named = sitesOf(group[0] ?? []);
      const sites = named.length === 0 ? '*' : new Set(named);
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
        max: max === undefined || most === 0 || most === Number.POSITIVE_INFINITY ? undefined : most,
        values: isListed ? new Set(known.flatMap((each) => [...(each.values ?? [])])) : undefined,
      };
      return limit.max === undefined && limit.values === undefined ? [] : [limit];
    });
  }

  /** The limits of present rules for a deployment, those of one parameter as one. */
  #limitsIn(deployment: string): readonly ParameterLimit[] {
    return getOrInsert(this.#limits, deployment, () => {
      const rules = this.#present.allow.filter((rule) => rule.deployment === deployment);
      const all = rules.flatMap(({ parameters }) => parameters);
      return [...Map.groupBy(all, ({ name }) => name)].map(([name, same]) => ({
        name,
        max: same.find(({ max }) => max !== undefined)?.max,
        values: same.find(({ values }) => values !== undefined)?.values,
      }));
    });
  }

  #addValues(
    shape: Shape,
    request: RecordedRequest,
    client: Client,
    used: Used,
    holds: (client: Client) => boolean,
  ): void {
    const { parameters } = request;
    const [rule] = client.allow;
    const present = this.#limitsIn(rule?.deployment ?? '');
    if (rule === undefined || present.length === 0) return;
    const allowing =
      used.rule === undefined ? this.#allowing(rule.deployment, used.terms, request) : [used.rule];
    const limits = present.map((limit) => ({
      limit,
      just: limitsOf(limit, ownEntry(parameters, limit.name), allowing),
    }));
    // A limit reads the query of requests without the parameter, too, and refuses some of them for other names.
    const given = limits.flatMap(({ limit: { name, max }, just: [just] }) => {
      if (just !== undefined) return just;
      return max === undefined || Object.hasOwn(parameters, name) ? [] : { name, max: 1, values: undefined };
    });
    const isLimited = holds({ ...client, allow: [{ ...rule, parameters: given }] });
    for (const { limit, just } of limits) {
      const isUnlimited = !isLimited || (just.length === 0 && Object.hasOwn(parameters, limit.name));
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
    return getOrInsert(this.#clients, key, () => ({ id: this.#id, allow: rules() }));
  }

  /** The terms of the present rule that allows a request; without one, the credential that a rule had named for it. */
  #termsOf(deployment: string, present: Rule | undefined, request: RecordedRequest): Terms {
    let rule = present;
    if (rule === undefined) {
      const credential = namedCredential(request);
      return { credential: Object.hasOwn(this.#credentials, credential ?? '') ? credential : undefined };
    }
    // A rule that allows the same when this one has ended gives the end.
    while (rule.ends !== undefined) {
      const next = this.#presentRule(deployment, { ...request, time: new Date(rule.ends).toISOString() });
      if (next === undefined || next.credential !== rule.credential || endOf(next) <= rule.ends) break;
      rule = next;
    }
    return rule;
  }

  #presentRule(deployment: string, request: RecordedRequest): Rule | undefined {
    const judgement = this.#replay.judgeFor(this.#present, request);
    if (judgement.verdict === 'refused') return undefined;
    if (judgement.verdict === 'allowed') return judgement.grant.rule;
    // It is not known which of them allows the request, but which credential it had.
    const credential = namedCredential(request);
    const [withSame] = this.#allowing(deployment, { credential }, request);
    return withSame ?? judgement.grant?.rule;
  }

  /** The present rules with a credential that may have allowed a request. */
  #allowing(
    deployment: string,
    { credential }: Pick<Terms, 'credential'>,
    request: RecordedRequest,
  ): readonly Rule[] {
    return this.#present.allow.filter((rule, index) => {
      if (rule.deployment !== deployment || rule.credential !== credential) return false;
      const alone = this.#known(`allow[${index}]`, () => [rule]);
      return this.#replay.judgeFor(alone, request).verdict !== 'refused';
    });
  }

  /**
   * Of two rules that allow a request, the first gives the credential: learned ones keep the order of present ones. Where
   * these differ in their credential, each learned one is within a single present one, so that it takes no other's requests.
   */
  #usedOf(deployment: string, present: Rule | undefined, { credential, ends }: Terms): Used {
    const terms = { credential, ends };
    const own = this.#present.allow.filter((rule) => rule.deployment === deployment);
    const isMixed = own.some((each) => each.credential !== credential);
    const rule = isMixed ? present : undefined;
    const place = own.findIndex((each) => (isMixed ? each === present : each.ends === ends));
    const byTerms = getOrInsert(this.#used, deployment, () => new Map<string, Used>());
    return getOrInsert(byTerms, JSON.stringify([credential, ends, rule && place]), () => ({
      terms,
      rule,
      place: place === -1 ? Number.POSITIVE_INFINITY : place,
      shapes: new Map(),
      unrestricted: 0,
    }));
  }

  #addUnservable(judgement: Judgement): void {
    if (judgement.verdict === 'allowed') return;
    const { deployment } = judgement;
    const code = judgement.verdict === 'refused' ? judgement.code : judgement.reason;
    const key = JSON.stringify([deployment, code]);
    getOrInsert(this.#unservable, key, () => ({ deployment, code, requests: 0 })).requests += 1;
  }
}

/** The credential that a rule named for the request; undefined: it was that of the site or deployment. */
function namedCredential({ credential, credentialRule }: RecordedRequest): string | undefined {
  return credentialRule === undefined ? undefined : credential?.name;
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
  return getOrInsert(shapes, key, () => ({ operation, method, site, requests: 0, values: new Map() }));
}

/** The sites of uses; empty: a rule must not depend on them. */
function sitesOf(shapes: readonly Shape[]): string[] {
  const sites = shapes.map(({ site }) => site);
  return sites.includes(undefined) ? [] : [...new Set(sites.filter((site) => site !== undefined))].sort();
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
