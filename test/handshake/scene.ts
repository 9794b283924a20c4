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
import type { Exchange, ExchangeRequest, ExchangeResult, Lost } from '../../src/handshake/exchange.ts';
import { NO_BODY, type UpstreamRequest } from '../../src/handshake/request.ts';
import { discardResponse, type ResponseHandler } from '../../src/handshake/response-handler.ts';
import { type Call, sendAuthenticated, type Turn } from '../../src/handshake/send-authenticated.ts';
import { answer, type Challenge, readChallenges } from '../support/digest-client.ts';

export const credential = {
  name: 'main',
  version: '7',
  username: 'u',
  password: new Secret('p'),
  changedAt: undefined,
};

/** The upstream's part in one request. */
export type Reply = (
  request: ExchangeRequest,
  handler: ResponseHandler,
) => ExchangeResult | Promise<ExchangeResult>;

/** A 401 with a challenge. */
export function challenge(
  nonce: string,
  parameters = 'qop="auth"',
  setCookies: readonly string[] = [],
): Reply {
  const text = `Digest realm="r", nonce="${nonce}"${parameters && `, ${parameters}`}`;
  return () => ({ kind: 'challenged', challenges: [text], setCookies, date: undefined });
}

export const stale = (nonce: string): Reply => challenge(nonce, 'qop="auth", stale=true');

/** A 401 with these WWW-Authenticate lines. */
export const unauthorized =
  (...challenges: string[]): Reply =>
  () => ({ kind: 'challenged', challenges, setCookies: [], date: undefined });

/** Any other response; `info`: its Authentication-Info. */
export function answered(status = 200, info?: string, body = 'body'): Reply {
  return ({ onHead }, handler) => {
    const proof = onHead(status, info === undefined ? [] : [info]);
    handler.head(status, 'Reason', [], true);
    proof?.update(Buffer.from(body));
    handler.data(Buffer.from(body));
    proof?.finish();
    handler.end([]);
    return { kind: 'answered', status };
  };
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
  /** Calls of the response handler of a client request. */
  readonly response: string[] = [];
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

  readonly exchange: Exchange = async (request, handler) => {
    const refused = request.refusal?.();
    if (refused !== undefined) throw refused;
    this.requests.push(request);
    this.sent.push(lineOf(request));
    const reply = this.replies.shift();
    if (reply === undefined) throw new Error(`no reply to ${this.sent.at(-1)}`);
    return reply(request, handler);
  };

  /** Sends a client request; resolves to its outcome, or to the code of its error. */
  async send(
    change: Partial<UpstreamRequest> = {},
    { turn = FIRST, ...call }: Partial<Call> & { readonly turn?: Turn } = {},
  ): Promise<string> {
    const { exchange } = this;
    const request = { method: 'GET', target: '/x', headers: [], body: NO_BODY, client: 'c', ...change };
    const given = {
      request: { trace: undefined, ...request },
      handler: this.handler,
      cancellation: new Cancellation(),
      budget: new AttemptBudget(),
      exchange,
      ...call,
    };
    try {
      return await sendAuthenticated(this.client, given, turn);
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
    for (const list of [this.sent, this.requests, this.events, this.response]) list.length = 0;
  }

  readonly handler: ResponseHandler = {
    ...discardResponse,
    attempt: ({ name, version }, address) => this.response.push(`attempt ${name} ${version} ${address}`),
    challenged: () => this.response.push('challenged'),
    head: (status) => this.response.push(`head ${status}`),
    end: () => this.response.push('end'),
  };

  /** Asks the upstream with a request of the gateway's own, as the owner of the credential does. */
  async #confirm(target: string): Promise<void> {
    const { client } = this;
    const flight = client.flights.lead();
    const request = { method: 'HEAD', target, headers: [], body: NO_BODY, client: '', trace: undefined };
    const { exchange } = this;
    const context = {
      exchange,
      client: '',
      cancellation: new Cancellation(),
      freshConnection: false,
      trace: undefined,
    };
    const options = { request, context, replaces: undefined, reason: 'stale', triesEachNonce: true } as const;
    try {
      const result = await probeCredential(client, options);
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
