import type { Agent } from 'undici';
import { checkpointLine, parseSignatures, signatureLine } from '../checkpoint.ts';
import { cosignatureOf, type WitnessKey, witnessKey } from '../cosignature.ts';
import { digestText } from '../merkle.ts';
import { appendHead } from '../segments/head-files.ts';
import { cosignedName } from '../segments/segment.ts';
import { syncSegment } from '../segments/segment-file.ts';
import type { CommonOptions, Delivery } from './follower.ts';
import { type HeadSubmission, OtherSizeError } from './head-source.ts';
import {
  agentFor,
  askedWait,
  post,
  type ReceiverResponse,
  type ReceiverTls,
  Rejected,
  RetryLater,
} from './receiver.ts';

export interface WitnessOptions extends CommonOptions {
  readonly kind: 'witness';
  /** The URL before `/add-checkpoint`. */
  readonly url: string;
  /** Its public key, as `witnessKey` reads it. */
  readonly publicKey: string;
  /** The least time between two heads, in milliseconds. */
  readonly every: number;
  readonly tls: ReceiverTls | undefined;
}

/** Sends signed heads to a witness (C2SP's tlog-witness), and stores the cosignatures beside the log. */
export class WitnessDelivery implements Delivery<HeadSubmission> {
  readonly #options: WitnessOptions;
  readonly #key: WitnessKey;
  readonly #agent: Agent;

  constructor(options: WitnessOptions) {
    this.#options = options;
    this.#key = witnessKey(options.publicKey);
    this.#agent = agentFor(options.tls);
  }

  async deliver(submission: HeadSubmission, signal: AbortSignal): Promise<number> {
    const { folder, segment, note, size, old, proof } = submission;
    // A witness remembers what a machine that loses its power must not forget.
    await syncSegment(folder, segment);
    const response = await post(`${this.#options.url}/add-checkpoint`, {
      headers: { 'content-type': 'text/plain; charset=utf-8' },
      body: [`old ${old}`, ...proof.map(digestText), '', note].join('\n'),
      signal,
      dispatcher: this.#agent,
    });
    if (response.statusCode !== 200) throw this.#refused(response, submission);
    const cosignature = this.#cosignatureIn(note, response.body.toString());
    if (cosignature === undefined) {
      throw this.#failed(`no cosignature of audit.witness.publicKey is in its response for ${size} records`);
    }
    await appendHead(folder, cosignedName(segment), checkpointLine(`${note}${cosignature}`));
    return 0;
  }

  close(): Promise<void> {
    return this.#agent.destroy();
  }

  /** The line of the first cosignature that the key made. */
  #cosignatureIn(note: string, lines: string): string | undefined {
    const signatures = parseSignatures(lines) ?? [];
    const text = note.slice(0, note.indexOf('\n\n') + 1);
    const found = cosignatureOf({ text, signatures }, [this.#key]);
    return found && signatureLine(found);
  }

  #refused({ statusCode, headers, body }: ReceiverResponse, submission: HeadSubmission): Error {
    const { size, old } = submission;
    const wait = askedWait({ headers });
    if (statusCode === 409) return this.#conflict(body.toString(), submission);
    if (statusCode === 422) {
      return this.#rejected(
        `what it has cosigned (${old} records) is not the beginning of this log (${size} records)`,
      );
    }
    if (statusCode === 404) return this.#failed('it does not know this log: add the replica to its logs');
    if (statusCode === 403)
      return this.#failed('it has another public key for this log than that of audit.signingKeyFile');
    const failed = this.#failed(`status ${statusCode}`);
    return wait === undefined ? failed : new RetryLater(failed.message, wait);
  }

  #conflict(text: string, { size, old }: HeadSubmission): Error {
    const [, digits = ''] = /^(0|[1-9]\d{0,14})\n$/.exec(text) ?? [];
    if (digits === '') return this.#failed('status 409 without a size');
    const theirs = Number(digits);
    if (theirs > size)
      return this.#rejected(`it has cosigned ${theirs} records, and this log has ${size}: its end is gone`);
    if (theirs === old)
      return this.#rejected(`its head of ${old} records is another one: this log was written anew`);
    return new OtherSizeError(theirs);
  }

  #rejected(reason: string): Rejected {
    return new Rejected(`${new URL(this.#options.url).host}: ${reason}`);
  }

  #failed(reason: string): Error {
    return new Error(`${new URL(this.#options.url).host}: ${reason}`);
  }
}
