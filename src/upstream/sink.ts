/**
 * Where an upstream's answer goes, as it comes. Header and trailer lists are flat: name, value,
 * name, value …, Latin-1 text as on the wire.
 */
export interface AnswerSink {
  /** An interim answer (1xx); any number of them, before the head. */
  information(status: number, headers: readonly string[]): void;
  /** The head of the answer; once. A throw ends the exchange. */
  head(status: number, reason: string, headers: readonly string[]): void;
  /** False: hold the rest back until the callback given to `onDrain` is called. */
  data(chunk: Buffer): boolean;
  onDrain(resume: () => void): void;
  end(trailers: readonly string[]): void;
}

/** Takes an answer that nobody wants: that to a request which only asks for a challenge. */
export const nowhere: AnswerSink = {
  information() {},
  head() {},
  data: () => true,
  onDrain() {},
  end() {},
};
