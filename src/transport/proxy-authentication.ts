import { randomBytes } from 'node:crypto';
import type { Socket } from 'node:net';
import { Cancellation } from '../base/cancellation.ts';
import type { Clock } from '../base/clock.ts';
import { type ErrorCode, GatewayError } from '../base/errors.ts';
import { fieldValues, type RawHeaders } from '../base/raw-headers.ts';
import { SingleFlight } from '../base/single-flight.ts';
import { NoncePool } from '../challenges/pool.ts';
import { SharedChallenges } from '../challenges/shared-challenges.ts';
import { MemoryChallengeStore } from '../challenges/store/memory.ts';
import type { Credential } from '../credentials/credentials.ts';
import type { AlgorithmName } from '../digest/algorithms.ts';
import { offersScheme } from '../digest/challenge.ts';
import type { Account, Call, HandshakeMetrics } from '../handshake/account.ts';
import { AttemptBudget } from '../handshake/attempt-budget.ts';
import { CredentialHealth } from '../handshake/credential-health.ts';
import { alwaysStale, noDigest, refusedAgain } from '../handshake/errors.ts';
import type { Exchange } from '../handshake/exchange.ts';
import { type HandshakeOptions, handshake, type Refused } from '../handshake/handshake.ts';
import { NO_BODY } from '../handshake/request.ts';
import { UpstreamResponse } from '../handshake/response.ts';
import {
  noCredential,
  ProxyError,
  passwordNeeded,
  plaintextNotAllowed,
  proxyAlwaysStale,
  proxyProofInvalid,
  proxyRefuses,
  proxyRefusesCredential,
  unusableProxyChallenge,
  weakProxyChallenge,
} from './proxy-errors.ts';

/** Between trials of a refused credential, in milliseconds: proxies lock addresses out as upstreams do. */
const TRIAL_INTERVAL_MS = 30_000;
/** The longest that tunnels wait for another one that tests the credential, in milliseconds. */
const PATIENCE_MS = 1_000;
/** Attempts to make a tunnel are not counted. */
const UNCOUNTED = { inc(): void {} };
const METRICS: HandshakeMetrics = {
  upstreamAttempts: {
    ok: UNCOUNTED,
    challenged: UNCOUNTED,
    stale: UNCOUNTED,
    refused: UNCOUNTED,
    error: UNCOUNTED,
  },
  challenges: { cold: UNCOUNTED, stale: UNCOUNTED, single_use: UNCOUNTED, ahead: UNCOUNTED },
};

/** Errors of the Digest client, as errors of the proxy. */
const PROXY_ERRORS: Partial<Record<ErrorCode, () => ProxyError>> = {
  'credential-unavailable': passwordNeeded,
  'upstream-protocol': proxyAlwaysStale,
  'upstream-proof-invalid': proxyProofInvalid,
};

type PasswordCredential = Extract<Credential, { readonly password: unknown }>;

export interface ProxyAccount {
  /** Undefined: the proxy is expected not to ask. */
  readonly credential: Credential | undefined;
  /** Algorithms that may answer Digest. */
  readonly algorithms: readonly AlgorithmName[];
  /** False: others can read the connection, so nothing of the credential is sent. */
  readonly mayAnswer: boolean;
  /** `host:port`, the target of every CONNECT. */
  readonly authority: string;
}

/** Response of a proxy to a CONNECT. */
export interface ProxyReply {
  readonly status: number;
  readonly headers: RawHeaders;
  /** Nothing of the tunnel has been read. */
  readonly socket: Socket;
}

/** Sends one CONNECT with these header fields, on a connection of its own. */
export type Connect = (headers: RawHeaders) => Promise<ProxyReply>;

/** Authenticates to one proxy with one credential, for every connection to one upstream. */
export class ProxyAuthentication {
  readonly #account: ProxyAccount;
  readonly #clock: Clock;
  readonly #health = new CredentialHealth();
  /** Undefined: there is no credential. */
  readonly #digest: Account | undefined;
  /** Of the tunnel that tests an unknown credential, while others wait for it. */
  readonly #flights = new SingleFlight();
  #basicAccepted = false;
  /** A refused credential is kept back until then, on the clock. */
  #nextTrial = Number.NEGATIVE_INFINITY;

  constructor(account: ProxyAccount, clock: Clock) {
    this.#account = account;
    this.#clock = clock;
    this.#digest = account.credential && this.#digestAccount(account.credential);
  }

  get credential(): Credential | undefined {
    return this.#account.credential;
  }

  /**
   * Makes a tunnel and returns its socket.
   * @throws GatewayError `upstream-unreachable`, which says that it was the proxy
   */
  async open(connect: Connect): Promise<Socket> {
    const { credential, mayAnswer } = this.#account;
    if (this.#digest === undefined || credential === undefined) {
      return openUnauthenticated(connect, noCredential);
    }
    if (!mayAnswer) return openUnauthenticated(connect, plaintextNotAllowed);
    if (this.#clock.now() < this.#nextTrial) throw proxyRefusesCredential();
    if (this.#health.refused) this.#health.reset();
    if (this.#basicAccepted && 'password' in credential) return this.#openWithBasic(connect, credential);
    return this.#openWithDigest(connect, credential, this.#digest);
  }

  async #openWithDigest(connect: Connect, credential: Credential, account: Account): Promise<Socket> {
    let last: ProxyReply | undefined;
    const exchange: Exchange = async ({ headers }) => {
      last?.socket.destroy();
      last = await connect(headers);
      const { status } = last;
      // The proof of a response that makes no tunnel is not looked at.
      const fields = isTunnel(status) || status === 407 ? last.headers : [];
      return new UpstreamResponse(status, '', fields, true, undefined);
    };
    const target = this.#account.authority;
    const request = { method: 'CONNECT', target, headers: [], body: NO_BODY, client: '', trace: undefined };
    const cancellation = new Cancellation();
    const call = { request: { ...request, cancellation }, budget: new AttemptBudget(), exchange };
    try {
      await this.#handshake(account, call);
      if (last === undefined) throw proxyRefusesCredential();
      return tunnelOf(last);
    } catch (error) {
      last?.socket.destroy();
      if (!isCode(error, 'upstream-no-digest')) throw asProxyError(error);
      const lines = fieldValues(last?.headers ?? [], 'proxy-authenticate');
      if (offersScheme(lines, 'digest')) throw weakProxyChallenge();
      if (!offersScheme(lines, 'basic')) throw unusableProxyChallenge();
      if (!('password' in credential)) throw passwordNeeded();
      return this.#openWithBasic(connect, credential);
    }
  }

  /**
   * Resolves when the proxy has responded to an attempt. One tunnel at a time tests an unknown credential. A refused
   * attempt with a nonce from earlier is followed by one with a fresh nonce, which shows whether the password is refused.
   */
  async #handshake(account: Account, call: Call): Promise<void> {
    if (this.#flights.busy) await this.#flights.follow(call.request.cancellation, PATIENCE_MS);
    const flight = this.#health.accepted || this.#flights.busy ? undefined : this.#flights.lead();
    try {
      let options: HandshakeOptions = {};
      for (;;) {
        const result = await handshake(account, call, options);
        if (result === 'interrupted') throw proxyRefusesCredential();
        if (result.kind === 'response') break;
        options = this.#afterRefusal(result, call);
      }
    } finally {
      flight?.land('check');
    }
    // An attempt that was under way when another one was refused can show that the credential is good.
    if (this.#health.accepted) this.#nextTrial = Number.NEGATIVE_INFINITY;
  }

  /** Returns how the next attempt begins. @throws GatewayError when none can follow */
  #afterRefusal(refused: Refused, { budget }: Call): HandshakeOptions {
    const { isStale, isEvidence, number, challenge, inHand } = refused;
    if (isStale) throw alwaysStale();
    // The refused attempt answered a challenge of its own, so the password was changed.
    if (isEvidence && !this.#health.isSuperseded(number)) {
      if (this.#health.refuse(number)) this.#pause();
      throw proxyRefusesCredential();
    }
    if (challenge === undefined) throw noDigest();
    if (budget.spent) throw refusedAgain();
    return { challenge: inHand, freshNonce: true };
  }

  async #openWithBasic(connect: Connect, credential: PasswordCredential): Promise<Socket> {
    const reply = await connect(['proxy-authorization', basic(credential)]);
    if (reply.status === 407) {
      reply.socket.destroy();
      this.#basicAccepted = false;
      this.#pause();
      throw proxyRefusesCredential();
    }
    const tunnel = tunnelOf(reply);
    this.#basicAccepted = true;
    return tunnel;
  }

  #digestAccount(credential: Credential): Account {
    const clock = this.#clock;
    const { algorithms } = this.#account;
    const pool = new NoncePool({
      credential,
      algorithms,
      clock,
      random: Math.random,
      newCnonce: () => randomBytes(16).toString('hex'),
      // One CONNECT at a time uses a nonce: proxies refuse counts that come out of order.
      policy: 'exclusive',
      sharedChallenges: new SharedChallenges({ key: 'proxy', store: new MemoryChallengeStore(clock) }),
      onStep: () => {},
      onBound: () => {},
      renew: undefined,
    });
    return {
      credential,
      pool,
      health: this.#health,
      clock,
      algorithms,
      requireQop: true,
      field: 'proxy-authorization',
      address: '',
      metrics: METRICS,
      deployment: '',
      forwardTrace: false,
    };
  }

  #pause(): void {
    this.#nextTrial = this.#clock.now() + TRIAL_INTERVAL_MS;
  }
}

/** Makes a tunnel without any credential; `whenAsked`: the error if the proxy asks for one. */
async function openUnauthenticated(connect: Connect, whenAsked: () => GatewayError): Promise<Socket> {
  const reply = await connect([]);
  if (reply.status !== 407) return tunnelOf(reply);
  reply.socket.destroy();
  throw whenAsked();
}

/** Returns the socket of the tunnel that the proxy made; throws if it made none. */
function tunnelOf({ status, socket }: ProxyReply): Socket {
  if (isTunnel(status)) return socket;
  socket.destroy();
  throw proxyRefuses(status);
}

/** RFC 9110 §9.3.6: any 2xx response to CONNECT makes a tunnel. */
function isTunnel(status: number): boolean {
  return status >= 200 && status <= 299;
}

function isCode(error: unknown, code: ErrorCode): boolean {
  return error instanceof GatewayError && error.code === code;
}

function asProxyError(error: unknown): unknown {
  if (error instanceof ProxyError || !(error instanceof GatewayError)) return error;
  return PROXY_ERRORS[error.code]?.() ?? error;
}

/** RFC 7617 §2. */
function basic({ username, password }: PasswordCredential): string {
  const pair = Buffer.from(`${username}:${password.reveal()}`.normalize('NFC'));
  return `Basic ${pair.toString('base64')}`;
}
