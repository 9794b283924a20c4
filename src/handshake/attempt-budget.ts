import type { Clock } from '../base/clock.ts';
import { type ClientState, PerClient } from '../base/per-client.ts';
import { RollingCount } from '../base/rolling-count.ts';
import type { RetryReason } from '../metrics/deployment-metrics.ts';
import type { Series } from '../metrics/series.ts';
import type { Lost } from './response.ts';

/** RFC 9110 §9.2.2: only these, and registered methods that only read, may be sent again when nothing is known of the first. */
export const IDEMPOTENT: ReadonlySet<string> = new Set([
  ...['GET', 'HEAD', 'OPTIONS', 'TRACE', 'PUT', 'DELETE'],
  ...['PROPFIND', 'REPORT', 'SEARCH', 'QUERY'],
]);

/** How often requests may be sent again. */
export interface Retries {
  /** The most for one request. */
  readonly attempts: number;
  /** Takes a retry of this client from what all requests share, and counts it; false: none is left. */
  take(reason: RetryReason, client: string): boolean;
  /** Counts a retry that needs no permission. */
  count(reason: RetryReason): void;
}

/** One repeat for each request. */
const ONE_REPEAT: Retries = { attempts: 1, take: () => true, count() {} };

/** In milliseconds. */
const RETRY_WINDOW = 10_000;
/** Retries in the window that are allowed however few requests there are: 3 per second. */
const MIN_RETRIES = 30;
/**
 * Repeats after idle connections that cost nothing in the window, however few requests there are: an upstream that starts
 * anew closes all of them at once. Beyond it they cost retries: an upstream that breaks off at once is no idle one.
 */
const MIN_STALE = 256;
/**
 * When the retries are used up, a client that has taken less than a quarter of them still gets one, up to twice as many
 * in all: a client whose requests break every connection does not keep others from their retries.
 */
const LEFT_TO_OTHERS = { oneOf: 4, times: 2 };

/** Authenticated attempts that the upstream answers, for one client request. */
const ATTEMPTS = 2;
/** Attempts more after refusals of a nonce, such as those that name it again. */
const MAX_FOR_NONCES = 2;

/**
 * Bounds the exchanges of one client request, however many versions of a credential and addresses it tries: two
 * authenticated attempts that get a response, and the repeats of those whose connection broke. A rotation adds two: with
 * the version that the upstream has accepted in place of the first one, whose first nonce may be refused like any other.
 * A refusal that names the nonce once more proves nothing, and adds one, twice at most. A refusal of the local address
 * adds two.
 */
export class AttemptBudget {
  readonly #method: string;
  readonly #retries: Retries;
  readonly #client: string;
  #limit: number;
  #forNonces = 0;
  /** Authenticated attempts that the upstream answered. */
  answered = 0;
  /** True if the upstream called the nonce of every refused attempt stale. */
  onlyStale = true;
  /** True if a nonce was refused that was obtained for this request. */
  ownRefused = false;
  /** True if such a nonce was called stale. */
  ownStale = false;
  /** True if the credential was found good after an attempt of this request was refused. */
  confirmed = false;
  /** How long the request has waited for others that find out about the credential, in milliseconds. */
  waitedMs = 0;
  /** Times that the request was sent again because its connection broke: from then on, on new connections only. */
  repeats = 0;
  /** The last exchange that got no response; undefined: none, or it has been made up for. */
  #lost: Lost | undefined;
  /** True if the request for its challenge got a response of HTTP/1.1; undefined: there was no such request. */
  isHttp11: boolean | undefined;
  /** True if a body that is not kept was sent, so that the request cannot be sent again. */
  bodySent = false;

  /** `method`: of the request. `attempts`: authenticated ones that may be answered. `client`: empty: the gateway. */
  constructor(method: string, retries: Retries = ONE_REPEAT, attempts = ATTEMPTS, client = '') {
    this.#method = method;
    this.#retries = retries;
    this.#limit = attempts;
    this.#client = client;
  }

  /** Attempts that may still be answered. */
  get left(): number {
    return this.#limit - this.answered;
  }

  /** True if no attempt can follow. */
  get spent(): boolean {
    return this.left <= 0 || this.bodySent;
  }

  /** Another version of the credential has just been accepted; at most four attempts in all. */
  extendForRotation(): void {
    this.#limit = Math.min(2 * ATTEMPTS, this.answered + ATTEMPTS);
  }

  /** The nonce of an attempt was refused, and not the credential: adds one, if none is left. `most`: in all. */
  extendForNonce(most = MAX_FOR_NONCES): void {
    if (this.#forNonces >= most || this.left > 0) return;
    this.#forNonces += 1;
    this.#limit += 1;
  }

  /** Takes the right to send the request again at the same address. `method`: of the exchange that got no response. */
  takeRepeat(lost: Lost, method = this.#method): boolean {
    this.#lost = lost;
    if (!lost.broke || !this.#isRepeatable(lost, method)) return false;
    const isStale = lost.reused && this.repeats === 0;
    if (!isStale && this.repeats >= this.#retries.attempts) return false;
    if (!this.#retries.take(isStale ? 'stale_connection' : 'connection_broke', this.#client)) return false;
    this.repeats += 1;
    this.#lost = undefined;
    return true;
  }

  /** Takes the right to send the request, which ended with this error, to another address, or from another local one. */
  takeMove(error: unknown, reason: 'next_address' | 'next_egress' = 'next_address'): boolean {
    const lost = this.#lost;
    if (lost === undefined || lost.error !== error || !this.#isRepeatable(lost)) return false;
    this.#lost = undefined;
    // A request that was not sent adds no load.
    if (lost.sent) return this.#retries.take(reason, this.#client);
    this.#retries.count(reason);
    return true;
  }

  /**
   * Takes the right to send the request again from another local address, with two more attempts: the upstream refused
   * this one.
   */
  takeNextEgress(): boolean {
    if (this.bodySent || !IDEMPOTENT.has(this.#method)) return false;
    if (!this.#retries.take('next_egress', this.#client)) return false;
    this.#limit = this.answered + ATTEMPTS;
    return true;
  }

  /** RFC 9110 §9.2.2: the upstream may have acted on a request that it got. */
  #isRepeatable({ sent }: Lost, method = this.#method): boolean {
    return !this.bodySent && (!sent || IDEMPOTENT.has(method));
  }
}

export interface RetryOptions {
  /** The most retries of one request. */
  readonly attempts: number;
  /** The most retries of all requests of the last 10 s, as a share of these. */
  readonly budget: number;
}

/** The retries of one client in the window. */
class ClientRetries implements ClientState {
  readonly #clock: Clock;
  readonly #taken = new RollingCount(RETRY_WINDOW);

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  get isUnused(): boolean {
    return this.taken === 0;
  }

  get taken(): number {
    return this.#taken.sum(this.#clock.now());
  }

  take(): void {
    this.#taken.add(this.#clock.now());
  }
}

/** Bounds the retries of all requests to one upstream, so that they do not multiply the load of one that fails. */
export class RetryBudget implements Retries {
  readonly attempts: number;
  readonly #share: number;
  readonly #clock: Clock;
  readonly #series: Readonly<Record<RetryReason | 'denied', Series>>;
  readonly #requests = new RollingCount(RETRY_WINDOW);
  readonly #retries = new RollingCount(RETRY_WINDOW);
  /** Repeats after idle connections that cost no retry. */
  readonly #stale = new RollingCount(RETRY_WINDOW);
  readonly #clients = new PerClient(() => new ClientRetries(this.#clock));

  constructor(
    { attempts, budget }: RetryOptions,
    clock: Clock,
    series: Readonly<Record<RetryReason | 'denied', Series>>,
  ) {
    this.attempts = attempts;
    this.#share = budget;
    this.#clock = clock;
    this.#series = series;
  }

  /** A client request begins. */
  onRequest(now: number): void {
    this.#requests.add(now);
  }

  take(reason: RetryReason, client: string): boolean {
    const now = this.#clock.now();
    const share = this.#requests.sum(now) * this.#share;
    if (reason === 'stale_connection' && this.#stale.sum(now) < Math.max(MIN_STALE, share)) {
      this.#stale.add(now);
      this.count(reason);
      return true;
    }
    const own = this.#clients.of(client);
    const allowed = Math.max(MIN_RETRIES, share);
    const { oneOf, times } = LEFT_TO_OTHERS;
    if (this.#retries.sum(now) >= allowed * (own.taken < allowed / oneOf ? times : 1)) {
      this.#series.denied.inc();
      return false;
    }
    own.take();
    this.#retries.add(now);
    this.count(reason);
    return true;
  }

  count(reason: RetryReason): void {
    this.#series[reason].inc();
  }
}
