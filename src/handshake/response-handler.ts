import type { RawHeaders } from '../base/raw-headers.ts';

/** A credential by name, and which of those that it had. */
export interface CredentialUsed {
  readonly name: string;
  readonly version: string;
}

/** Receives the response of an upstream, as it comes. The reason phrase is Latin-1 text as on the wire. */
export interface ResponseHandler {
  /** The request goes to the upstream, once more, with this credential. `address`: host and port. */
  attempt(credential: CredentialUsed, address: string): void;
  /** The upstream asked for authentication. */
  challenged(): void;
  /** An interim response (1xx); any number of them, before the head. */
  information(status: number, headers: RawHeaders): void;
  /** The head of the response; once. `isHttp11`: false if it is HTTP/1.0. A throw ends the exchange. */
  head(status: number, reason: string, headers: RawHeaders, isHttp11: boolean): void;
  /** False: hold the rest back until the callback given to `onDrain` is called. */
  data(chunk: Buffer): boolean;
  onDrain(resume: () => void): void;
  /** The response belongs to this outcome of the configuration; at most once, after the head and before the end. */
  outcome(name: string): void;
  end(trailers: RawHeaders): void;
}

/** Reads a response and drops it. */
export const discardResponse: ResponseHandler = {
  attempt() {},
  challenged() {},
  information() {},
  head() {},
  data: () => true,
  onDrain() {},
  outcome() {},
  end() {},
};

/** Discards the response to a request that only asks for a challenge; its attempts count for the waiting request. */
export function attemptsOnly(handler: ResponseHandler): ResponseHandler {
  return {
    ...discardResponse,
    attempt: (credential, address) => handler.attempt(credential, address),
    challenged: () => handler.challenged(),
  };
}
