/** A credential by name, and which of those that it had. */
export interface CredentialUsed {
  readonly name: string;
  readonly version: string;
}

/**
 * Where an upstream's answer goes, as it comes. Header and trailer lists are flat: name, value, name, value …
 * They and the reason phrase are Latin-1 text as on the wire.
 */
export interface AnswerSink {
  /** The request goes to the upstream, once more, with this credential. */
  attempt(credential: CredentialUsed): void;
  /** The upstream asked for authentication. */
  challenged(): void;
  /** An interim answer (1xx); any number of them, before the head. */
  information(status: number, headers: readonly string[]): void;
  /** The head of the answer; once. A throw ends the exchange. */
  head(status: number, reason: string, headers: readonly string[]): void;
  /** False: hold the rest back until the callback given to `onDrain` is called. */
  data(chunk: Buffer): boolean;
  onDrain(resume: () => void): void;
  end(trailers: readonly string[]): void;
}

/** Takes an answer that nobody wants. */
export const nowhere: AnswerSink = {
  attempt() {},
  challenged() {},
  information() {},
  head() {},
  data: () => true,
  onDrain() {},
  end() {},
};

/** Takes the answer to a request that only asks for a challenge, on behalf of one that waits for it. */
export function unseen(sink: AnswerSink): AnswerSink {
  return {
    ...nowhere,
    attempt: (credential) => sink.attempt(credential),
    challenged: () => sink.challenged(),
  };
}
