import { createHash } from 'node:crypto';
import type { IncomingMessage } from 'node:http';
import type { HashName } from './hashes.ts';

export interface BodySummary {
  readonly length: number;
  readonly sha256: string;
  /** Hex hash, by the algorithm of the first caller. */
  readonly digest: string;
}

/** A request's body, which is hashed as it arrives and not stored. */
export class RequestBody {
  readonly #request: IncomingMessage;
  readonly #permit: () => void;
  #summary: Promise<BodySummary> | undefined;

  /** @param permit called before the first byte is read, to send 100 Continue if the client waits for it. */
  constructor(request: IncomingMessage, permit: () => void) {
    this.#request = request;
    this.#permit = permit;
  }

  /** Reads to the end once; later callers get the same summary. Rejects if the client leaves. */
  summary(hash: HashName): Promise<BodySummary> {
    this.#summary ??= this.#read(hash);
    return this.#summary;
  }

  async #read(hash: HashName): Promise<BodySummary> {
    this.#permit();
    const sha256 = createHash('sha256');
    const digest = createHash(hash);
    let length = 0;
    for await (const chunk of this.#request as AsyncIterable<Buffer>) {
      sha256.update(chunk);
      digest.update(chunk);
      length += chunk.length;
    }
    return { length, sha256: sha256.digest('hex'), digest: digest.digest('hex') };
  }
}
