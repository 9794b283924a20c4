import { Cancellation } from '../../src/base/cancellation.ts';
import { GatewayError } from '../../src/base/errors.ts';
import { Secret } from '../../src/base/secret.ts';
import { NonceCounters } from '../../src/challenges/nonce.ts';
import type { NoncePool } from '../../src/challenges/pool.ts';
import { MemoryChallengeStore } from '../../src/challenges/store/memory.ts';
import type { ChallengeStore, NoncePolicy } from '../../src/challenges/store/store.ts';
import type { Account, HandshakeMetrics } from '../../src/handshake/account.ts';
import { AttemptBudget } from '../../src/handshake/attempt-budget.ts';
import type { CredentialHealth } from '../../src/handshake/credential-health.ts';
import {
  type Exchange,
  type ExchangeFacts,
  type Message,
  NO_BODY,
  type UpstreamRequest,
} from '../../src/handshake/exchange.ts';
import { FlightRecorder } from '../../src/handshake/flight-recorder.ts';
import { type HandshakeOptions, handshake, type Refused } from '../../src/handshake/handshake.ts';
import { type Lost, type ResponseSource, UpstreamResponse } from '../../src/handshake/response.ts';
import { UpstreamCredential } from '../../src/upstream/credential.ts';
import { CredentialCircuit, RefusedTargets } from '../../src/upstream/credential-circuit.ts';
import type { CredentialVersion, Transport } from '../../src/upstream/credential-version.ts';
import { answer, type Challenge, readChallenges } from '../support/digest-client.ts';
import { USUAL_TLS } from '../support/usual-tls.ts';

export const credential = {
  name: 'main',
  version: '7',
  username: 'u',
  password: new Secret('p'),
  changedAt: undefined,
};

type Result = UpstreamResponse | Lost;

/** The upstream's part in one request. */
export type Reply = (message: Message) => Result | Promise<Result>;

/** A 401 with a challenge. */
export function challenge(
  nonce: string,
  parameters = 'qop="auth"',
  setCookies: readonly string[] = [],
): Reply {
  const text = `Digest realm="r", nonce="${nonce}"${parameters && `, ${parameters}`}`;
  const cookies = setCookies.flatMap((cookie) => ['Set-Cookie', cookie]);
  return () => response(401, ['WWW-Authenticate', text, ...cookies]);
}

export const stale = (nonce: string): Reply => challenge(nonce, 'qop="auth", stale=true');

/** A 401 with these WWW-Authenticate lines. */
export const unauthorized =
  (...challenges: string[]): Reply =>
  () =>
    response(
      401,
      challenges.flatMap((line) => ['WWW-Authenticate', line]),
    );

/** Any other response; `info`: its Authentication-Info. */
export function answered(status = 200, info?: string, body = 'body'): Reply {
  return () => response(status, info === undefined ? [] : ['Authentication-Info', info], body);
}

/** A response that is whole. */
function response(status: number, headers: readonly string[], body = ''): UpstreamResponse {
  const made = new UpstreamResponse(status, 'Reason', headers, true, new ScriptedSource());
  if (body !== '') made.push(Buffer.from(body));
  made.end([]);
  return made;
}

/** Notes what a response wants of the exchange that it comes from. */
export class ScriptedSource implements ResponseSource {
  readonly calls: string[] = [];

  pause(): void {
    this.calls.push('pause');
  }

  resume(): void {
    this.calls.push('resume');
  }

  abandon(): void {
    this.calls.push('abandon');
  }
}

/** The connection broke after the request was sent, unless `change` says otherwise. */
export function lost(change: Partial<Lost> = {}): Reply {
  const error = new GatewayError('upstream-unreachable', 'The connection broke.');
  return () => ({ kind: 'lost', error, broke: true, sent: true, reused: false, ...change });
}

/** A reply that comes so many milliseconds later. */
export function delayed(scene: HandshakeScene, ms: number, reply: Reply): Reply {
  return (...args) => {
    scene.clock.at += ms;
    return reply(...args);
  };
}

/** A reply that waits until `release` is called. */
export function held(reply: Reply): { readonly reply: Reply; release(): void; readonly came: Promise<void> } {
  const arrival = Promise.withResolvers<void>();
  const gate = Promise.withResolvers<void>();
  return {
    reply: async (...args) => {
      arrival.resolve();
      await gate.promise;
      return reply(...args);
    },
    release: () => gate.resolve(),
    came: arrival.promise,
  };
}

/** Counts each event in a list of lines. */
function metricsIn(events: string[]): HandshakeMetrics {
  const counter = (line: string) => ({ inc: () => void events.push(line) });
  const attempt = (result: string) => counter(`attempt ${result}`);
  const obtained = (reason: string) => counter(`challenge ${reason}`);
  return {
    upstreamAttempts: {
      ok: attempt('ok'),
      challenged: attempt('challenged'),
      stale: attempt('stale'),
      refused: attempt('refused'),
      error: attempt('error'),
    },
    challenges: {
      cold: obtained('cold'),
      stale: obtained('stale'),
      single_use: obtained('single_use'),
      ahead: obtained('ahead'),
    },
  };
}

export interface SceneOptions {
  readonly policy?: NoncePolicy | 'auto';
  readonly options?: Partial<Transport['options']>;
  /** True: a former version can take the place of the one in use. */
  readonly hasOther?: boolean;
  /** Refused attempts that a minute may have. */
  readonly attemptsWhenRefused?: number;
  /** Left out: it is shared with no other gateway. */
  readonly store?: ChallengeStore;
}

/** The facts of a request of which nothing was sent yet. */
export function noFacts(): ExchangeFacts {
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

/** A credential at an upstream that gives one reply after the other. */
export class HandshakeScene {
  readonly clock = { at: 1_000_000, now: () => this.clock.at };
  /** The replies that are left, in order. A request that finds none fails. */
  readonly replies: Reply[] = [];
  /** Each request on one line, with nonce and count of its answer. `wrong`: other hash code computes another response. */
  readonly sent: string[] = [];
  readonly messages: Message[] = [];
  /** What was counted and reported. */
  readonly events: string[] = [];
  /** The responses that client requests got. */
  readonly responses: UpstreamResponse[] = [];
  readonly facts: ExchangeFacts = noFacts();
  /** The last error that a client request ended with. */
  error: GatewayError | undefined;
  readonly credential: UpstreamCredential;
  readonly transport: Transport;
  readonly recorder: FlightRecorder;

  constructor({
    policy = 'auto',
    options = {},
    hasOther = false,
    attemptsWhenRefused = 2,
    store = new MemoryChallengeStore(this.clock),
  }: SceneOptions = {}) {
    const { clock, events } = this;
    this.transport = {
      address: 'upstream:80',
      exchange: this.exchange,
      metrics: metricsIn(events),
      options: {
        deployment: 'd',
        origin: 'https://upstream:80',
        egress: { localAddress: undefined, proxy: undefined },
        tls: USUAL_TLS,
        algorithms: ['MD5', 'SHA-256'],
        noncePolicy: policy,
        renewAhead: false,
        neutralTarget: '/neutral',
        timeouts: { response: 10_000 },
        forwardTrace: true,
        ...options,
      },
    };
    const recorder = new FlightRecorder({ clock });
    this.recorder = recorder;
    const recorded = recorder.credential('d', 'main');
    const former = hasOther ? [{ ...credential, version: '6', username: 'former' }] : [];
    this.credential = new UpstreamCredential(
      { name: 'main', current: credential, next: undefined, former },
      {
        identity: this.transport.options,
        circuit: new CredentialCircuit(clock, attemptsWhenRefused),
        refusedTargets: new RefusedTargets(clock, attemptsWhenRefused),
        clock,
        store,
        recorder,
        recorded,
        key: 'k',
        counters: new NonceCounters(),
        tracing: undefined,
        onPolicyStep: (_, step) => void events.push(`policy ${step}`),
        onBound: () => {},
        onRotation: ({ to, result }) => void events.push(`version ${to} ${result}`),
        onHealth: ({ version, refused }) =>
          void events.push(`version ${version} ${refused ? 'refused' : 'accepted'}`),
      },
    );
    this.credential.versions.attach(this.transport);
  }

  get version(): CredentialVersion {
    return this.credential.versions.inUse;
  }

  get account(): Account {
    return this.version.on(this.transport);
  }

  get health(): CredentialHealth {
    return this.version.health;
  }

  get pool(): NoncePool {
    return this.account.pool;
  }

  readonly exchange: Exchange = async (message) => {
    const refused = message.refusal?.();
    if (refused !== undefined) throw refused;
    this.messages.push(message);
    this.sent.push(lineOf(message));
    const reply = this.replies.shift();
    if (reply === undefined) throw new Error(`no reply to ${this.sent.at(-1)}`);
    return reply(message);
  };

  /** A request of a client. */
  request(change: Partial<UpstreamRequest> = {}): UpstreamRequest {
    return {
      method: 'GET',
      target: '/x',
      headers: [],
      body: NO_BODY,
      cancellation: new Cancellation(),
      budget: new AttemptBudget(change.method ?? 'GET'),
      client: 'c',
      trace: undefined,
      facts: this.facts,
      ...change,
    };
  }

  /** One handshake of a client request with the version in use; resolves to `response`, `interrupted`, or the refusal. */
  async handshake(
    change: Partial<UpstreamRequest> = {},
    options: HandshakeOptions = {},
    budget = new AttemptBudget(change.method ?? 'GET'),
  ): Promise<'response' | 'interrupted' | Refused> {
    const result = await handshake(this.account, this.request({ budget, ...change }), options);
    return result !== 'interrupted' && result.kind === 'response' ? 'response' : result;
  }

  /** Sends a client request; resolves to `answered`, or the code of its error. */
  async send(
    change: Partial<UpstreamRequest> = {},
    budget = new AttemptBudget(change.method ?? 'GET'),
  ): Promise<string> {
    try {
      this.responses.push(await this.credential.send(this.request({ budget, ...change }), this.transport));
      return 'answered';
    } catch (error) {
      if (!(error instanceof GatewayError)) throw error;
      this.error = error;
      return error.code;
    }
  }

  /** Sends a request that is challenged with this nonce and then accepted; forgets what was seen of it. */
  async warmUp(nonce = 'n1', parameters?: string): Promise<void> {
    this.replies.push(challenge(nonce, parameters), answered());
    const outcome = await this.send();
    if (outcome !== 'answered') throw new Error(outcome);
    for (const list of [this.sent, this.messages, this.events, this.responses]) list.length = 0;
    Object.assign(this.facts, { attempts: 0, challenged: false, credential: undefined, upstreamAddress: '' });
  }

  /** Two requests, of which the upstream refuses the count of the first one, though it has accepted the higher one. */
  async refuseOvertaken(): Promise<void> {
    const early = held(stale('n3'));
    this.replies.push(early.reply, answered(), answered());
    const first = this.send();
    await early.came;
    await this.send();
    early.release();
    await first;
  }
}

/** `GET /x n1:2` for an answer with nonce n1 and the second count. */
function lineOf({ method, target, headers, freshConnection }: Message): string {
  const fresh = freshConnection === true ? ' fresh' : '';
  const at = headers.indexOf('authorization');
  if (at === -1) return `${method} ${target}${fresh}`;
  const [parameters] = readChallenges([headers[at + 1] ?? '']);
  const nonce = parameters?.get('nonce');
  const nc = parameters?.has('nc') ? `:${Number.parseInt(parameters.get('nc') ?? '', 16)}` : '';
  const wrong = parameters !== undefined && isRight(parameters, method, target) ? '' : ' wrong';
  const user = parameters?.get('username') === 'u' ? '' : ` ${parameters?.get('username')}`;
  return `${method} ${target} ${nonce}${nc}${user}${wrong}${fresh}`;
}

function isRight(parameters: Challenge, method: string, target: string): boolean {
  const nc = Number.parseInt(parameters.get('nc') ?? '1', 16);
  const cnonce = parameters.get('cnonce') ?? '';
  const username = parameters.get('username') ?? '';
  const expected = answer(parameters, { method, target, username, password: 'p', nc, cnonce });
  return readChallenges([expected])[0]?.get('response') === parameters.get('response');
}
