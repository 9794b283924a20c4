import { isDeepStrictEqual } from 'node:util';
import { brotliDecompressSync, constants, gunzipSync, inflateRawSync, inflateSync } from 'node:zlib';
import type { Clock } from '../base/clock.ts';
import { GatewayError } from '../base/errors.ts';
import { getOrInsert } from '../base/maps.ts';
import { fieldValues, type RawHeaders } from '../base/raw-headers.ts';
import type { Refusal } from '../handshake/exchange.ts';
import type { BodyCheck, UpstreamResponse } from '../handshake/response.ts';

/** The most bytes of a body that are looked at, as they are sent. */
const MOST_BYTES = 16 * 1024;
/** The most bytes that these may become when they are decompressed. */
const MOST_DECODED = 256 * 1024;

const EMPTY = Buffer.alloc(0);

type Decode = (bytes: Buffer) => Buffer;

/** The input may end anywhere: the decoder returns the part that it has decoded. More than the limit is an error. */
const ZLIB = { finishFlush: constants.Z_SYNC_FLUSH, maxOutputLength: MOST_DECODED };
const BROTLI = { finishFlush: constants.BROTLI_OPERATION_FLUSH, maxOutputLength: MOST_DECODED };

const identity: Decode = (bytes) => bytes;
const gunzip: Decode = (bytes) => gunzipSync(bytes, ZLIB);
/** Some servers leave out the zlib header (RFC 9110 §8.4.1.2), whose first byte names the method 8 (RFC 1950 §2.2). */
const inflate: Decode = (bytes) =>
  ((bytes[0] ?? 0) & 0x0f) === 8 ? inflateSync(bytes, ZLIB) : inflateRawSync(bytes, ZLIB);

/** By content coding (RFC 9110 §8.4.1). */
const DECODERS: ReadonlyMap<string, Decode> = new Map([
  ['', identity],
  ['identity', identity],
  ['gzip', gunzip],
  ['x-gzip', gunzip],
  ['deflate', inflate],
  ['br', (bytes: Buffer) => brotliDecompressSync(bytes, BROTLI)],
]);

/** A longer time of an upstream is not believed, in milliseconds. */
const LONGEST_MS = 3_600_000;

/** The forms of HTTP-date (RFC 9110 §5.6.7): IMF-fixdate and that of RFC 850, and that of asctime. */
const WITH_ZONE =
  /^(?:\w{3}, \d{2} \w{3} \d{4}|(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day, \d{2}-\w{3}-\d{2}) \d{2}:\d{2}:\d{2} GMT$/;
const ASCTIME = /^\w{3} \w{3} [ \d]\d \d{2}:\d{2}:\d{2} \d{4}$/;

/** A named class of responses. */
export interface OutcomeOptions {
  readonly name: string;
  readonly status: readonly number[];
  /** Left out: any body. */
  readonly bodyContains?: string;
  /** How long such a response pauses requests, in milliseconds; left out: it does not. */
  readonly pause?: number;
  /** The scope of the pause; left out: the deployment. */
  readonly scope?: 'deployment' | 'credential';
  /** `next`: the upstream does not accept the local address; left out: it says nothing of it. */
  readonly egress?: 'next';
}

export interface OutcomesOptions {
  readonly deployment: string;
  readonly origins: readonly string[];
  /** The first that matches a response is its outcome. */
  readonly outcomes: readonly OutcomeOptions[];
}

export interface OutcomesDeps {
  readonly clock: Clock;
  /** Called when a pause begins, and with the first request after its end. */
  readonly onPause: (news: PauseNews) => void;
}

interface Rule {
  readonly options: OutcomeOptions;
  /** Undefined: any body. */
  readonly text: Buffer | undefined;
}

/** The outcomes of one deployment, and the pauses that they caused in this process. */
export class Outcomes {
  readonly #options: OutcomesOptions;
  readonly #rules = new Map<number, Rule[]>();
  readonly #pauses: Pauses;

  /**
   * Returns the outcomes of a deployment; undefined: it has none. `before`: those of its upstream so far, which stay with
   * their pauses if they are the same, so that a reload does not end a pause.
   */
  static of(
    options: OutcomesOptions,
    deps: OutcomesDeps,
    before: Outcomes | undefined,
  ): Outcomes | undefined {
    const { deployment, origins, outcomes } = options;
    if (outcomes.length === 0) return undefined;
    const own = { deployment, origins, outcomes };
    return before !== undefined && isDeepStrictEqual(before.#options, own) ? before : new Outcomes(own, deps);
  }

  private constructor(options: OutcomesOptions, { clock, onPause }: OutcomesDeps) {
    this.#options = options;
    this.#pauses = new Pauses(options.deployment, clock, onPause);
    for (const each of options.outcomes) {
      const { bodyContains } = each;
      const rule = {
        options: each,
        text: bodyContains === undefined ? undefined : Buffer.from(bodyContains),
      };
      for (const status of new Set(each.status)) {
        getOrInsert(this.#rules, status, (): Rule[] => []).push(rule);
      }
    }
  }

  get names(): string[] {
    return this.#options.outcomes.map(({ name }) => name);
  }

  /** The pauses that have not ended. */
  get pauses(): Pause[] {
    return this.#pauses.current;
  }

  /**
   * Admits a request that is to be sent with this credential; returns its refusal by a pause that begins while it waits.
   * @throws GatewayError `upstream-paused`
   */
  admit(credential: string): Refusal {
    const refusal = (): ReturnType<Refusal> => this.#pauses.refusalOf(credential);
    const error = refusal();
    if (error !== undefined) throw error;
    return refusal;
  }

  /** Finds the outcome of a response, now or while its body comes; then returns the search for it. */
  classify(response: UpstreamResponse, credential: string): PendingMatch | undefined {
    const rules = this.#rules.get(response.status);
    const first = rules?.[0];
    if (rules === undefined || first === undefined) return undefined;
    const settle = ({ options: { name, pause, scope } }: Rule): void => {
      response.outcome = name;
      if (pause === undefined) return;
      const ms = retryAfterMs(response.headers, Date.now()) ?? pause;
      this.#pauses.begin({ credential: scope === 'credential' ? credential : undefined, outcome: name }, ms);
    };
    if (first.text === undefined) {
      settle(first);
      return undefined;
    }
    const match = new PendingMatch(rules, first.text, response.headers, settle);
    response.inspect(match);
    return match;
  }

  /**
   * Finds the outcome of a response, and reads as much of its body as that takes where the outcome may be one that
   * refuses the local address. Resolves to whether it is.
   * @throws GatewayError when the response breaks off before
   */
  async refusesEgress(response: UpstreamResponse, credential: string): Promise<boolean> {
    const match = this.classify(response, credential);
    const rules = this.#rules.get(response.status)?.filter(({ options }) => options.egress === 'next') ?? [];
    if (rules.length === 0) return false;
    while (match?.isOpen === true && !response.isWhole) {
      // Pieces that are not read hold the upstream back.
      response.resume();
      await response.more();
    }
    return rules.some(({ options }) => options.name === response.outcome);
  }
}

/** Looks for the outcome of a response in the start of its body. Size and work are bounded. */
class PendingMatch implements BodyCheck {
  /** True while more of the body is needed. Only the match changes it. */
  isOpen = true;
  readonly #rules: readonly Rule[];
  readonly #first: Buffer;
  readonly #onMatch: (rule: Rule) => void;
  /** Undefined: the coding is unknown, so nothing is found. */
  readonly #decode: Decode | undefined;
  #bytes = EMPTY;
  #length = 0;
  #searched = 0;

  /** `rules`: those for the status, of which the first has the text `first`. `headers`: those of the response. */
  constructor(rules: readonly Rule[], first: Buffer, headers: RawHeaders, onMatch: (rule: Rule) => void) {
    this.#rules = rules;
    this.#first = first;
    this.#onMatch = onMatch;
    this.#decode = DECODERS.get(fieldValues(headers, 'content-encoding').join(',').trim().toLowerCase());
  }

  update(piece: Buffer): void {
    if (!this.isOpen) return;
    if (this.#decode !== undefined) {
      if (this.#length === 0) this.#bytes = Buffer.allocUnsafe(MOST_BYTES);
      this.#length += piece.copy(this.#bytes, this.#length);
    }
    const isComplete = this.#decode === undefined || this.#length === MOST_BYTES;
    // The first outcome in the list wins: the others have to wait until its text cannot come any more.
    if (isComplete || this.#hasFirst()) this.finish();
  }

  /** No more of the body can change the outcome. */
  finish(): void {
    if (!this.isOpen) return;
    this.isOpen = false;
    const body = this.#decoded();
    this.#bytes = EMPTY;
    const found = this.#rules.find(({ text }) => text === undefined || body.includes(text));
    if (found !== undefined) this.#onMatch(found);
  }

  /**
   * True if the text of the first outcome has come with the last piece. What is compressed is not searched before it is
   * complete.
   */
  #hasFirst(): boolean {
    if (this.#decode !== identity) return false;
    const from = Math.max(0, this.#searched - this.#first.length + 1);
    this.#searched = this.#length;
    return this.#arrived.indexOf(this.#first, from) !== -1;
  }

  /** The collected bytes, decompressed; empty: they cannot be decompressed, or are too many then. */
  #decoded(): Buffer {
    try {
      return this.#decode?.(this.#arrived) ?? EMPTY;
    } catch {
      return EMPTY;
    }
  }

  get #arrived(): Buffer {
    return this.#bytes.subarray(0, this.#length);
  }
}

/**
 * Returns the time in milliseconds that the Retry-After of a response asks for (RFC 9110 §10.2.3), from 0 to one hour;
 * undefined: it has none, or none that is valid. A date counts from the Date of the response, so that a difference of
 * the clocks does not matter. `now`: Unix milliseconds, for a response without Date.
 */
export function retryAfterMs(headers: RawHeaders, now: number): number | undefined {
  const [value, ...others] = fieldValues(headers, 'retry-after');
  if (value === undefined || others.length > 0) return undefined;
  if (/^\d+$/.test(value)) return Math.min(Number(value) * 1000, LONGEST_MS);
  const at = dateOf(value);
  if (at === undefined) return undefined;
  const sentAt = dateOf(fieldValues(headers, 'date')[0] ?? '') ?? now;
  return Math.min(Math.max(0, at - sentAt), LONGEST_MS);
}

/** Parses an HTTP-date to Unix milliseconds; undefined: it is none. */
function dateOf(text: string): number | undefined {
  if (!WITH_ZONE.test(text) && !ASCTIME.test(text)) return undefined;
  // asctime has no zone, and JavaScript would take that of this host.
  const at = Date.parse(text.endsWith(' GMT') ? text : `${text} GMT`);
  return Number.isNaN(at) ? undefined : at;
}

/** The scope of a pause: the deployment, or requests with one credential. */
export interface PauseScope {
  /** Undefined: the whole deployment. */
  readonly credential: string | undefined;
  /** The outcome that paused it. */
  readonly outcome: string;
}

/** A pause that has not ended. */
export interface Pause extends PauseScope {
  readonly remainingMs: number;
}

/** A pause began or ended. */
export interface PauseNews extends PauseScope {
  readonly deployment: string;
  /** The milliseconds that it is to take; 0: it ended. */
  readonly ms: number;
}

interface Entry extends PauseScope {
  /** On the clock of the process, in milliseconds. */
  readonly until: number;
}

/** The key of the deployment as a whole; no credential has this name. */
const DEPLOYMENT = '';

/** Times in which one deployment gets no requests, since a response said so. */
export class Pauses {
  readonly #deployment: string;
  readonly #clock: Clock;
  readonly #onPause: (news: PauseNews) => void;
  /** By credential. An entry that has ended stays until the next request, which reports its end. */
  readonly #entries = new Map<string, Entry>();

  constructor(deployment: string, clock: Clock, onPause: (news: PauseNews) => void) {
    this.#deployment = deployment;
    this.#clock = clock;
    this.#onPause = onPause;
  }

  /** Begins a pause of `ms` milliseconds, or extends one that would end earlier. */
  begin(scope: PauseScope, ms: number): void {
    if (ms <= 0) return;
    const now = this.#clock.now();
    const key = scope.credential ?? DEPLOYMENT;
    this.#forgetEnded(now);
    const known = this.#entries.get(key);
    if (known !== undefined && known.until >= now + ms) return;
    this.#entries.set(key, { ...scope, until: now + ms });
    if (known === undefined) this.#tell(scope, ms);
  }

  /**
   * Returns the error for a request with this credential, `upstream-paused` with the rest of the pause as its
   * Retry-After; undefined: nothing pauses it.
   */
  refusalOf(credential: string): GatewayError | undefined {
    if (this.#entries.size === 0) return undefined;
    const now = this.#clock.now();
    this.#forgetEnded(now);
    const found = [this.#entries.get(DEPLOYMENT), this.#entries.get(credential)].filter(
      (each) => each !== undefined,
    );
    if (found.length === 0) return undefined;
    const longest = found.reduce((a, b) => (a.until >= b.until ? a : b));
    return paused(longest.outcome, longest.until - now);
  }

  /** The pauses that have not ended. */
  get current(): Pause[] {
    const now = this.#clock.now();
    return Array.from(this.#entries.values(), ({ credential, outcome, until }) => ({
      credential,
      outcome,
      remainingMs: until - now,
    })).filter(({ remainingMs }) => remainingMs > 0);
  }

  #forgetEnded(now: number): void {
    for (const [key, entry] of this.#entries) {
      if (entry.until > now) continue;
      this.#entries.delete(key);
      this.#tell(entry, 0);
    }
  }

  #tell({ credential, outcome }: PauseScope, ms: number): void {
    this.#onPause({ deployment: this.#deployment, credential, outcome, ms });
  }
}

function paused(outcome: string, ms: number): GatewayError {
  const seconds = Math.max(1, Math.ceil(ms / 1000));
  return new GatewayError(
    'upstream-paused',
    `A response of the upstream (outcome ${outcome}) paused requests to it. Send the request again after ${seconds} s.`,
    undefined,
    { retryAfter: seconds },
  );
}
