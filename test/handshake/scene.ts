import { Cancellation } from '../../src/base/cancellation.ts';
import { GatewayError } from '../../src/base/errors.ts';
import { Secret } from '../../src/base/secret.ts';
import { NoncePool } from '../../src/challenges/pool.ts';
import { SharedChallenges } from '../../src/challenges/shared-challenges.ts';
import { MemoryChallengeStore } from '../../src/challenges/store/memory.ts';
import type { NoncePolicy } from '../../src/challenges/store/store.ts';
import { AttemptBudget } from '../../src/handshake/attempt-budget.ts';
import { probeCredential } from '../../src/handshake/credential-probe.ts';
import {
  DigestClient,
  type DigestClientOptions,
  type DigestListener,
  DigestState,
} from '../../src/handshake/digest-client.ts';
import type { Exchange, ExchangeFacts, ExchangeRequest, Lost } from '../../src/handshake/exchange.ts';
import { NO_BODY, type UpstreamRequest } from '../../src/handshake/request.ts';
import { type ResponseSource, UpstreamResponse } from '../../src/handshake/response.ts';
import { type Call, sendAuthenticated, type Turn } from '../../src/handshake/send-authenticated.ts';
import { answer, type Challenge, readChallenges } from '../support/digest-client.ts';

export const credential = {
  name: 'main',
  version: '7',
  username: 'u',
  password: new Secret('p'),
  changedAt: undefined,
};

type Result = UpstreamResponse | Lost;

/** The upstream's part in one request. */
export type Reply = (request: ExchangeRequest) => Result | Promise<Result>;

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

export const FIRST: Turn = { ownNonce: false, attempts: 2 };

export interface SceneOptions {
  readonly policy?: NoncePolicy | 'auto';
  readonly options?: Partial<DigestClientOptions>;
}

/** A Digest client with its pool, at an upstream that gives one reply after the other. */
export class HandshakeScene {
  readonly clock = { at: 1_000_000, now: () => this.clock.at };
  /** The replies that are left, in order. A request that finds none fails. */
  readonly replies: Reply[] = [];
  /** Each request on one line, with nonce and count of its answer. `wrong`: other hash code computes another response. */
  readonly sent: string[] = [];
  readonly requests: ExchangeRequest[] = [];
  /** Calls of the client to its listener. */
  readonly events: string[] = [];
  /** The responses that client requests got. */
  readonly responses: UpstreamResponse[] = [];
  readonly facts: ExchangeFacts = {
    attempts: 0,
    firstAttemptAt: 0,
    leftAt: undefined,
    challenged: false,
    credential: undefined,
    upstreamAddress: '',
  };
  /** The last error that a client request ended with. */
  error: GatewayError | undefined;
  hasAlternatives = false;
  isReplaced = false;
  isInUse = true;
  readonly client: DigestClient;

  constructor({ policy = 'auto', options = {} }: SceneOptions = {}) {
    let cnonces = 0;
    const pool = new NoncePool({
      sharedChallenges: new SharedChallenges({ key: 'k', store: new MemoryChallengeStore() }),
      credential,
      algorithms: ['MD5', 'SHA-256'],
      clock: this.clock,
      newCnonce: () => {
        cnonces += 1;
        return `c${cnonces}`;
      },
      random: () => 0,
      policy,
      onStep: (step) => this.events.push(`policy ${step}`),
      onBound: () => {},
      renew: undefined,
    });
    this.client = new DigestClient(
      {
        credential,
        algorithms: ['MD5', 'SHA-256'],
        patienceMs: 10_000,
        field: 'authorization',
        address: 'upstream:80',
        tracing: { deployment: 'd', forwardTrace: true },
        ...options,
      },
      { pool, state: new DigestState(), listener: this.#listener(), clock: this.clock },
    );
  }

  readonly exchange: Exchange = async (request) => {
    const refused = request.refusal?.();
    if (refused !== undefined) throw refused;
    this.requests.push(request);
    this.sent.push(lineOf(request));
    const reply = this.replies.shift();
    if (reply === undefined) throw new Error(`no reply to ${this.sent.at(-1)}`);
    return reply(request);
  };

  /** Sends a client request; resolves to `answered`, `refused`, or the code of its error. */
  async send(
    change: Partial<UpstreamRequest> = {},
    { turn = FIRST, ...call }: Partial<Call> & { readonly turn?: Turn } = {},
  ): Promise<string> {
    const { exchange, facts } = this;
    const request = {
      method: 'GET',
      target: '/x',
      headers: [],
      body: NO_BODY,
      client: 'c',
      facts,
      ...change,
    };
    const given = {
      request: { trace: undefined, ...request },
      cancellation: new Cancellation(),
      budget: new AttemptBudget(),
      exchange,
      ...call,
    };
    try {
      const outcome = await sendAuthenticated(this.client, given, turn);
      if (outcome === 'refused') return outcome;
      this.responses.push(outcome);
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
    for (const list of [this.sent, this.requests, this.events, this.responses]) list.length = 0;
    Object.assign(this.facts, { attempts: 0, challenged: false, credential: undefined, upstreamAddress: '' });
  }

  /** Asks the upstream with a request of the gateway's own, as the owner of the credential does. */
  async #confirm(target: string): Promise<void> {
    const { client } = this;
    const flight = client.flights.lead();
    const request = { method: 'HEAD', target, headers: [], body: NO_BODY, client: '', trace: undefined };
    const call = { request, cancellation: new Cancellation(), exchange: this.exchange };
    const options = { call, freshConnection: false, replaces: undefined } as const;
    try {
      const result = await probeCredential(client, {
        ...options,
        ...{ reason: 'stale', triesEachNonce: true },
      });
      if (result.kind === 'refused') client.health.refuse(result.attempt);
      if (result.kind === 'unclear') client.health.reset();
    } catch {
      client.health.reset();
    } finally {
      flight.land('check');
    }
  }

  #listener(): DigestListener {
    const { events } = this;
    const scene = this;
    return {
      get hasAlternatives() {
        return scene.hasAlternatives;
      },
      get isInUse() {
        return scene.isInUse;
      },
      onRefused: () => events.push('refused'),
      get isReplaced() {
        return scene.isReplaced;
      },
      confirm: (target, refused) => {
        events.push(`confirm ${target}${refused === undefined ? '' : ` ${refused}`}`);
        void this.#confirm(target);
      },
      onAttempt: (result) => events.push(`attempt ${result}`),
      onChallenge: (reason) => events.push(`challenge ${reason}`),
      onSuccess: (target) => events.push(`success ${target}`),
      onAccepted: (status) => events.push(`accepted ${status}`),
      onUnconfirmed: () => events.push('unconfirmed'),
    };
  }
}

/** `GET /x n1:2` for an answer with nonce n1 and the second count. */
function lineOf({ method, target, headers, freshConnection }: ExchangeRequest): string {
  const fresh = freshConnection === true ? ' fresh' : '';
  const at = headers.indexOf('authorization');
  if (at === -1) return `${method} ${target}${fresh}`;
  const [parameters] = readChallenges([headers[at + 1] ?? '']);
  const nonce = parameters?.get('nonce');
  const nc = parameters?.has('nc') ? `:${Number.parseInt(parameters.get('nc') ?? '', 16)}` : '';
  const wrong = parameters !== undefined && isRight(parameters, method, target) ? '' : ' wrong';
  return `${method} ${target} ${nonce}${nc}${wrong}${fresh}`;
}

function isRight(parameters: Challenge, method: string, target: string): boolean {
  const nc = Number.parseInt(parameters.get('nc') ?? '1', 16);
  const cnonce = parameters.get('cnonce') ?? '';
  const expected = answer(parameters, { method, target, username: 'u', password: 'p', nc, cnonce });
  return readChallenges([expected])[0]?.get('response') === parameters.get('response');
}
