import { messageOf } from '../../base/error-code.ts';
import { appendHead, stampLine } from '../segments/head-files.ts';
import { stampedName } from '../segments/segment.ts';
import { syncSegment } from '../segments/segment-file.ts';
import { timestampRequest, tokenIn } from '../timestamp.ts';
import type { CommonOptions, Delivery } from './follower.ts';
import type { HeadSubmission } from './head-source.ts';
import { HttpReceiver, type ReceiverTls } from './receiver.ts';

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
