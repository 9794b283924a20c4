import { hash } from 'node:crypto';
import type { Clock } from '../base/clock.ts';
import { asGatewayError, type ErrorCode } from '../base/errors.ts';
import { putBounded } from '../base/maps.ts';
import { fieldValue, fieldValues } from '../base/raw-headers.ts';
import type { ParkedChallenge } from '../challenges/store/store.ts';
import type { CredentialSet } from '../credentials/credentials.ts';
import { parseAuthenticationInfo } from '../digest/authentication-info.ts';
import { parseChallenges } from '../digest/challenge.ts';
import type { Message, UpstreamRequest } from './exchange.ts';
import {
  type CredentialEvent,
  FLIGHT_FORMAT,
  type FlightCredential,
  type FlightEvent,
  type FlightHead,
  type RequestEvent,
} from './flight-events.ts';
import type { Lost, UpstreamResponse } from './response.ts';

/** Events of requests and nonces that are kept: some 3 MiB, minutes of a gateway with 30 requests a second. */
const MAX_EVENTS = 16_384;
/** Events of credentials that are kept, apart from the others, which would drop them within minutes. */
const MAX_CHANGES = 4_096;
/** Credentials in the head of a record: those that were offered last. */
const MAX_CREDENTIALS = 1_000;

/** Neither a nonce nor the end of an event. */
const NONE = 0;

/**
 * One place of the ring, made once and overwritten: an object for each event would outlive its request, so that the
 * collector copied every one.
 */
class Slot {
  /** Number of the event among those of its ring, from 1 on. */
  place = 0;
  /** Among all events. */
  number = 0;
  kind: FlightEvent['kind'] = 'request';
  at = 0;
  ended = NONE;
  request = 0;
  deployment = '';
  credential = '';
  address = '';
  method = '';
  body: RequestEvent['body'] = 'none';
  /** Marks of nonces. */
  nonce = NONE;
  offered = NONE;
  nc = 0;
  result: number | string = '';
  stale = false;
  counted = false;
  /** Of a credential. */
  owner = 0;
  versions: readonly string[] = [];
  by = '';
  count = 0;
}

/** The last events, of which the oldest are overwritten. */
class Ring {
  readonly #size: number;
  readonly #slots: Slot[] = [];
  #written = 0;

  constructor(size: number) {
    this.#size = size;
  }

  /** True if earlier events were dropped. */
  get isCut(): boolean {
    return this.#written > this.#size;
  }

  /** The events, the oldest first. */
  get slots(): readonly Slot[] {
    const oldest = this.#written % this.#size;
    return this.isCut ? [...this.#slots.slice(oldest), ...this.#slots.slice(0, oldest)] : this.#slots;
  }

  get last(): Slot | undefined {
    return this.at(this.#written);
  }

  /** The next place, with the fields of the event that was there before. */
  next(): Slot {
    const at = this.#written % this.#size;
    let slot = this.#slots[at];
    if (slot === undefined) {
      slot = new Slot();
      this.#slots.push(slot);
    }
    this.#written += 1;
    slot.place = this.#written;
    return slot;
  }

  /** The event with this place; undefined: a later one has taken it. */
  at(place: number): Slot | undefined {
    const slot = this.#slots[(place - 1) % this.#size];
    return slot?.place === place ? slot : undefined;
  }
}

/** The process that a record is of. `worker`: its number; undefined: it is not a worker. */
interface RecorderOptions {
  readonly clock: Clock;
  readonly worker?: number | undefined;
  readonly maxEvents?: number;
  readonly maxChanges?: number;
}

/** One credential at one upstream, as events name it. */
export interface RecordedCredential {
  readonly deployment: string;
  readonly credential: string;
  readonly owner: number;
}

/**
 * The last events of nonces and credentials in this process: what the core of `upstream/` was given, and when, so that
 * the laboratory can give it the same again. It has no secret, nonce, target, header or address of a client: a nonce is a
 * mark that only distinguishes it from others.
 */
export class FlightRecorder {
  readonly #options: RecorderOptions;
  readonly #events: Ring;
  readonly #changes: Ring;
  readonly #credentials = new Map<string, FlightCredential>();
  #written = 0;
  /** The nonce that was answered last: most requests answer the same. */
  #answered = '';
  #answeredMark = NONE;
  #requests = 0;
  #owners = 0;

  constructor(options: RecorderOptions) {
    this.#options = options;
    this.#events = new Ring(options.maxEvents ?? MAX_EVENTS);
    this.#changes = new Ring(options.maxChanges ?? MAX_CHANGES);
  }

  /** A client's request begins. Returns the number of its event, which the caller passes to `ended`. */
  request(
    { deployment, credential }: RecordedCredential,
    { method, body, facts }: Pick<UpstreamRequest, 'method' | 'body' | 'facts'>,
  ): number {
    this.#requests += 1;
    if (facts !== undefined) facts.flightRequest = this.#requests;
    const slot = this.#next(this.#events, 'request', deployment, credential);
    slot.request = this.#requests;
    slot.method = method;
    slot.body = body.kind;
    return slot.place;
  }

  /** The request has a response with this status, or failed with this code. */
  ended(event: number, result: number | ErrorCode): void {
    const slot = this.#events.at(event);
    if (slot === undefined) return;
    slot.ended = this.#options.clock.now();
    slot.result = result;
  }

  /** Names a credential at one upstream, of which changes are noted. */
  credential(deployment: string, credential: string): RecordedCredential {
    this.#owners += 1;
    return { deployment, credential, owner: this.#owners };
  }

  /** A change of a credential. `at`: when it was; left out: now. */
  note(
    { deployment, credential, owner }: RecordedCredential,
    kind: CredentialEvent['kind'],
    versions: readonly string[],
    { by = '', result = '', count = 0, at }: Partial<CredentialEvent> = {},
  ): void {
    const { last } = this.#changes;
    // Thousands of requests can fail at once, which would push all else out.
    if (kind === 'failed' && last?.kind === kind && last.owner === owner) return;
    const slot = this.#next(this.#changes, kind, deployment, credential);
    if (at !== undefined) slot.at = at;
    slot.owner = owner;
    slot.versions = versions;
    slot.by = by;
    slot.result = result;
    slot.count = count;
  }

  /** The sources of a credential hold these versions from now on. */
  offer(of: RecordedCredential, set: CredentialSet, attemptsWhenRefused: number): void {
    const { current, next, former = [] } = set;
    const { deployment, credential } = of;
    const others = next === undefined ? former : [next, ...former];
    const versions = [current, ...others].map(({ version }) => version);
    const known = { deployment, credential, versions, attemptsWhenRefused };
    putBounded(this.#credentials, `${deployment} ${credential}`, known, MAX_CREDENTIALS);
    this.note(of, 'offer', versions);
  }

  /** A nonce was taken over from another process. */
  taken({ deployment, credential }: RecordedCredential, { challenge, count }: ParkedChallenge): void {
    const slot = this.#next(this.#events, 'taken', deployment, credential);
    slot.nonce = markOf(challenge.nonce);
    slot.nc = count;
  }

  /** A message leaves for the upstream. Returns the number of its event, which the caller passes on. */
  sent(
    { deployment, address }: { readonly deployment: string; readonly address: string },
    { request, method, answers }: Pick<Message, 'request' | 'method' | 'answers'>,
  ): number {
    const slot = this.#next(this.#events, 'exchange', deployment, '');
    slot.request = request.facts?.flightRequest ?? 0;
    slot.address = address;
    slot.method = method;
    slot.nonce = answers === undefined ? NONE : this.#markOf(answers.nonce.challenge.nonce);
    slot.nc = answers?.nonce.answer.qop === undefined ? 0 : answers.nc;
    slot.offered = NONE;
    slot.stale = false;
    slot.counted = false;
    return slot.place;
  }

  /** Records the result of a message: a response at its head, or a lost connection. */
  received(event: number, result: UpstreamResponse | Lost): void {
    const slot = this.#events.at(event);
    if (slot === undefined) return;
    slot.ended = this.#options.clock.now();
    if (result.kind === 'lost') {
      const { broke, sent, reused } = result;
      slot.result = ['lost', broke && 'broke', sent && 'sent', reused && 'reused'].filter(Boolean).join(' ');
      return;
    }
    slot.result = result.status;
    if (result.status === 401) {
      const [challenge] = parseChallenges(fieldValues(result.headers, 'www-authenticate'));
      if (challenge === undefined) return;
      slot.offered = markOf(challenge.nonce);
      slot.stale = challenge.stale;
      slot.counted = challenge.qop.length > 0;
      return;
    }
    if (fieldValue(result.headers, 'authentication-info') === undefined) return;
    const { nextnonce = '' } = parseAuthenticationInfo(fieldValues(result.headers, 'authentication-info'));
    if (nextnonce !== '') slot.offered = markOf(nextnonce);
  }

  /** A message failed. What was received before stays. */
  failed(event: number, error: unknown): void {
    const slot = this.#events.at(event);
    if (slot === undefined || slot.result !== '') return;
    slot.ended = this.#options.clock.now();
    slot.result = asGatewayError(error).code;
  }

  /** The record as lines of JSON: a head, then the events in the order in which they began. */
  lines(reason: string): string[] {
    const head: FlightHead = {
      format: FLIGHT_FORMAT,
      reason,
      time: new Date().toISOString(),
      at: this.#options.clock.now(),
      worker: this.#options.worker,
      isCut: this.#events.isCut,
      areChangesCut: this.#changes.isCut,
      credentials: [...this.#credentials.values()],
    };
    const slots = [...this.#events.slots, ...this.#changes.slots].sort((a, b) => a.number - b.number);
    const marks = new Map<number, string>();
    return [head, ...slots.map((slot) => eventOf(slot, marks))].map((line) => JSON.stringify(line));
  }

  /** The next place, with what every event has; the rest is of the event that was there before. */
  #next(ring: Ring, kind: FlightEvent['kind'], deployment: string, credential: string): Slot {
    const slot = ring.next();
    this.#written += 1;
    slot.number = this.#written;
    slot.kind = kind;
    slot.at = this.#options.clock.now();
    slot.ended = NONE;
    slot.result = '';
    slot.deployment = deployment;
    slot.credential = credential;
    return slot;
  }

  #markOf(nonce: string): number {
    if (nonce !== this.#answered) {
      this.#answered = nonce;
      this.#answeredMark = markOf(nonce);
    }
    return this.#answeredMark;
  }
}

/** The event as it is written: the mark of a nonce does not reveal the nonce. `hidden`: marks so far. */
function eventOf(slot: Slot, hidden: Map<number, string>): FlightEvent {
  const hide = (mark: number): string => {
    const known = mark === NONE ? '' : hidden.get(mark);
    if (known !== undefined) return known;
    const name = hash('sha256', String(mark), 'base64url').slice(0, 12);
    hidden.set(mark, name);
    return name;
  };
  const { kind, at, request, deployment, credential, address, method, body, nc, ended, result } = slot;
  switch (kind) {
    case 'request':
      return { kind, at, request, deployment, credential, method, body, ended, result };
    case 'exchange': {
      const { stale, counted } = slot;
      const [nonce, offered] = [hide(slot.nonce), hide(slot.offered)];
      return {
        kind,
        at,
        request,
        deployment,
        address,
        method,
        nonce,
        nc,
        ended,
        result,
        offered,
        stale,
        counted,
      };
    }
    case 'taken':
      return { kind, at, deployment, credential, nonce: hide(slot.nonce), nc };
    default: {
      const { owner, versions, by, count } = slot;
      return { kind, at, deployment, credential, owner, versions, by, result: String(result), count };
    }
  }
}

/** Tells a nonce from others (53 bits, after cyrb53): a copy of the text would keep the message that it stands in. */
function markOf(nonce: string): number {
  let high = 0xdeadbeef;
  let low = 0x41c6ce57;
  for (let at = 0; at < nonce.length; at += 1) {
    const code = nonce.charCodeAt(at);
    high = Math.imul(high ^ code, 2_654_435_761);
    low = Math.imul(low ^ code, 1_597_334_677);
  }
  high = Math.imul(high ^ (high >>> 16), 2_246_822_507) ^ Math.imul(low ^ (low >>> 13), 3_266_489_909);
  low = Math.imul(low ^ (low >>> 16), 2_246_822_507) ^ Math.imul(high ^ (high >>> 13), 3_266_489_909);
  return 2 ** 32 * (low & 0x1fffff) + (high >>> 0);
}
