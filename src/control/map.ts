import { expiryOf } from '../transport/upstream-tls.ts';
import type { Sampler } from './history.ts';
import type { GatewayState } from './state.ts';
import { type FlowTotals, flowKey, round } from './totals.ts';
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

/** Returns the ways that rules allow, and those whose requests were refused, with the rates of now. */
export async function takeMap(
  sampler: Sampler,
  rules: readonly RulePlace[],
  deployments: readonly string[],
  scope: MapScope,
): Promise<MapView> {
  const now = await sampler.now();
  const before = sampler.before(now, NOW_MS);
  const seconds = (now.at - before.at) / 1000;
  const ways = new Map<string, WayView>();
  for (const { client, deployment, path } of rules) {
    for (const name of deployment === '*' ? deployments : [deployment]) {
      const known = ways.get(flowKey(client, name));
      const paths = [...(known?.rules ?? []), path];
      ways.set(flowKey(client, name), { ...NO_WAY, client, deployment: name, rules: paths });
    }
  }
  for (const [key, flow] of now.flows) {
    const { client, deployment } = flow;
    const known = ways.get(key) ?? { ...NO_WAY, client, deployment };
    ways.set(key, { ...known, ...ratesOf(before.flows.get(key), flow, seconds) });
  }
  const wanted = [...ways.values()].filter(
    ({ client, deployment }) =>
      (scope.client === '' || client === scope.client) &&
      (scope.deployment === '' || deployment === scope.deployment),
  );
  const busiest = new Set(wanted.toSorted((a, b) => b.perSecond - a.perSecond).slice(0, WAYS));
  // In the order of the configuration: in that of their rates, they would change places all the time.
  return { ways: wanted.filter((way) => busiest.has(way)), more: wanted.length - busiest.size };
}

const NO_WAY = { rules: [], perSecond: 0, refusedPerSecond: 0 } as const;

function ratesOf(before: FlowTotals | undefined, after: FlowTotals, seconds: number) {
  const rate = (name: 'requests' | 'refused'): number =>
    seconds > 0 ? round((after[name] - (before?.[name] ?? 0)) / seconds) : 0;
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
