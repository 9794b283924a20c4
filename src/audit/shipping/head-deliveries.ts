import { messageOf } from '../../base/error-code.ts';
import {
  checkpointLine,
  cosignatureOf,
  parseSignatures,
  signatureLine,
  type WitnessKey,
  witnessKey,
} from '../checkpoint.ts';
import { digestText } from '../merkle.ts';
import { appendHead, stampLine } from '../segments/head-files.ts';
import { cosignedName, stampedName } from '../segments/segment.ts';
import { syncSegment } from '../segments/segment-file.ts';
import { timestampRequest, tokenIn } from '../timestamp.ts';
import type { CommonOptions, Delivery } from './follower.ts';
import { type HeadSubmission, OtherSizeError } from './head-source.ts';
import { HttpReceiver, type ReceiverResponse, type ReceiverTls, Rejected } from './receiver.ts';

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
  readonly #key: WitnessKey;
  readonly #receiver: HttpReceiver;

  constructor(options: WitnessOptions) {
    this.#key = witnessKey(options.publicKey);
    this.#receiver = new HttpReceiver(`${options.url}/add-checkpoint`, options.tls);
  }

  async deliver(submission: HeadSubmission, signal: AbortSignal): Promise<number> {
    const { folder, segment, note, size } = submission;
    // A witness remembers what a machine that loses its power must not forget.
    await syncSegment(folder, segment);
    const first = await this.#post(submission, signal);
    // It has cosigned this head before, and its response was lost: it returns the cosignature again.
    const isKnown = first.statusCode === 409 && sizeIn(first.body) === size;
    const asked = isKnown ? { ...submission, old: size, proof: [] } : submission;
    const response = isKnown ? await this.#post(asked, signal) : first;
    if (response.statusCode !== 200) throw this.#refused(response, asked);
    const cosignature = this.#cosignatureIn(note, response.body.toString());
    if (cosignature === undefined) {
      throw this.#receiver.error(
        `no cosignature of audit.witness.publicKey is in its response for ${size} records`,
      );
    }
    await appendHead(folder, cosignedName(segment), checkpointLine(`${note}${cosignature}`));
    return 0;
  }

  close(): Promise<void> {
    return this.#receiver.close();
  }

  #post({ note, old, proof }: HeadSubmission, signal: AbortSignal): Promise<ReceiverResponse> {
    const body = [`old ${old}`, ...proof.map(digestText), '', note].join('\n');
    return this.#receiver.post({ 'content-type': 'text/plain; charset=utf-8' }, body, signal);
  }

  /** The line of the first cosignature that the key made. */
  #cosignatureIn(note: string, lines: string): string | undefined {
    const signatures = parseSignatures(lines) ?? [];
    const text = note.slice(0, note.indexOf('\n\n') + 1);
    const found = cosignatureOf({ text, signatures }, [this.#key]);
    return found && signatureLine(found);
  }

  #refused(response: ReceiverResponse, submission: HeadSubmission): Error {
    const { size, old } = submission;
    switch (response.statusCode) {
      case 409:
        return this.#conflict(sizeIn(response.body), submission);
      case 422:
        return this.#rejected(
          `what it has cosigned (${old} records) is not the beginning of this log (${size} records)`,
        );
      case 404:
        return this.#receiver.error('it does not know this log: add the replica to its logs');
      case 403:
        return this.#receiver.error(
          'it has another public key for this log than that of audit.signingKeyFile, or too many trees of it',
        );
      default:
        return this.#receiver.unexpected(response);
    }
  }

  #conflict(theirs: number | undefined, { size, old }: HeadSubmission): Error {
    if (theirs === undefined) return this.#receiver.error('status 409 without a size');
    if (theirs > size)
      return this.#rejected(`it has cosigned ${theirs} records, and this log has ${size}: its end is gone`);
    if (theirs === old)
      return this.#rejected(`its head of ${old} records is another one: this log was written anew`);
    return new OtherSizeError(theirs);
  }

  #rejected(reason: string): Rejected {
    return new Rejected(this.#receiver.error(reason).message);
  }
}

/** The size of the tree that the witness has; undefined: the body of its response is something else. */
function sizeIn(body: Buffer): number | undefined {
  const [, digits] = /^(0|[1-9]\d{0,14})\n$/.exec(body.toString()) ?? [];
  return digits === undefined ? undefined : Number(digits);
}

export interface TimestampOptions extends CommonOptions {
  readonly kind: 'timestamps';
  readonly url: string;
  /** PEM: the authorities that its time stamps lead to. */
  readonly authorities: string;
  /** An object identifier; undefined: that of the receiver. */
  readonly policy: string | undefined;
  /** The least time between two time stamps, in milliseconds. */
  readonly every: number;
  readonly tls: ReceiverTls | undefined;
}

const HEADERS = { 'content-type': 'application/timestamp-query', accept: 'application/timestamp-reply' };

/** Gets time stamps of signed heads (RFC 3161), and stores them beside the log. */
export class TimestampDelivery implements Delivery<HeadSubmission> {
  readonly #options: TimestampOptions;
  readonly #receiver: HttpReceiver;

  constructor(options: TimestampOptions) {
    this.#options = options;
    this.#receiver = new HttpReceiver(options.url, options.tls);
  }

  async deliver({ folder, segment, note }: HeadSubmission, signal: AbortSignal): Promise<number> {
    // A machine that loses its power must not lose records that a time stamp is of.
    await syncSegment(folder, segment);
    const request = await timestampRequest(note, this.#options.policy);
    const response = await this.#receiver.post(HEADERS, request.body, signal);
    if (response.statusCode !== 200) throw this.#receiver.unexpected(response);
    const token = await tokenIn(response.body, request, this.#options).catch((error: unknown) => {
      throw this.#receiver.error(messageOf(error), error);
    });
    await appendHead(folder, stampedName(segment), stampLine(note, token));
    return 0;
  }

  close(): Promise<void> {
    return this.#receiver.close();
  }
}
