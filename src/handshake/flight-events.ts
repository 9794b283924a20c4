import { hash } from 'node:crypto';

/** Version of the form of a record. */
export const FLIGHT_FORMAT = 2;

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
  readonly ended: number;
  /** Status of the response, or the code of the error. */
  readonly result: number | string;
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
  readonly nonce: string;
  readonly nc: number;
  readonly ended: number;
  /** Status of the response, the code of the error, or how the connection was lost. */
  readonly result: number | string;
  /** Mark of the nonce in the challenge, or of the next one; empty: there is none. */
  readonly offered: string;
  readonly stale: boolean;
  /** True if the challenge has qop. */
  readonly counted: boolean;
}

/** The events of the versions of a credential at one upstream. */
export const CREDENTIAL_KINDS = [
  'offer',
  'verifies',
  'reply',
  'verdict',
  'settled',
  'accepted',
  'refused',
  'reset',
  'promoted',
  'rejected',
  'waiting',
  'admitted',
  'failed',
] as const;

/** A change of a credential, or a reason for one. */
export interface CredentialEvent {
  readonly kind: (typeof CREDENTIAL_KINDS)[number];
  readonly at: number;
  readonly deployment: string;
  readonly credential: string;
  /** Number of the credential in its process: one name stands for another one at each upstream. */
  readonly owner: number;
  /** The versions in question; of an offer, the current one first; after a promotion, all of them, that in use first. */
  readonly versions: readonly string[];
  /** The reason, such as `trial`; empty: there is only one. */
  readonly by: string;
  /** Of a reply or a verdict; empty: the event has none. */
  readonly result: string;
  /** Attempts of a reply, or with which a verification begins, or that a minute may have; 0: the event has none. */
  readonly count: number;
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

export type FlightEvent = RequestEvent | ExchangeEvent | CredentialEvent | TakenEvent;

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
  /** True if earlier events of requests and nonces were dropped. */
  readonly isCut: boolean;
  /** True if earlier events of credentials were dropped. */
  readonly areChangesCut: boolean;
  readonly credentials: readonly FlightCredential[];
}

/** Neither a nonce nor the end of an event. */
export const NONE = 0;

/**
 * One place of the ring, made once and overwritten: an object for each event would outlive its request, so that the
 * collector copied every one.
 */
export class Slot {
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
export class Ring {
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

/** The event as it is written: the mark of a nonce does not reveal the nonce. `hidden`: marks so far. */
export function eventOf(slot: Slot, hidden: Map<number, string>): FlightEvent {
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
