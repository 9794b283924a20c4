import type { Log } from '../../base/log.ts';
import type { AuditSink, LossRecorder, SinkLag } from '../audit.ts';
import type { AuditKeys } from '../keys.ts';
import type { Head } from '../seal.ts';
import type { FoundPosition, SinkPosition } from '../segments/signed-file.ts';
import { type Delivery, Follower, type Source, type Unit } from './follower.ts';
import { RecordSource, type Shipment } from './record-source.ts';
import type { RedisStream } from './redis-stream.ts';

const SINK = 'redis';
/** Records and characters after which no further batch is added to a call: about a millisecond of CPU time. */
const MOST = { records: 200, characters: 128 * 1024 };
/** Interval of heads in the stream, in milliseconds. */
const ANCHOR_EVERY_MS = 60_000;
/** How long a delivery may take, whose calls have a shorter time of their own; and the last records at the end. */
const TIMEOUT_MS = 60_000;
const CLOSE_MS = 2_000;

export interface StreamSinkOptions {
  /** The folder of this replica. */
  readonly folder: string;
  readonly replica: string;
  readonly keys: AuditKeys;
  /** Records of all replicas that the stream keeps. */
  readonly maxLength: number;
}

export interface StreamSinkDeps {
  readonly stream: RedisStream;
  readonly log: Log;
}

/** Copies the log of this process to the stream in Redis. */
export class StreamSink implements AuditSink {
  readonly #stream: RedisStream;
  readonly #log: StreamedLog;
  readonly #follower: Follower<Shipment>;

  constructor(options: StreamSinkOptions, deps: StreamSinkDeps) {
    this.#stream = deps.stream;
    this.#log = new StreamedLog(options, deps);
    const { replica } = options;
    const following = { source: this.#log, delivery: this.#log, log: deps.log };
    this.#follower = new Follower({ sink: SINK, replica, timeout: TIMEOUT_MS }, following);
  }

  get failing(): string | undefined {
    return this.#follower.failing;
  }

  get failures(): number {
    return this.#follower.counts.failures;
  }

  get lag(): SinkLag {
    return { since: this.#follower.since, records: this.#log.waiting };
  }

  open(recorder: LossRecorder): void {
    this.#log.recorder = recorder;
  }

  sealed(head: Head): void {
    this.#log.head = head;
    this.#follower.wake();
  }

  async close(): Promise<void> {
    await this.#follower.finish(AbortSignal.timeout(CLOSE_MS));
    await this.#stream.close();
  }
}

/**
 * The log and its copy in Redis, which has the position: it moves in the call that adds the batches. So a call that hung
 * and arrives late adds nothing twice, and a Redis that lost its newest entries gets them again. Only what the writer has
 * confirmed is sent: a position must name a seal that stays in the log.
 */
class StreamedLog implements Source<Shipment>, Delivery<Shipment> {
  readonly #options: StreamSinkOptions;
  readonly #deps: StreamSinkDeps;
  /** The end of the log that the writer has confirmed. */
  head: Head | undefined;
  recorder: LossRecorder | undefined;
  #source: RecordSource | undefined;
  /** The position in Redis as a text, and the last one that this process has set or found. */
  #position = '';
  #sent: SinkPosition | undefined;
  /** True if the log has a record of what it lost before this process. */
  #isLossRecorded = false;
  readonly #told = new Set<string>();
  #anchored = Number.NEGATIVE_INFINITY;

  constructor(options: StreamSinkOptions, deps: StreamSinkDeps) {
    this.#options = options;
    this.#deps = deps;
  }

  async next(): Promise<Unit<Shipment> | undefined> {
    if (this.head === undefined) return undefined;
    this.#source ??= this.#sourceAt(await this.#find());
    return this.#source.next();
  }

  behind(): Promise<number> {
    return Promise.resolve(this.waiting);
  }

  /** Records that the writer has confirmed and the stream lacks, as far as this process knows. */
  get waiting(): number {
    return this.head === undefined ? 0 : Math.max(0, this.head.seq - (this.#sent?.seq ?? 0));
  }

  /** A call that timed out may still take effect. */
  returnToPosition(): Promise<void> {
    return this.close();
  }

  async close(): Promise<void> {
    const source = this.#source;
    this.#source = undefined;
    await source?.close();
  }

  async deliver({ batches }: Shipment): Promise<number> {
    const { replica, maxLength } = this.#options;
    const { stream } = this.#deps;
    const seal = batches.at(-1)?.seal;
    if (seal === undefined) return 0;
    const to = { seq: seal.last, hmac: seal.hmac };
    const anchor = performance.now() - this.#anchored > ANCHOR_EVERY_MS;
    const there = await stream.append(replica, { from: this.#position, to, batches, anchor, maxLength });
    if (there !== stream.formatPosition(replica, to)) {
      throw new Error('the stream is at another position than before: it lost entries');
    }
    this.#position = there;
    this.#sent = to;
    if (anchor) this.#anchored = performance.now();
    return 0;
  }

  /** Reads the position in Redis. */
  async #find(): Promise<SinkPosition | undefined> {
    const { text, position } = await this.#deps.stream.position(this.#options.replica);
    this.#position = text;
    if (position !== undefined) this.#sent = position;
    if (text === '' || position !== undefined) return position;
    this.#tell('position of this replica in Redis has no valid signature; ignored', {});
    // This process knows what it sent.
    return this.#sent;
  }

  #sourceAt(position: SinkPosition | undefined): RecordSource {
    const { folder, replica, keys, maxLength } = this.#options;
    const start: FoundPosition | undefined = position && { position, key: undefined };
    const from = Math.max(0, (this.head?.seq ?? 0) - maxLength + 1);
    return new RecordSource({
      folder,
      replica,
      keys,
      start,
      from: from === 1 ? 0 : from,
      confirmed: () => this.head?.seq ?? 0,
      most: MOST,
      events: {
        onSkipped: (first, last, reason) =>
          this.#deps.log.error({ first, last, reason }, 'audit records never reach the stream'),
        onDiverged: (lost) => this.#recordLoss(lost),
      },
    });
  }

  /** The position in Redis, by which `audit verify` knows of the loss, moves only when the log tells it itself. */
  async #recordLoss(position: SinkPosition): Promise<void> {
    const msg =
      'the audit stream has records that the audit log lacks; the log was cut, altered or begun anew';
    this.#tell(msg, { seq: position.seq });
    if (this.#isLossRecorded) return;
    if ((await this.recorder?.recordLoss(position)) !== true) {
      throw new Error('the audit log cannot record that it has lost records');
    }
    this.#isLossRecorded = true;
  }

  #tell(msg: string, details: object): void {
    if (this.#told.has(msg)) return;
    this.#told.add(msg);
    this.#deps.log.error({ replica: this.#options.replica, ...details }, msg);
  }
}
