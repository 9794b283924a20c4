import { monotonicClock } from '../../src/base/clock.ts';
import { Secret } from '../../src/base/secret.ts';
import { ChannelChallengeStore, primaryChallenges } from '../../src/challenges/store/channel.ts';
import { MemoryChallengeStore } from '../../src/challenges/store/memory.ts';
import { RedisChallengeStore } from '../../src/challenges/store/redis.ts';
import type { ChallengeStore } from '../../src/challenges/store/store.ts';
import { storeKeys } from '../../src/challenges/store/value-signer.ts';
import type { FlightRecorder } from '../../src/handshake/flight-recorder.ts';
import { ChannelLimitStore, primaryLimits } from '../../src/limits/channel.ts';
import { RedisLimitStore } from '../../src/limits/redis.ts';
import type { LimitStore } from '../../src/limits/store.ts';
import { type ConnectionOptions, Connections } from '../../src/transport/connections.ts';
import { USUAL_TLS } from '../../test/support/usual-tls.ts';
import { connectPorts } from './channel.ts';
import {
  type ClientRequest,
  Gateway,
  type HeldPasswords,
  RESPONSE_TIMEOUT_MS,
  TOTAL_TIMEOUT_MS,
  UPSTREAM,
} from './gateway.ts';
import { Network } from './network.ts';
import { Observer, type RequestRecord } from './observer.ts';
import type { Plan } from './plan.ts';
import { useRedisServer } from './redis/client-library.ts';
import { RedisServer } from './redis/server.ts';
import { useUpstream } from './upstream/connector.ts';
import { PROFILES, type Profile } from './upstream/profiles.ts';
import { UpstreamServer } from './upstream/server.ts';
import { type ExchangeListener, UpstreamService } from './upstream/service.ts';
import { SimulatedProcess, World } from './world.ts';

const REDIS_TIMEOUT_MS = 100;
/** The longest timer of a gateway that has ended, in milliseconds. */
export const LAST_TIMERS_MS = TOTAL_TIMEOUT_MS + 1_000;
const CONNECTIONS: ConnectionOptions = {
  origin: UPSTREAM,
  connections: 16,
  timeouts: { connect: 2_000, response: RESPONSE_TIMEOUT_MS, idle: RESPONSE_TIMEOUT_MS },
  tls: USUAL_TLS,
  egress: { localAddress: undefined, proxy: undefined },
};
const KEYS = storeKeys(new Secret('ab'.repeat(32)));
export const FIRST_PASSWORD = 'first';
export const NEXT_PASSWORD = 'next';

interface Stores {
  readonly openStore: () => ChallengeStore;
  readonly openLimits: (() => LimitStore) | undefined;
}

/** A place for a gateway: the run that is there, and how many there were. */
interface Place {
  gateway: Gateway | undefined;
  runs: number;
  isDraining: boolean;
}

/** All processes of a simulation and the network between them. */
export class Fleet {
  readonly plan: Plan;
  readonly world: World;
  readonly network: Network;
  readonly observer: Observer;
  readonly service: UpstreamService;
  readonly redis: RedisServer | undefined;
  readonly #primary: SimulatedProcess | undefined;
  readonly #connectWorker: ((worker: SimulatedProcess) => Stores) | undefined;
  readonly #places: Place[];
  readonly #recorders: FlightRecorder[] = [];
  /** Restarts that are not over. */
  #restarts = 0;
  /** Passwords that the sources of all gateways hold. */
  held: HeldPasswords = { current: FIRST_PASSWORD, next: undefined };

  constructor(plan: Plan, trace: boolean) {
    const { seed, latencyMs, gateways, store } = plan;
    const profile = PROFILES.find(({ name }) => name === plan.profile);
    if (profile === undefined) throw new RangeError(`no profile ${plan.profile}`);
    this.plan = plan;
    this.world = new World(`simulation ${seed}`, { trace });
    this.network = new Network(this.world, { latencyMs });
    const reissued = new Set<string>();
    const servers = Array.from(
      { length: plan.servers },
      (_, at) =>
        new UpstreamServer(scaledProfile(profile, plan.lifetimeScale), FIRST_PASSWORD, String(at), reissued),
    );
    this.observer = new Observer(this.world, {
      attemptsWhenRefused: plan.settings.attemptsWhenRefused,
      reissued,
      isFarm: plan.servers > 1,
    });
    const start = (name: string): SimulatedProcess => new SimulatedProcess(this.world, name);
    this.service = new UpstreamService(this.network, this.world, servers, plan.closesBehind401, start);
    useUpstream(this.service);
    this.redis = store === 'redis' ? new RedisServer(this.world, this.network, start) : undefined;
    if (this.redis !== undefined) {
      useRedisServer(this.redis);
      this.redis.onBlindReplace = (nonce) =>
        this.observer.violate('a shared nonce is replaced only by a process that has seen it', nonce);
    }
    this.#primary = store === 'channel' ? start('primary/0') : undefined;
    this.#connectWorker = this.#primary && this.#servePrimary(this.#primary);
    this.#places = Array.from({ length: gateways }, () => ({
      gateway: undefined,
      runs: 0,
      isDraining: false,
    }));
  }

  /** The flight record of each gateway that there was. */
  readonly flights = (): string[] =>
    this.#recorders.map((recorder) => `${recorder.lines('simulation').join('\n')}\n`);

  get primary(): SimulatedProcess | undefined {
    return this.#primary;
  }

  /** Gateways that serve. */
  get gateways(): readonly Gateway[] {
    return this.#places.flatMap(({ gateway, isDraining }) =>
      gateway === undefined || isDraining ? [] : [gateway],
    );
  }

  /** The gateway at this place; undefined: none serves there. */
  at(place: number): Gateway | undefined {
    const { gateway, isDraining } = this.#place(place);
    return isDraining ? undefined : gateway;
  }

  /** Begins a gateway at a place where none is. */
  start(at: number): void {
    const place = this.#place(at);
    if (place.gateway !== undefined) return;
    const process = new SimulatedProcess(this.world, `gateway-${at}/${place.runs}`);
    place.runs += 1;
    place.isDraining = false;
    process.run(() => {
      const { service, observer } = this;
      const stores = this.#stores(process);
      const connect = (listener: ExchangeListener): Connections => {
        service.observe(process, listener);
        return new Connections(CONNECTIONS, monotonicClock);
      };
      const gateway = new Gateway({ process, connect, observer, ...stores }, this.plan.settings, this.held);
      place.gateway = gateway;
      this.#recorders.push(gateway.recorder);
      this.#checkPassword(gateway);
      gateway.start().catch((error) => observer.fault(process, error));
    });
  }

  /** Ends the process of a gateway at once. */
  crash(at: number): void {
    const place = this.#place(at);
    place.gateway?.process.end();
    place.gateway = undefined;
  }

  /** Ends a gateway when its requests have ended. */
  async drain(at: number): Promise<void> {
    const place = this.#place(at);
    const { gateway, isDraining } = place;
    if (gateway === undefined || isDraining) return;
    place.isDraining = true;
    const ended = Promise.withResolvers<void>();
    gateway.process.onEnd(ended.resolve);
    gateway.process.deliver(0, 'is told to end', () => {
      gateway.drain().then(ended.resolve, (error) => {
        this.observer.fault(gateway.process, error);
        ended.resolve();
      });
    });
    await ended.promise;
    this.#ended(place, gateway);
  }

  /** Counts a restart until it is over. */
  await(restart: Promise<void>): void {
    this.#restarts += 1;
    void restart.finally(() => {
      this.#restarts -= 1;
    });
  }

  get isRestarting(): boolean {
    return this.#restarts > 0;
  }

  /** Sends a request to a gateway; undefined: none serves there. */
  send(request: ClientRequest): RequestRecord | undefined {
    const gateway = this.at(request.gateway);
    if (gateway === undefined) return undefined;
    const record = this.observer.begin(request.id, gateway.process);
    gateway.process.deliver(0.1, `request ${request.id}`, () => {
      if (gateway.isDraining) this.observer.drop(record);
      else void gateway.send(request, record).then(() => this.observer.end(record));
    });
    return record;
  }

  /** The sources of the credential hold other passwords from now on. */
  offer(held: HeldPasswords): void {
    this.held = held;
    for (const { gateway } of this.#places) {
      const delay = this.world.random.between(0, 50);
      gateway?.process.deliver(delay, 'reads its credential', () => {
        gateway.offer(this.held);
        this.#checkPassword(gateway);
      });
    }
  }

  /** The upstream accepts these passwords from now on. */
  changePasswords(passwords: readonly string[]): void {
    this.service.passwords = passwords;
    for (const { gateway } of this.#places) if (gateway !== undefined) this.#checkPassword(gateway);
  }

  /** Notes that a gateway has no password that the upstream accepts. */
  #checkPassword({ held: { current, next = current }, process }: Gateway): void {
    const { passwords } = this.service;
    if (!passwords.includes(current) && !passwords.includes(next)) this.observer.wrong.add(process);
  }

  #place(at: number): Place {
    const place = this.#places[at];
    if (place === undefined) throw new RangeError(`no place ${at}`);
    return place;
  }

  /** Timers of a gateway that has ended fire for the last time, and set no others. */
  #ended(place: Place, { process }: Gateway): void {
    if (place.gateway?.process === process) place.gateway = undefined;
    process.deliver(LAST_TIMERS_MS, 'is over', () => {
      const left = process.timers.size;
      if (left > 0)
        this.observer.violate(
          'nothing is left of a gateway that has ended',
          `${left} timers of ${process.name}`,
        );
      process.end();
    });
  }

  #stores(process: SimulatedProcess): Stores {
    const { store, signed } = this.plan;
    if (store === 'memory') return { openStore: () => new MemoryChallengeStore(), openLimits: undefined };
    if (this.#connectWorker !== undefined) return this.#connectWorker(process);
    const redis = {
      servers: { kind: 'single', address: { host: 'redis', port: 6379 }, database: 0 },
      username: undefined,
      password: undefined,
      sentinelUsername: undefined,
      sentinelPassword: undefined,
      keyPrefix: 'digest-gateway',
      timeoutMs: REDIS_TIMEOUT_MS,
      tls: undefined,
      keys: signed ? KEYS : [],
    } as const;
    const { observer } = this;
    const events = {
      onUp: (up: boolean, reason: string | undefined) =>
        observer.note(process, `redis ${up ? 'up' : `down: ${reason}`}`),
      onError: (operation: string, error: unknown) => observer.note(process, `${operation} failed: ${error}`),
      onRejected: (kind: string, reason: string) => observer.note(process, `${kind} rejected: ${reason}`),
    };
    return {
      openStore: () => new RedisChallengeStore(redis, events),
      openLimits: () => new RedisLimitStore(redis, () => observer.note(process, 'limit rejected')),
    };
  }

  #servePrimary(primary: SimulatedProcess): (worker: SimulatedProcess) => Stores {
    const { challenges, limits } = primary.run(() => ({
      challenges: primaryChallenges(),
      limits: primaryLimits({ now: () => performance.now(), epoch: () => Date.now() }),
    }));
    return (worker) => {
      const ports = connectPorts(this.network, worker, primary);
      primary.run(() => {
        challenges.serve(ports.primary);
        limits.serve(ports.primary);
      });
      const onError = (operation: string): void => this.observer.note(worker, `${operation} failed`);
      return {
        openStore: () => new ChannelChallengeStore(ports.worker, onError),
        openLimits: () => new ChannelLimitStore(ports.worker),
      };
    };
  }
}

/** Shorter lives cannot be told from nonces that serve once, in milliseconds. */
const SHORTEST_LIFE_MS = 2_000;

function scaledProfile(profile: Profile, scale: number): Profile {
  const { lifetimeMs, usedLifetimeMs } = profile;
  const scaled = (ms: number): number => Math.max(SHORTEST_LIFE_MS, ms * scale);
  return {
    ...profile,
    lifetimeMs: scaled(lifetimeMs),
    ...(usedLifetimeMs !== undefined && { usedLifetimeMs: scaled(usedLifetimeMs) }),
  };
}
