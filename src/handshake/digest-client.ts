import type { Cancellation } from '../base/cancellation.ts';
import type { Clock } from '../base/clock.ts';
import { asGatewayError } from '../base/errors.ts';
import { fieldValues } from '../base/raw-headers.ts';
import { type Flight, SingleFlight } from '../base/single-flight.ts';
import type { Nonce } from '../challenges/nonce.ts';
import type { PendingChallenge } from '../challenges/pending-challenges.ts';
import type { NoncePool } from '../challenges/pool.ts';
import type { Credential } from '../credentials/credentials.ts';
import type { AlgorithmName } from '../digest/algorithms.ts';
import { chooseFor } from '../digest/authorization.ts';
import { type Challenge, parseChallenges } from '../digest/challenge.ts';
import type { AttemptResult, ChallengeReason } from '../metrics/metrics.ts';
import type { TracedWork } from '../tracing/tracing.ts';
import { CredentialHealth } from './credential-health.ts';
import { credentialRefused } from './errors.ts';
import type { Exchange, ExchangeFacts, ExchangeRequest, Lost, Message, Refusal } from './exchange.ts';
import { proveResponse, type SentAnswer } from './proof.ts';
import type { UpstreamRequest } from './request.ts';
import type { UpstreamResponse } from './response.ts';
import type { CredentialsField } from './signing.ts';

/** RFC 9110 §11.6, §11.7: what stands in responses, of an upstream and of a proxy. */
const RESPONSES = {
  authorization: { challenged: 401, challenges: 'www-authenticate', proof: 'authentication-info' },
  'proxy-authorization': {
    challenged: 407,
    challenges: 'proxy-authenticate',
    proof: 'proxy-authentication-info',
  },
} as const;

/** Receives the events of a Digest client and knows the other versions of its credential. */
export interface DigestListener {
  /** True if another version of the credential can take the place of this one. */
  readonly hasAlternatives: boolean;
  /** True if another version is in use in the place of this one, and the upstream accepts it. */
  readonly isReplaced: boolean;
  /** False: another version serves requests, so that one refusal of this one is enough. */
  readonly isInUse: boolean;
  /**
   * Begins to find out, with requests of the gateway's own, whether the upstream accepts the credential; they go to a
   * neutral target, or to the path of this one if that shows nothing. `refused`: the number of an attempt with a nonce of
   * its own that shows it already, unless the upstream dropped the nonce or refuses the target.
   */
  confirm(target: string, refused?: number): void;
  onAttempt(result: AttemptResult): void;
  onChallenge(reason: ChallengeReason): void;
  /** A GET of this target succeeded. */
  onSuccess(target: string): void;
  /** The upstream accepted the credential; with the status of its response. */
  onAccepted(status: number): void;
  /** The upstream refused the credential with a fresh nonce, which is still to be confirmed. */
  onUnconfirmed(): void;
  /** The upstream refused a credential that is not in use. */
  onRefused(): void;
}

/** State of one credential version, whichever connections and nonces its requests use. */
export class DigestState {
  readonly health = new CredentialHealth();
  /** Its leader finds out whether the upstream accepts the credential; authenticated attempts wait meanwhile. */
  readonly flights = new SingleFlight();
  /** The flight of a request that tests whether the upstream accepts an unknown credential; undefined: none does. */
  firstTest: Flight | undefined;
  /** Client requests in progress, whichever connections they are on. */
  clientRequests = 0;
}

export interface DigestClientOptions {
  readonly credential: Credential;
  /** Algorithms that may be used. */
  readonly algorithms: readonly AlgorithmName[];
  /** True: a challenge without qop is not answered; left out: it is. */
  readonly requireQop?: boolean;
  /** The longest that requests wait for another one that tests the credential, in milliseconds. */
  readonly patienceMs: number;
  readonly field: CredentialsField;
  /** Host and port of the server. */
  readonly address: string;
  /** For the spans of exchanges. */
  readonly tracing: ExchangeTracing;
}

export interface ExchangeTracing {
  readonly deployment: string;
  /** True: the upstream is told of the trace. */
  readonly forwardTrace: boolean;
}

export interface DigestClientDeps {
  readonly pool: NoncePool;
  readonly state: DigestState;
  readonly listener: DigestListener;
  readonly clock: Clock;
}

/** A request, and how its messages go out. */
export interface ExchangeCall {
  readonly request: UpstreamRequest;
  readonly cancellation: Cancellation;
  readonly exchange: Exchange;
}

/** Authenticates requests with one version of a credential, over whatever exchange they bring. */
export class DigestClient {
  readonly options: DigestClientOptions;
  readonly pool: NoncePool;
  readonly state: DigestState;
  readonly listener: DigestListener;
  readonly clock: Clock;

  constructor(options: DigestClientOptions, { pool, state, listener, clock }: DigestClientDeps) {
    this.options = options;
    this.pool = pool;
    this.state = state;
    this.listener = listener;
    this.clock = clock;
  }

  /** Keeps an attempt from the upstream if the credential was refused while it waited for a connection. */
  readonly refusal: Refusal = () => (this.health.refused ? credentialRefused() : undefined);

  get health(): CredentialHealth {
    return this.state.health;
  }

  get flights(): SingleFlight {
    return this.state.flights;
  }

  /** True if the upstream asks for authentication, or refuses it. */
  isChallenged({ status }: UpstreamResponse): boolean {
    return status === RESPONSES[this.options.field].challenged;
  }

  /**
   * Checks the proof in the response to an attempt: `proveResponse`.
   * @throws GatewayError `upstream-proof-invalid`, which counts as a failed attempt
   */
  prove(
    response: UpstreamResponse,
    nonce: Nonce,
    sent: SentAnswer,
    accept: (nextnonce: string | undefined) => void,
  ): void {
    try {
      proveResponse(response, RESPONSES[this.options.field].proof, nonce, sent, accept);
    } catch (error) {
      this.listener.onAttempt('error');
      throw error;
    }
  }

  /** Returns the challenge to answer in a response; undefined: none may be answered. */
  choose({ headers }: UpstreamResponse): Challenge | undefined {
    const { credential, algorithms, requireQop = false, field } = this.options;
    const lines = fieldValues(headers, RESPONSES[field].challenges);
    const challenges = parseChallenges(lines).filter(({ qop }) => !requireQop || qop.length > 0);
    return chooseFor(credential, challenges, algorithms);
  }

  /** Waits for the challenge that another request obtains, or gets the duty to obtain one: `NoncePool.enter`. */
  async enter(cancellation: Cancellation, trace: TracedWork | undefined): Promise<Nonce | PendingChallenge> {
    const span = trace?.child('challenge');
    try {
      return await this.pool.enter(cancellation);
    } finally {
      span?.end(cancellation.reason?.code);
    }
  }

  /** Tells of a challenge that was obtained. */
  obtained(reason: ChallengeReason, trace: TracedWork | undefined): void {
    this.listener.onChallenge(reason);
    trace?.event('challenge', { 'digest_gateway.reason': reason });
  }

  /** Reads a response that no client gets to its end, and counts the attempt. @throws GatewayError if it breaks off */
  async skip(response: UpstreamResponse): Promise<void> {
    try {
      await response.skip();
    } finally {
      this.listener.onAttempt(response.isWhole ? 'ok' : 'error');
    }
  }

  /**
   * Sends one message and traces it. It counts an attempt without a response; others are counted by who reads the
   * response. A challenge is returned when its body was read, or its connection closed.
   * @throws GatewayError as `Exchange` does
   */
  async exchange(
    message: Message,
    call: ExchangeCall,
    freshConnection: boolean,
    refusal = call.request.refusal,
  ): Promise<UpstreamResponse | Lost> {
    const { method, target, body } = message;
    const { request, cancellation, exchange } = call;
    const { client, noTotalTimeout, facts, interim, trace } = request;
    const span = trace && this.#spanOf(message, trace);
    const headers =
      span !== undefined && this.options.tracing.forwardTrace
        ? [...message.headers, ...span.headers()]
        : message.headers;
    if (facts !== undefined) this.#noteAttempt(facts);
    try {
      const sent: ExchangeRequest = {
        client,
        method,
        target,
        headers,
        body,
        cancellation,
        freshConnection,
        noTotalTimeout,
        refusal,
        facts,
        interim,
      };
      const result = await exchange(sent);
      if (result.kind === 'lost') {
        this.listener.onAttempt('error');
        span?.end(result.error.code);
        return result;
      }
      if (this.isChallenged(result)) {
        if (facts !== undefined) facts.challenged = true;
        if (!result.isWhole) {
          await result.discard();
          if (cancellation.reason !== undefined) throw cancellation.reason;
        }
      }
      span?.describe({ 'http.response.status_code': result.status });
      span?.end();
      return result;
    } catch (error) {
      this.listener.onAttempt('error');
      span?.end(asGatewayError(error).code);
      throw error;
    }
  }

  #noteAttempt(facts: ExchangeFacts): void {
    if (facts.attempts === 0) facts.firstAttemptAt = this.clock.now();
    facts.attempts += 1;
    facts.credential = this.options.credential;
    facts.upstreamAddress = this.options.address;
  }

  #spanOf({ method, headers }: Message, trace: TracedWork): TracedWork {
    return trace.call('exchange', {
      'http.request.method': method,
      'digest_gateway.deployment': this.options.tracing.deployment,
      'digest_gateway.authenticated': headers.includes(this.options.field),
    });
  }
}
