import { randomBytes } from 'node:crypto';
import type { lookup } from 'node:dns';
import { isIP, connect as openTcp, type Socket } from 'node:net';
import { connect as openTls } from 'node:tls';
import { Cancellation } from '../base/cancellation.ts';
import type { Clock } from '../base/clock.ts';
import { type ErrorCode, GatewayError } from '../base/errors.ts';
import { isExposed } from '../base/network.ts';
import { fieldValues, type RawHeaders } from '../base/raw-headers.ts';
import { type Flight, SingleFlight } from '../base/single-flight.ts';
import { NoncePool } from '../challenges/pool.ts';
import { SharedChallenges } from '../challenges/shared-challenges.ts';
import { MemoryChallengeStore } from '../challenges/store/memory.ts';
import type { Credential } from '../credentials/credentials.ts';
import type { AlgorithmName } from '../digest/algorithms.ts';
import { offersScheme } from '../digest/challenge.ts';
import type { Account, HandshakeMetrics } from '../handshake/account.ts';
import { AttemptBudget } from '../handshake/attempt-budget.ts';
import { CredentialHealth } from '../handshake/credential-health.ts';
import { alwaysStale, noDigest, refusedAgain } from '../handshake/errors.ts';
import { type Exchange, NO_BODY, type UpstreamRequest } from '../handshake/exchange.ts';
import { type HandshakeOptions, handshake, type Refused } from '../handshake/handshake.ts';
import { UpstreamResponse } from '../handshake/response.ts';
import type { ProxyOptions } from './egress.ts';
import { type Connect, ProxyConnection, type ProxyReply } from './proxy-connection.ts';
import { ProxyError, type ProxyRefusal, proxyAuthenticationError, proxyRefuses } from './proxy-errors.ts';
import { type Destination, endpointOf } from './reach.ts';
import { checkServerName } from './upstream-tls.ts';

export interface TunnelOptions {
  readonly proxy: ProxyOptions;
  /** `https://host:port` of the upstream. */
  readonly origin: string;
  readonly localAddress: string | undefined;
  /** Until the tunnel stands, in milliseconds. */
  readonly timeout: number;
}

export interface TunnelDeps {
  readonly clock: Clock;
  /** The credential in use now; undefined: none. */
  readonly credential: () => Credential | undefined;
  /** Undefined: the system's. */
  readonly lookup?: typeof lookup | undefined;
}

/**
 * Opens tunnels through a proxy to one upstream (CONNECT, RFC 9110 §9.3.6), and answers the challenge of the proxy.
 */
export class ProxyTunnel {
  readonly #options: TunnelOptions;
  readonly #deps: TunnelDeps;
  readonly #proxy: Destination;
  readonly #account: Omit<ProxyAccount, 'credential'>;
  #authentication: ProxyAuthentication;

  constructor(options: TunnelOptions, deps: TunnelDeps) {
    const { algorithms, allowPlaintext, origin } = options.proxy;
    this.#proxy = destinationOf(options, deps);
    this.#options = options;
    this.#deps = deps;
    this.#account = {
      algorithms,
      mayAnswer: allowPlaintext || !isExposed(new URL(origin)),
      authority: authorityOf(options.origin),
      patienceMs: options.timeout,
    };
    this.#authentication = this.#authenticationWith(deps.credential());
  }

  /**
   * A connection to the upstream, nothing sent on it yet.
   * @throws GatewayError `upstream-unreachable`, which says that it was the proxy
   */
  async open(): Promise<Socket> {
    const now = this.#deps.credential();
    const { credential } = this.#authentication;
    // A reload reads the same version again: if the proxy refused it, it is kept back all the same.
    if (now?.version !== credential?.version) this.#authentication = this.#authenticationWith(now);
    const { clock } = this.#deps;
    const { authority } = this.#account;
    const deadline = clock.now() + this.#options.timeout;
    const connection = new ProxyConnection({ proxy: this.#proxy, authority, deadline }, clock);
    try {
      return await this.#authentication.open(connection.connect);
    } catch (error) {
      connection.close();
      throw error;
    }
  }

  #authenticationWith(credential: Credential | undefined): ProxyAuthentication {
    return new ProxyAuthentication({ ...this.#account, credential }, this.#deps.clock);
  }
}

function destinationOf({ proxy, localAddress }: TunnelOptions, { lookup }: TunnelDeps): Destination {
  const endpoint = endpointOf(proxy.origin);
  const secure = {
    ALPNProtocols: ['http/1.1'],
    servername: isIP(endpoint.host) === 0 ? endpoint.host : '',
    checkServerIdentity: checkServerName,
    rejectUnauthorized: true,
    ...(proxy.ca !== undefined && { ca: proxy.ca }),
  };
  return {
    ...endpoint,
    localAddress,
    open: endpoint.isTls ? (opts) => openTls({ ...opts, ...secure }) : openTcp,
    ...(lookup !== undefined && { lookup }),
  };
}

/** `host:port`, the port said even if it is the scheme's own. */
function authorityOf(origin: string): string {
  return `${new URL(origin).hostname}:${endpointOf(origin).port}`;
}

/** Between trials of a refused credential, in milliseconds: proxies lock addresses out as upstreams do. */
const TRIAL_INTERVAL_MS = 30_000;
/** Attempts to make a tunnel are not counted. */
const NONE = { inc(): void {} };
const METRICS: HandshakeMetrics = {
  upstreamAttempts: { ok: NONE, challenged: NONE, stale: NONE, refused: NONE, error: NONE },
  challenges: { cold: NONE, stale: NONE, single_use: NONE, ahead: NONE },
};

/** Errors of the Digest client, as errors of the proxy. */
const PROXY_ERRORS: Partial<Record<ErrorCode, ProxyRefusal>> = {
  'credential-unavailable': 'password-needed',
  'upstream-protocol': 'always-stale',
  'upstream-proof-invalid': 'proof-invalid',
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
  /** The longest that tunnels wait for another one that tests the credential, in milliseconds. */
  readonly patienceMs: number;
}

/** Authenticates to one proxy with one credential, for every connection to one upstream. */
export class ProxyAuthentication {
  readonly #account: ProxyAccount;
  readonly #clock: Clock;
  readonly #health = new CredentialHealth();
  /** Undefined: there is no credential. */
  readonly #pool: NoncePool | undefined;
  /** Of the tunnel that tests an unknown credential, while others wait for it. */
  readonly #flights = new SingleFlight();
  #basicAccepted = false;
  /** A refused credential is kept back until then, on the clock. */
  #nextTrial = Number.NEGATIVE_INFINITY;

  constructor(account: ProxyAccount, clock: Clock) {
    this.#account = account;
    this.#clock = clock;
    this.#pool = account.credential && this.#poolOf(account.credential);
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
    const pool = this.#pool;
    if (pool === undefined || credential === undefined) return openUnauthenticated(connect, 'no-credential');
    if (!mayAnswer) return openUnauthenticated(connect, 'plaintext');
    let test = await this.#enter();
    try {
      this.#beginTrial();
      const connectOnce: Connect = async (headers) => {
        const result = await connect(headers);
        // It has nothing against the credential, or does not ask for one.
        if (result.kind === 'reply' && result.status !== 407) test?.land('proceed');
        return result;
      };
      if (this.#basicAccepted && 'password' in credential) {
        const reply = await sendBasic(connectOnce, credential);
        const wantsDigest = offers(reply, 'digest') && !offers(reply, 'basic');
        if (reply.status !== 407 || !wantsDigest) return this.#tunnelByBasic(reply);
        // It asked for Basic before, so it has not looked at the password: the credential is unknown again.
        this.#basicAccepted = false;
        test ??= await this.#enter();
        this.#beginTrial();
      }
      return await this.#openWithDigest(connectOnce, credential, pool);
    } finally {
      test?.land('check');
    }
  }

  /**
   * One tunnel at a time tests an unknown credential, since proxies lock out after a few refusals; undefined: this one
   * does not.
   */
  async #enter(): Promise<Flight | undefined> {
    const isUnknown = (): boolean => !this.#health.accepted && !this.#basicAccepted;
    while (isUnknown() && this.#flights.busy) {
      const end = await this.#flights.follow(new Cancellation(), this.#account.patienceMs);
      if (end !== 'check') return undefined;
    }
    return isUnknown() ? this.#flights.lead() : undefined;
  }

  /** @throws GatewayError while a refused credential is kept back */
  #beginTrial(): void {
    if (this.#clock.now() < this.#nextTrial) throw proxyAuthenticationError('credential-refused');
    if (this.#health.refused) this.#health.reset();
  }

  async #openWithDigest(connect: Connect, credential: Credential, pool: NoncePool): Promise<Socket> {
    let last: ProxyReply | undefined;
    const exchange: Exchange = async ({ headers }) => {
      const result = await connect(headers);
      if (result.kind === 'lost') return result;
      last = result;
      const { status } = last;
      // The proof of a response that makes no tunnel is not looked at.
      const fields = isTunnel(status) || status === 407 ? last.headers : [];
      return new UpstreamResponse(status, '', fields, true, undefined);
    };
    const request: UpstreamRequest = {
      method: 'CONNECT',
      target: this.#account.authority,
      headers: [],
      body: NO_BODY,
      cancellation: new Cancellation(),
      budget: new AttemptBudget('CONNECT'),
      client: '',
    };
    try {
      await this.#handshake(this.#accountOver(exchange, credential, pool), request);
      if (last === undefined) throw proxyAuthenticationError('credential-refused');
      return tunnelOf(last);
    } catch (error) {
      if (!isCode(error, 'upstream-no-digest') || last === undefined) throw asProxyError(error);
      if (offers(last, 'digest')) throw proxyAuthenticationError('weak-challenge');
      if (!offers(last, 'basic')) throw proxyAuthenticationError('unusable-challenge');
      if (!('password' in credential)) throw proxyAuthenticationError('password-needed');
      return this.#tunnelByBasic(await sendBasic(connect, credential));
    }
  }

  /**
   * Resolves when the proxy has responded to an attempt. A refused attempt with a nonce from earlier is followed by one
   * with a fresh nonce, which shows whether the password is refused.
   */
  async #handshake(account: Account, request: UpstreamRequest): Promise<void> {
    let options: HandshakeOptions = {};
    for (;;) {
      const result = await handshake(account, request, options);
      if (result === 'interrupted') throw proxyAuthenticationError('credential-refused');
      if (result.kind === 'response') break;
      options = this.#afterRefusal(result, request);
    }
    // An attempt that was under way when another one was refused can show that the credential is good.
    if (this.#health.accepted) this.#nextTrial = Number.NEGATIVE_INFINITY;
  }

  /** Returns how the next attempt begins. @throws GatewayError when none can follow */
  #afterRefusal(refused: Refused, { budget }: UpstreamRequest): HandshakeOptions {
    const { isStale, isEvidence, number, challenge, inHand } = refused;
    if (isStale) throw alwaysStale();
    // The refused attempt answered a challenge of its own, so the password was changed.
    if (isEvidence && !this.#health.isSuperseded(number)) {
      if (this.#health.refuse(number)) this.#pause();
      throw proxyAuthenticationError('credential-refused');
    }
    if (challenge === undefined) throw noDigest();
    if (budget.spent) throw refusedAgain();
    return { challenge: inHand, freshNonce: true };
  }

  /** Returns the tunnel that a CONNECT with Basic made; throws if it made none. */
  #tunnelByBasic(reply: ProxyReply): Socket {
    if (reply.status === 407) {
      this.#basicAccepted = false;
      this.#pause();
      throw proxyAuthenticationError('credential-refused');
    }
    const tunnel = tunnelOf(reply);
    this.#basicAccepted = true;
    return tunnel;
  }

  #poolOf(credential: Credential): NoncePool {
    const clock = this.#clock;
    const { algorithms } = this.#account;
    return new NoncePool({
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
  }

  #accountOver(exchange: Exchange, credential: Credential, pool: NoncePool): Account {
    return {
      credential,
      pool,
      health: this.#health,
      clock: this.#clock,
      algorithms: this.#account.algorithms,
      requireQop: true,
      field: 'proxy-authorization',
      address: '',
      exchange,
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
async function openUnauthenticated(connect: Connect, whenAsked: ProxyRefusal): Promise<Socket> {
  const reply = await send(connect, []);
  if (reply.status === 407) throw proxyAuthenticationError(whenAsked);
  return tunnelOf(reply);
}

/** RFC 7617 §2. */
function sendBasic(connect: Connect, { username, password }: PasswordCredential): Promise<ProxyReply> {
  const pair = Buffer.from(`${username}:${password.reveal()}`.normalize('NFC'));
  return send(connect, ['proxy-authorization', `Basic ${pair.toString('base64')}`]);
}

/** Sends a CONNECT without a nonce, and once more if it is lost. */
async function send(connect: Connect, headers: RawHeaders): Promise<ProxyReply> {
  let result = await connect(headers);
  if (result.kind === 'lost') result = await connect(headers);
  if (result.kind === 'lost') throw result.error;
  return result;
}

/** True if a 407 asks for this scheme. */
function offers({ headers }: ProxyReply, scheme: string): boolean {
  return offersScheme(fieldValues(headers, 'proxy-authenticate'), scheme);
}

/** Returns the socket of the tunnel that the proxy made; throws if it made none. */
function tunnelOf({ status, socket }: ProxyReply): Socket {
  if (isTunnel(status)) return socket;
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
  const refusal = PROXY_ERRORS[error.code];
  return refusal === undefined ? error : proxyAuthenticationError(refusal);
}
