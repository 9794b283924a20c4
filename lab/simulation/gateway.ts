import { Cancellation } from '../../src/base/cancellation.ts';
import { monotonicClock } from '../../src/base/clock.ts';
import { asGatewayError, GatewayError } from '../../src/base/errors.ts';
import { Secret } from '../../src/base/secret.ts';
import type { ChallengeStore } from '../../src/challenges/store/store.ts';
import type { Credential, CredentialSet } from '../../src/credentials/credentials.ts';
import { RetryBudget } from '../../src/handshake/attempt-budget.ts';
import {
  type Exchange,
  type ExchangeFacts,
  NO_BODY,
  type RequestBody,
} from '../../src/handshake/exchange.ts';
import { FlightRecorder } from '../../src/handshake/flight-recorder.ts';
import { Limits } from '../../src/limits/limits.ts';
import type { LimitSettings, LimitStore } from '../../src/limits/store.ts';
import { Metrics } from '../../src/metrics/metrics.ts';
import { BodyMemory, BodyShare, type ReceivedBody } from '../../src/transport/request-body.ts';
import { ActiveRequest, Deadlines } from '../../src/upstream/client-request.ts';
import type { UpstreamCredential } from '../../src/upstream/credential.ts';
import { CredentialRegistry } from '../../src/upstream/credential-registry.ts';
import type { Transport, VersionOptions } from '../../src/upstream/credential-version.ts';
import { USUAL_TLS } from '../../test/support/usual-tls.ts';
import type { Observer, RequestRecord } from './observer.ts';
import { USERNAME } from './upstream/server.ts';
import type { ExchangeListener } from './upstream/service.ts';
import type { SimulatedProcess } from './world.ts';

export const RESPONSE_TIMEOUT_MS = 4_000;
export const TOTAL_TIMEOUT_MS = 12_000;
export const UPSTREAM = 'https://upstream.example';
/** Client whose requests are limited. */
export const LIMITED = 'limited';
export const DEPLOYMENT = 'upstream';

/** One for all: a registry for each gateway would take longer than its simulation. */
const metrics = new Metrics({ version: '', node: '' });

/** The settings that all gateways have. */
export interface GatewaySettings {
  readonly attemptsWhenRefused: number;
  readonly renewAhead: boolean;
  readonly limits: LimitSettings | undefined;
}

/** Passwords that the sources of the credential hold. */
export interface HeldPasswords {
  readonly current: string;
  readonly next: string | undefined;
}

/** Connections to the upstream. */
export interface UpstreamPool {
  readonly exchange: Exchange;
  close(): void;
}

export interface GatewayDeps {
  readonly process: SimulatedProcess;
  /** Opens connections to the upstream. */
  readonly connect: (listener: ExchangeListener) => UpstreamPool;
  readonly observer: Observer;
  readonly openStore: () => ChallengeStore;
  /** Undefined: this process is the only one. */
  readonly openLimits: (() => LimitStore) | undefined;
}

/** A request of a client. */
export interface ClientRequest {
  readonly id: number;
  /** Virtual milliseconds. */
  readonly at: number;
  readonly gateway: number;
  readonly client: string;
  readonly method: 'GET' | 'HEAD' | 'POST';
  readonly target: string;
  readonly body: RequestBody['kind'];
  /** After so many milliseconds the client gives up; undefined: it waits. */
  readonly givesUpAfter: number | undefined;
}

/** The parts of a gateway that take part in authentication and limits, in one simulated process. */
export class Gateway {
  readonly process: SimulatedProcess;
  readonly recorder: FlightRecorder;
  readonly #deps: GatewayDeps;
  readonly #settings: GatewaySettings;
  readonly #store: ChallengeStore;
  readonly #registry: CredentialRegistry;
  readonly #limits: Limits;
  readonly #deadlines: Deadlines;
  readonly #retries: RetryBudget;
  /** Versions by password, in the order in which this process has seen them. */
  readonly #versions = new Map<string, string>();
  #held: HeldPasswords;
  readonly #listener: ExchangeListener;
  #transport: ClosableTransport;
  #inUse: UpstreamCredential;
  readonly #retiring: Promise<void>[] = [];
  #isDraining = false;

  /** The caller runs it as part of the process. */
  constructor(deps: GatewayDeps, settings: GatewaySettings, held: HeldPasswords) {
    const { process, observer, openStore, openLimits } = deps;
    this.process = process;
    this.#deps = deps;
    this.#settings = settings;
    this.#held = held;
    const clock = monotonicClock;
    this.#store = openStore();
    this.recorder = new FlightRecorder({ clock });
    this.#registry = new CredentialRegistry({
      store: this.#store,
      recorder: this.recorder,
      clock,
      tracing: undefined,
      onPolicyStep: (_, policy) => observer.policyStep(process, policy),
      onBound: () => observer.note(process, 'nonces bound to their process'),
      onHealth: ({ version, refused }) => observer.health(process, version, refused),
      onRotation: ({ to, result }) => observer.rotation(process, to, result),
    });
    const { limits } = settings;
    this.#limits = new Limits(
      { clients: new Map(limits === undefined ? [] : [[LIMITED, limits]]), deployments: new Map() },
      { clocks: { now: () => clock.now(), epoch: () => Date.now() }, metrics, openStore: openLimits },
    );
    this.#deadlines = new Deadlines(TOTAL_TIMEOUT_MS, clock);
    this.#retries = new RetryBudget(
      { attempts: 1, budget: 0.1 },
      clock,
      metrics.deployment(DEPLOYMENT).retries,
    );
    this.#listener = observer.exchanges(process, () => this.isRefused);
    this.#transport = this.#newTransport();
    this.#inUse = this.#registry.use(this.#set, this.#transport, settings.attemptsWhenRefused);
  }

  /** Takes over what other processes share. */
  async start(): Promise<void> {
    await Promise.all([this.#limits.restore(), this.#inUse.versions.inUse.restore()]);
  }

  /** True if every version of the credential counts as refused. */
  get isRefused(): boolean {
    return this.#inUse.versions.areRefused;
  }

  get held(): HeldPasswords {
    return this.#held;
  }

  /** True: it takes no more requests. */
  get isDraining(): boolean {
    return this.#isDraining;
  }

  /** Sends a request; resolves when it has ended. */
  async send(request: ClientRequest, record: RequestRecord): Promise<void> {
    try {
      await this.#admit(request, record);
    } catch (error) {
      record.code = asGatewayError(error).code;
      if (record.code === 'internal-error') this.#deps.observer.fault(this.process, error);
    }
  }

  /** The sources of the credential hold other passwords. */
  offer(held: HeldPasswords): void {
    this.#held = held;
    this.#inUse.offer(this.#set);
  }

  /** Another configuration takes the place of this one: other connections, the same credential. */
  async reload(): Promise<void> {
    const transport = this.#newTransport();
    const credential = this.#registry.use(this.#set, transport, this.#settings.attemptsWhenRefused);
    await credential.versions.inUse.restore();
    // As a configuration that was prepared when the shutdown began.
    if (this.#isDraining) return this.#retire(credential, transport);
    const [former, formerTransport] = [this.#inUse, this.#transport];
    this.#inUse = credential;
    this.#transport = transport;
    this.#retiring.push(this.#retire(former, formerTransport));
  }

  /** Ends the gateway when its requests have ended. */
  async drain(): Promise<void> {
    this.#isDraining = true;
    const ended = this.#retire(this.#inUse, this.#transport);
    await Promise.all([ended, ...this.#retiring]);
    await Promise.all([this.#store.close(), this.#limits.close()]);
  }

  /** Requests that the limited client may have under way, as far as this process knows; undefined: a limit refuses it. */
  freeSlots(): number | undefined {
    try {
      const permit = this.#limits.take(LIMITED, DEPLOYMENT);
      const [, free] = /"client-concurrent";r=(\d+)/.exec(permit?.lines ?? '') ?? [];
      permit?.release();
      return free === undefined ? undefined : Number(free) + 1;
    } catch {
      return undefined;
    }
  }

  /** Its connections close when no request uses them. */
  async #retire(credential: UpstreamCredential, transport: ClosableTransport): Promise<void> {
    await this.#registry.release(credential, transport);
    transport.close();
  }

  async #admit(request: ClientRequest, record: RequestRecord): Promise<void> {
    const { observer } = this.#deps;
    const permit = this.#limits.take(request.client, DEPLOYMENT);
    if (permit !== undefined) observer.admitted(this.process, 1);
    try {
      await this.#forward(request, record);
    } finally {
      permit?.release();
      if (permit !== undefined) observer.admitted(this.process, -1);
    }
  }

  async #forward(
    { id, client, method, target, body, givesUpAfter }: ClientRequest,
    record: RequestRecord,
  ): Promise<void> {
    const cancellation = new Cancellation();
    const now = monotonicClock.now();
    const giveUp = (): void =>
      cancellation.cancel(new GatewayError('request-timeout', 'The client is gone.'));
    const timer = givesUpAfter === undefined ? undefined : setTimeout(giveUp, givesUpAfter);
    const credential = this.#inUse;
    const transport = this.#transport;
    this.#retries.onRequest(now);
    const headers = ['x-request', String(id)];
    const facts = { ...noFacts(), client, method, trace: undefined };
    const toSend = { target, headers, noTotalTimeout: false };
    const interim = { information() {} };
    const request = new ActiveRequest(facts, toSend, undefined, interim, cancellation, this.#retries);
    request.body = bodyOf(body);
    this.#deadlines.begin(request, now);
    try {
      const response = await credential.send(request, transport);
      record.status = response.status;
      await response.skip();
    } finally {
      clearTimeout(timer);
      this.#deadlines.end(request);
    }
  }

  #newTransport(): ClosableTransport {
    const pool = this.#deps.connect(this.#listener);
    const options: VersionOptions = {
      deployment: DEPLOYMENT,
      origin: UPSTREAM,
      egress: { localAddress: undefined, proxy: undefined },
      tls: USUAL_TLS,
      algorithms: ['SHA-512-256', 'SHA-256', 'MD5'],
      noncePolicy: 'auto',
      renewAhead: this.#settings.renewAhead,
      neutralTarget: '/neutral',
      timeouts: { response: RESPONSE_TIMEOUT_MS },
      forwardTrace: false,
    };
    const address = 'upstream.example';
    const { exchange } = pool;
    const deployment = metrics.deployment(DEPLOYMENT);
    return { options, address, exchange, metrics: deployment, close: () => pool.close() };
  }

  get #set(): CredentialSet {
    const { current, next } = this.#held;
    return {
      name: 'credential',
      current: this.#credential(current),
      next: next === undefined ? undefined : this.#credential(next),
    };
  }

  /** Each process numbers the versions that it sees, as `CredentialVersions` does. */
  #credential(password: string): Credential {
    const version = this.#versions.get(password) ?? String(this.#versions.size + 1);
    this.#versions.set(password, version);
    return {
      name: 'credential',
      version,
      username: USERNAME,
      password: new Secret(password),
      changedAt: undefined,
    };
  }
}

interface ClosableTransport extends Transport {
  close(): void;
}

function noFacts(): ExchangeFacts {
  return {
    attempts: 0,
    firstAttemptAt: 0,
    lastAttemptAt: 0,
    leftAt: undefined,
    connectMs: 0,
    challenged: false,
    credential: undefined,
    upstreamAddress: '',
    egress: '',
    flightRequest: 0,
  };
}

function bodyOf(kind: RequestBody['kind']): ReceivedBody {
  if (kind === 'none') return NO_BODY;
  const content = Buffer.from('body');
  if (kind === 'kept') return { kind, content, memory: new BodyShare(new BodyMemory(content.length), '') };
  async function* chunks(): AsyncGenerator<Buffer> {
    yield content;
  }
  return { kind, content: chunks(), spilled: false, progress: { awaitsClient: false } };
}
