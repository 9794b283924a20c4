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
