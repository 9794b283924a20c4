import { hash } from 'node:crypto';
import { putBounded } from '../base/bounded-map.ts';
import type { Clock } from '../base/clock.ts';
import { asGatewayError } from '../base/errors.ts';
import { fieldValues } from '../base/raw-headers.ts';
import type { ParkedChallenge } from '../challenges/store/store.ts';
import type { CredentialSet } from '../credentials/credentials.ts';
import { parseAuthenticationInfo } from '../digest/authentication-info.ts';
import { parseChallenges } from '../digest/challenge.ts';
import type { Exchange, ExchangeRequest, Lost, UpstreamRequest } from '../handshake/exchange.ts';
import type { UpstreamResponse } from '../handshake/response.ts';

/** Version of the form of a record. */
export const FLIGHT_FORMAT = 1;
/** Events that are kept: some 3 MiB, minutes of a gateway with 30 requests a second. */
const MAX_EVENTS = 16_384;
/** Credentials in the head of a record: those that were offered last. */
const MAX_CREDENTIALS = 1_000;

/** A client's request with one credential. Times are milliseconds of the process's clock. */
export interface RequestEvent {
  readonly kind: 'request';
  readonly at: number;
  /** From 1 on. */
  readonly request: number;
  readonly deployment: string;
  readonly credential: string;
  readonly method: string;
  readonly body: 'none' | 'kept' | 'streamed';
  /** 0: it is under way. */
  ended: number;
  /** Status of the response, or the code of the error. */
  result: number | string;
}

/** One message to the upstream, and what came back. */
export interface ExchangeEvent {
  readonly kind: 'exchange';
  readonly at: number;
  /** Number of the client's request; 0: one of the gateway's own. */
  readonly request: number;
  readonly deployment: string;
  readonly address: string;
  readonly method: string;
  /** Mark of the nonce that it answers; empty: it answers none. */
  nonce: string;
  nc: number;
  ended: number;
  /** Status of the response, the code of the error, or how the connection was lost. */
  result: number | string;
  /** Mark of the nonce in the challenge, or of the next one; empty: there is none. */
  offered: string;
  stale: boolean;
  /** True if the challenge has qop. */
  counted: boolean;
}

/** A change of a credential. */
export interface NoteEvent {
  readonly kind: 'offer' | 'accepted' | 'refused' | 'promoted' | 'rejected' | 'waiting';
  readonly at: number;
  readonly deployment: string;
  readonly credential: string;
  /** The versions in question; of an offer, the current one first. */
  readonly versions: readonly string[];
}

/** A nonce that was taken over from another process. */
export interface TakenEvent {
  readonly kind: 'taken';
  readonly at: number;
  readonly deployment: string;
  readonly credential: string;
  /** Its mark. */
  readonly nonce: string;
  /** The last nc that was used. */
  readonly nc: number;
}

export type FlightEvent = RequestEvent | ExchangeEvent | NoteEvent | TakenEvent;

/** A credential as it is when the record is written. */
export interface FlightCredential {
  readonly deployment: string;
  readonly credential: string;
  /** The current one first. */
  readonly versions: readonly string[];
  readonly attemptsWhenRefused: number;
}

/** The first line of a record. */
export interface FlightHead {
  readonly format: number;
  readonly reason: string;
  readonly time: string;
  /** The same moment on the clock of the events. */
  readonly at: number;
  readonly worker: number | undefined;
  /** True if earlier events were dropped. */
  readonly isCut: boolean;
  readonly credentials: readonly FlightCredential[];
}

/** The process that a record is of. `worker`: its number; undefined: it is no worker. */
interface RecorderOptions {
  readonly clock: Clock;
  readonly worker?: number | undefined;
  readonly maxEvents?: number;
}

/**
 * The last events of nonces and credentials in this process: what the core of `upstream/` was given, and when, so that
 * the laboratory can give it the same again. It has no secret, nonce, target, header or address of a client: a nonce is a
 * mark that only tells it from others.
 */
export class FlightRecorder {
  readonly #options: RecorderOptions;
  readonly #maxEvents: number;
  /** A ring. */
  readonly #events: FlightEvent[] = [];
  readonly #credentials = new Map<string, FlightCredential>();
  #written = 0;
  #requests = 0;

  constructor(options: RecorderOptions) {
    this.#options = options;
    this.#maxEvents = options.maxEvents ?? MAX_EVENTS;
  }

  /** A client's request begins. The caller passes the event to `ended`. */
  request(deployment: string, credential: string, { method, body, facts }: UpstreamRequest): RequestEvent {
    this.#requests += 1;
    if (facts !== undefined) facts.flight = this.#requests;
    return this.#keep({
      kind: 'request',
      at: this.#options.clock.now(),
      request: this.#requests,
      deployment,
      credential,
      method,
      body: body.kind,
      ended: 0,
      result: '',
    });
  }

  /** The request has a response, or failed. */
  ended(event: RequestEvent, result: UpstreamResponse | unknown): void {
    event.ended = this.#options.clock.now();
    event.result = isResponse(result) ? result.status : asGatewayError(result).code;
  }

  note(kind: NoteEvent['kind'], deployment: string, credential: string, versions: readonly string[]): void {
    this.#keep({ kind, at: this.#options.clock.now(), deployment, credential, versions });
  }

  /** The sources of a credential hold these versions from now on. */
  offer(deployment: string, set: CredentialSet, attemptsWhenRefused: number): void {
    const { name: credential, current, next, former = [] } = set;
    const others = next === undefined ? former : [next, ...former];
    const versions = [current, ...others].map(({ version }) => version);
    const known = { deployment, credential, versions, attemptsWhenRefused };
    putBounded(this.#credentials, `${deployment} ${credential}`, known, MAX_CREDENTIALS);
    this.note('offer', deployment, credential, versions);
  }

  /** A nonce was taken over from another process. */
  taken(deployment: string, credential: string, { challenge, count }: ParkedChallenge): void {
    const nonce = markOf(challenge.nonce, 0, challenge.nonce.length);
    this.#keep({ kind: 'taken', at: this.#options.clock.now(), deployment, credential, nonce, nc: count });
  }

  /** Returns an exchange that records what goes over this one. */
  exchange(deployment: string, address: string, inner: Exchange): Exchange {
    return async (request) => {
      const event = this.#sent(deployment, address, request);
      try {
        const result = await inner(request);
        this.#received(event, result);
        return result;
      } catch (error) {
        event.ended = this.#options.clock.now();
        event.result = asGatewayError(error).code;
        throw error;
      }
    };
  }

  /** The record as lines of JSON: a head, then the events in the order in which they began. */
  lines(reason: string): string[] {
    const head: FlightHead = {
      format: FLIGHT_FORMAT,
      reason,
      time: new Date().toISOString(),
      at: this.#options.clock.now(),
      worker: this.#options.worker,
      isCut: this.#written > this.#maxEvents,
      credentials: [...this.#credentials.values()],
    };
    const oldest = this.#written % this.#maxEvents;
    const events = head.isCut
      ? [...this.#events.slice(oldest), ...this.#events.slice(0, oldest)]
      : this.#events;
    const marks = new Map<string, string>();
    return [head, ...events.map((event) => withMarks(event, marks))].map((line) => JSON.stringify(line));
  }

  #keep<T extends FlightEvent>(event: T): T {
    this.#events[this.#written % this.#maxEvents] = event;
    this.#written += 1;
    return event;
  }

  #sent(deployment: string, address: string, { method, headers, facts }: ExchangeRequest): ExchangeEvent {
    const event: ExchangeEvent = {
      kind: 'exchange',
      at: this.#options.clock.now(),
      request: facts?.flight ?? 0,
      deployment,
      address,
      method,
      nonce: '',
      nc: 0,
      ended: 0,
      result: '',
      offered: '',
      stale: false,
      counted: false,
    };
    // The credentials stand at the end, with at most a cookie behind them.
    for (let at = headers.length - 2; at >= Math.max(0, headers.length - 4); at -= 2) {
      if (headers[at] === 'authorization') readAnswer(event, headers[at + 1] ?? '');
    }
    return this.#keep(event);
  }

  #received(event: ExchangeEvent, result: UpstreamResponse | Lost): void {
    event.ended = this.#options.clock.now();
    if (result.kind === 'lost') {
      const { broke, sent, reused } = result;
      event.result = ['lost', broke && 'broke', sent && 'sent', reused && 'reused'].filter(Boolean).join(' ');
      return;
    }
    event.result = result.status;
    if (result.status === 401) {
      const [challenge] = parseChallenges(fieldValues(result.headers, 'www-authenticate'));
      if (challenge === undefined) return;
      event.offered = markOf(challenge.nonce, 0, challenge.nonce.length);
      event.stale = challenge.stale;
      event.counted = challenge.qop.length > 0;
      return;
    }
    const info = fieldValues(result.headers, 'authentication-info');
    if (info.length === 0) return;
    const { nextnonce = '' } = parseAuthenticationInfo(info);
    if (nextnonce !== '') event.offered = markOf(nextnonce, 0, nextnonce.length);
  }
}

function isResponse(result: unknown): result is UpstreamResponse {
  return typeof result === 'object' && result !== null && 'kind' in result && result.kind === 'response';
}

const NONCE = ' nonce="';
const COUNT = ', nc=';

/** Takes nonce and count from an answer that the gateway has written itself. */
function readAnswer(event: ExchangeEvent, answer: string): void {
  const from = answer.indexOf(NONCE) + NONCE.length;
  event.nonce = markOf(answer, from, answer.indexOf('"', from));
  // From the end: realm and opaque can have the same text.
  const count = answer.lastIndexOf(COUNT) + COUNT.length;
  if (count >= COUNT.length) event.nc = Number.parseInt(answer.slice(count, count + 8), 16);
}

/** Tells a nonce from others (53 bits, after cyrb53): a copy of the text would keep the message that it stands in. */
function markOf(text: string, from: number, to: number): string {
  let high = 0xdeadbeef;
  let low = 0x41c6ce57;
  for (let at = from; at < to; at += 1) {
    const code = text.charCodeAt(at);
    high = Math.imul(high ^ code, 2_654_435_761);
    low = Math.imul(low ^ code, 1_597_334_677);
  }
  high = Math.imul(high ^ (high >>> 16), 2_246_822_507) ^ Math.imul(low ^ (low >>> 13), 3_266_489_909);
  low = Math.imul(low ^ (low >>> 16), 2_246_822_507) ^ Math.imul(high ^ (high >>> 13), 3_266_489_909);
  return `${(low >>> 0).toString(16)}${(high >>> 0).toString(16)}`;
}

/** The event as it is written: from the mark of a nonce, nobody finds the nonce. `hidden`: marks so far. */
function withMarks(event: FlightEvent, hidden: Map<string, string>): FlightEvent {
  const hide = (mark: string): string => {
    const known = mark === '' ? '' : hidden.get(mark);
    if (known !== undefined) return known;
    const name = hash('sha256', mark, 'base64url').slice(0, 12);
    hidden.set(mark, name);
    return name;
  };
  if (event.kind === 'taken') return { ...event, nonce: hide(event.nonce) };
  if (event.kind !== 'exchange') return event;
  return { ...event, nonce: hide(event.nonce), offered: hide(event.offered) };
}
