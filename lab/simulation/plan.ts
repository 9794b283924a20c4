import { type ClientRequest, type GatewaySettings, LIMITED } from './gateway.ts';
import { Random } from './random.ts';
import { PROFILES } from './upstream/profiles.ts';

/** How processes share: a gateway alone, workers of one machine, or gateways with Redis. */
export type StoreKind = 'memory' | 'channel' | 'redis';

/** How the password changes: not; announced before; or to one that the gateways do not have, for a while. */
export type PasswordStory = 'steady' | 'rotation' | 'wrong';

const EVERYWHERE = [
  'upstream-slow',
  'upstream-breaks',
  'upstream-restart',
  'upstream-forgets',
  'upstream-busy',
  'upstream-cut',
  'gateway-crash',
  'gateway-drain',
  'gateway-pause',
  'gateway-reload',
  'gateway-clock',
  'upgrade',
] as const;
const WITH_REDIS = [
  'redis-restart',
  'redis-restore',
  'redis-failover',
  'redis-flush',
  'redis-pause',
  'redis-cut',
  'redis-slow',
  'redis-duplicates',
  'redis-clock',
] as const;
const WITH_CHANNEL = ['primary-pause', 'primary-slow', 'primary-deaf'] as const;
const PASSWORDS = ['offer-next', 'change-password', 'offer-last'] as const;

export type FaultKind =
  | (typeof EVERYWHERE)[number]
  | (typeof WITH_REDIS)[number]
  | (typeof WITH_CHANNEL)[number]
  | (typeof PASSWORDS)[number];

/** True for a step of the story of the password. */
export function isOfPassword(kind: FaultKind): boolean {
  return (PASSWORDS as readonly string[]).includes(kind);
}

export interface Fault {
  readonly kind: FaultKind;
  /** Virtual milliseconds. */
  readonly at: number;
  readonly ms: number;
  /** Number of the gateway that it hits. */
  readonly gateway: number;
  /** From 0 to 1: how strong it is. */
  readonly amount: number;
}

/** Everything that a seed decides before the first event. */
export interface Plan {
  readonly seed: number;
  readonly profile: string;
  /** Lifetimes of nonces are those of the profile times this. */
  readonly lifetimeScale: number;
  /** Servers behind the address of the upstream, each with nonces of its own; a connection leads to one of them. */
  readonly servers: number;
  /** True: it closes a connection behind a 401, and does not say so. */
  readonly closesBehind401: boolean;
  readonly store: StoreKind;
  /** True: gateways sign what they leave in Redis. */
  readonly signed: boolean;
  readonly gateways: number;
  readonly latencyMs: readonly [number, number];
  readonly settings: GatewaySettings;
  readonly story: PasswordStory;
  readonly requests: readonly ClientRequest[];
  readonly faults: readonly Fault[];
}

/** Sizes of fleets; most are small, since these find most and take little time. */
function fleetSize(random: Random): number {
  const chance = random.next();
  if (chance < 0.93) return random.whole(1, 4);
  if (chance < 0.995) return random.whole(5, 12);
  return random.whole(13, 50);
}

export function planOf(seed: number): Plan {
  const random = new Random(`plan ${seed}`);
  const gateways = fleetSize(random);
  const store =
    gateways === 1
      ? random.pick(['memory', 'redis'] as const)
      : random.pick(['redis', 'redis', 'channel'] as const);
  const durationMs = random.pick([200, 200, 1_000, 1_000, 4_000, 20_000]);
  const story = random.pick(['steady', 'steady', 'steady', 'rotation', 'rotation', 'wrong'] as const);
  const fast = random.chance(0.5);
  const faults = faultsOf(random, { gateways, store, durationMs, story });
  const times = Array.from({ length: random.whole(1, 8) }, () => random.between(0, durationMs));
  const requests = requestsOf(random, gateways, times);
  if (story === 'wrong') requests.push(...requestsWhileWrong(random, gateways, faults, requests.length));
  return {
    seed,
    profile: random.pick(PROFILES).name,
    lifetimeScale: random.pick([1, 0.1, 0.02]),
    store,
    signed: random.chance(0.5),
    gateways,
    latencyMs: fast ? [0.1, 2] : [1, 40],
    settings: settingsOf(random),
    story,
    requests,
    faults,
    ...serversOf(random),
  };
}

/** Where servers have nonces of their own, no answer would reach the right one behind a close. */
function serversOf(random: Random): Pick<Plan, 'servers' | 'closesBehind401'> {
  const servers = random.pick([1, 1, 1, 2, 3]);
  return { servers, closesBehind401: random.chance(0.2) && servers === 1 };
}

function settingsOf(random: Random): GatewaySettings {
  const rate = { perSecond: random.pick([2, 10, 50]), burst: random.pick([1, 5, 20]) };
  const limits = {
    rate: random.chance(0.8) ? rate : undefined,
    concurrent: random.pick([1, 3, 10]),
    daily: random.chance(0.3) ? random.whole(5, 100) : undefined,
  };
  return {
    attemptsWhenRefused: random.pick([1, 2, 3, 6]),
    renewAhead: random.chance(0.8),
    limits: random.chance(0.6) ? limits : undefined,
  };
}

function requestsOf(random: Random, gateways: number, times: readonly number[]): ClientRequest[] {
  const count = random.whole(5, 30) + 2 * gateways;
  return Array.from({ length: count }, (_, id) => {
    const delay = random.chance(0.7) ? random.between(0, 20) : random.between(0, 2_000);
    return requestOf(random, gateways, id, random.pick(times) + delay);
  });
}

function requestOf(random: Random, gateways: number, id: number, at: number): ClientRequest {
  const method = random.pick(['GET', 'GET', 'GET', 'HEAD', 'POST'] as const);
  return {
    id,
    at,
    gateway: random.whole(0, gateways - 1),
    client: random.chance(0.4) ? LIMITED : 'free',
    method,
    target: random.pick(['/a', '/b?x=1', '/c']),
    body: method === 'POST' ? random.pick(['kept', 'streamed'] as const) : 'none',
    givesUpAfter: random.chance(0.03) ? random.between(1, 50) : undefined,
  };
}

/** Clients do not stop when a password is wrong. */
function requestsWhileWrong(
  random: Random,
  gateways: number,
  faults: readonly Fault[],
  firstId: number,
): ClientRequest[] {
  const wrong = faults.find(({ kind }) => kind === 'change-password');
  if (wrong === undefined) return [];
  const times = Array.from({ length: 12 * gateways }, () => wrong.at + random.between(0, wrong.ms));
  return times.map((at, index) => requestOf(random, gateways, firstId + index, at));
}

interface FaultContext {
  readonly gateways: number;
  readonly store: StoreKind;
  readonly durationMs: number;
  readonly story: PasswordStory;
}

/** Gateways are replaced one after the other, twice, while Redis fails: nonces with counts change their owners. */
function upgradeScene(
  random: Random,
  fault: (kind: FaultKind, at: number) => Fault,
  store: StoreKind,
  durationMs: number,
): Fault[] {
  const at = random.between(0, durationMs);
  const again = at + random.between(500, 4_000);
  const failover = fault(
    random.pick(['redis-failover', 'redis-restore', 'redis-duplicates'] as const),
    at + random.between(0, 600),
  );
  const upgrades = [fault('upgrade', at), fault('upgrade', again)];
  return store === 'redis' ? [...upgrades, { ...failover, ms: random.pick([50, 1_200]) }] : upgrades;
}

function faultsOf(random: Random, { gateways, store, durationMs, story }: FaultContext): Fault[] {
  const kinds: FaultKind[] = [...EVERYWHERE];
  if (store === 'redis') kinds.push(...WITH_REDIS, ...WITH_REDIS);
  if (store === 'channel') kinds.push(...WITH_CHANNEL, ...WITH_CHANNEL);
  const fault = (kind: FaultKind, at: number): Fault => ({
    kind,
    at,
    ms: random.pick([20, 300, 1_500, 5_000]),
    gateway: random.whole(0, gateways - 1),
    amount: random.next(),
  });
  const count = random.chance(0.15) ? 0 : random.whole(1, 6);
  const faults = Array.from({ length: count }, () =>
    fault(random.pick(kinds), random.between(0, durationMs)),
  );
  if (gateways > 1 && random.chance(0.25)) faults.push(...upgradeScene(random, fault, store, durationMs));
  if (story === 'rotation') {
    const [first = 0, second = 0, third = 0] = [0, 0, 0]
      .map(() => random.between(0, durationMs))
      .sort((a, b) => a - b);
    faults.push(
      fault('offer-next', first),
      fault('change-password', second),
      fault('offer-last', third + 100),
    );
  } else if (story === 'wrong') {
    const wrong = fault('change-password', random.between(0, durationMs));
    faults.push({ ...wrong, ms: random.pick([300, 5_000, 90_000]) });
  }
  return faults.sort((a, b) => a.at - b.at);
}
