import { getOrInsert } from '../base/maps.ts';
import { runInSlices, type Steps } from '../base/steps.ts';
import { expiryOf } from '../transport/upstream-tls.ts';
import type { Sampler } from './history.ts';
import type { GatewayState } from './state.ts';
import { type FlowTotals, flowKey, rateOf, type Totals } from './totals.ts';
import type { CertificateUseView, MapView, WayView } from './view.ts';

/** Maximum number of ways in one response. */
const WAYS = 40;
/** Rates are of the last seconds, in milliseconds. */
const NOW_MS = 5_000;

/** A rule of a client, from the configuration. */
export interface RulePlace {
  readonly client: string;
  /** `*`: every one. */
  readonly deployment: string;
  /** Path in the configuration. */
  readonly path: string;
}

/** The part of the map that is wanted; empty: everything. */
interface MapScope {
  readonly client: string;
  readonly deployment: string;
}

/** A way without its rules. `place`: its number in the order of the configuration. */
interface FoundWay extends Omit<WayView, 'rules'> {
  readonly place: number;
}

/** Returns the ways that rules allow, and those whose requests were refused, with the rates of now. */
export async function takeMap(
  sampler: Sampler,
  rules: readonly RulePlace[],
  deployments: readonly string[],
  scope: MapScope,
): Promise<MapView> {
  const now = await sampler.now();
  return runInSlices(waysOf(now, sampler.before(now, NOW_MS), new RuledWays(rules, deployments, scope)));
}

function* waysOf(now: Totals, before: Totals, ruled: RuledWays): Steps<MapView> {
  const seconds = (now.at - before.at) / 1000;
  const busy = new Map<string, FoundWay>();
  const idle: FoundWay[] = [];
  let count = ruled.count;
  let nextPlace = ruled.end;
  for (const [key, flow] of now.flows) {
    yield;
    const { client, deployment } = flow;
    if (!ruled.isInScope(client, deployment)) continue;
    const ruledPlace = ruled.placeOf(client, deployment);
    if (ruledPlace === undefined) count += 1;
    const place = ruledPlace ?? nextPlace++;
    const earlier = before.flows.get(key);
    if (flow.requests !== (earlier?.requests ?? 0)) {
      busy.set(key, { client, deployment, place, ...ratesOf(earlier, flow, seconds) });
    } else if (ruledPlace === undefined && idle.length < WAYS) {
      idle.push({ client, deployment, place, ...NO_RATES });
    }
  }
  const busiest = [...busy.values(), ...idle, ...(yield* firstIdle(ruled, busy))]
    .sort((a, b) => b.perSecond - a.perSecond || a.place - b.place)
    .slice(0, WAYS)
    // In the order of the configuration: in that of their rates, they would change places all the time.
    .sort((a, b) => a.place - b.place);
  const ways = busiest.map(({ place: _, ...way }) => ({
    ...way,
    rules: ruled.rulesOf(way.client, way.deployment),
  }));
  return { ways, more: count - ways.length };
}

/** Finds as many as are shown: a client with rules for every deployment has thousands, and most are idle. */
function* firstIdle(ruled: RuledWays, busy: ReadonlyMap<string, FoundWay>): Steps<FoundWay[]> {
  const found: FoundWay[] = [];
  for (const way of ruled.inOrder()) {
    yield;
    if (busy.has(flowKey(way.client, way.deployment))) continue;
    found.push({ ...way, ...NO_RATES });
    if (found.length === WAYS) break;
  }
  return found;
}

/** The rules of one client. */
interface ClientRules {
  readonly all: RulePlace[];
  /** Index of the first rule for every deployment; undefined: there is none. */
  every: number | undefined;
  /** By a deployment that rules name: index of the first one. */
  readonly named: Map<string, number>;
}

/** The wanted ways that rules allow, which are counted and found without a list of all. */
class RuledWays {
  /** Number of ways. */
  readonly count: number;
  /** All places are below it. */
  readonly end: number;
  readonly #rules: readonly RulePlace[];
  readonly #scope: MapScope;
  readonly #clients = new Map<string, ClientRules>();
  /** Wanted deployments with their indexes. */
  readonly #deployments = new Map<string, number>();

  constructor(rules: readonly RulePlace[], deployments: readonly string[], scope: MapScope) {
    this.#rules = rules;
    this.#scope = scope;
    for (const name of deployments) {
      if (scope.deployment === '' || name === scope.deployment) {
        this.#deployments.set(name, this.#deployments.size);
      }
    }
    for (const [index, rule] of rules.entries()) this.#add(rule, index);
    this.end = rules.length * this.#width;
    this.count = 0;
    for (const { every, named } of this.#clients.values()) {
      this.count += every === undefined ? 0 : this.#deployments.size;
      for (const name of named.keys()) {
        if (every === undefined || !this.#deployments.has(name)) this.count += 1;
      }
    }
  }

  #add(rule: RulePlace, index: number): void {
    const { client, deployment } = rule;
    if (!this.isInScope(client, deployment === '*' ? this.#scope.deployment : deployment)) return;
    const none = (): ClientRules => ({ all: [], every: undefined, named: new Map() });
    const known = getOrInsert(this.#clients, client, none);
    known.all.push(rule);
    if (deployment === '*') known.every ??= index;
    else if (!known.named.has(deployment)) known.named.set(deployment, index);
  }

  /** Places of one rule. */
  get #width(): number {
    return this.#deployments.size + 1;
  }

  isInScope(client: string, deployment: string): boolean {
    const { client: onlyClient, deployment: onlyDeployment } = this.#scope;
    return (
      (onlyClient === '' || client === onlyClient) && (onlyDeployment === '' || deployment === onlyDeployment)
    );
  }

  /** The place of the first rule that allows this way; undefined: none does. */
  placeOf(client: string, deployment: string): number | undefined {
    const known = this.#clients.get(client);
    if (known === undefined) return undefined;
    const named = known.named.get(deployment);
    const at = this.#deployments.get(deployment);
    if (known.every === undefined || at === undefined || (named !== undefined && named < known.every)) {
      return named === undefined ? undefined : named * this.#width;
    }
    return known.every * this.#width + at;
  }

  /** Yields each way once. */
  *inOrder(): Generator<Pick<FoundWay, 'client' | 'deployment' | 'place'>> {
    for (const [index, { client, deployment }] of this.#rules.entries()) {
      const known = this.#clients.get(client);
      if (deployment !== '*') {
        const place = index * this.#width;
        if (this.placeOf(client, deployment) === place) yield { client, deployment, place };
      } else if (known?.every === index) {
        for (const [name, at] of this.#deployments) {
          const place = index * this.#width + at;
          if (this.placeOf(client, name) === place) yield { client, deployment: name, place };
        }
      }
    }
  }

  /** Returns the paths of the rules that allow this way. */
  rulesOf(client: string, deployment: string): string[] {
    const isDeployed = this.#deployments.has(deployment);
    return (this.#clients.get(client)?.all ?? [])
      .filter((rule) => rule.deployment === deployment || (isDeployed && rule.deployment === '*'))
      .map(({ path }) => path);
  }
}

const NO_RATES = { perSecond: 0, refusedPerSecond: 0 } as const;

function ratesOf(before: FlowTotals | undefined, after: FlowTotals, seconds: number) {
  const rate = (name: 'requests' | 'refused'): number => rateOf(after[name] - (before?.[name] ?? 0), seconds);
  return { perSecond: rate('requests'), refusedPerSecond: rate('refused') };
}

/** Returns all certificates that the gateway knows of, the first to expire first. `now`: Unix milliseconds. */
export function certificatesOf({ listeners, deployments }: GatewayState, now: number): CertificateUseView[] {
  const own = listeners.flatMap(({ address: name, certificateExpiresAt: expiresAt }) =>
    expiresAt === undefined ? [] : [{ name, kind: 'listener' as const, subject: '', issuer: '', expiresAt }],
  );
  const theirs = deployments.flatMap(({ name, tls }) =>
    (tls?.chain ?? []).map(({ subject, issuer, expiresAt }, index) => ({
      name,
      kind: index === 0 ? ('upstream' as const) : ('authority' as const),
      subject,
      issuer,
      expiresAt,
    })),
  );
  return [...own, ...theirs]
    .map((each): CertificateUseView => ({ ...each, state: stateOf(each.expiresAt, now) }))
    .sort((a, b) => a.expiresAt - b.expiresAt);
}

function stateOf(expiresAt: number, now: number): CertificateUseView['state'] {
  if (expiresAt <= now) return 'down';
  return expiryOf(expiresAt, now).isSoon ? 'degraded' : 'ok';
}
