import { setTimeout as delay } from 'node:timers/promises';
import { inTime } from '../../base/clock.ts';
import { messageOf } from '../../base/error-code.ts';
import type { Log } from '../../base/log.ts';
import type { AuditSink, LossRecorder } from '../audit.ts';
import type { AuditKeys } from '../keys.ts';
import { type SealedBatch, SealedBatches } from '../reader/sealed-batches.ts';
import type { Head } from '../seal.ts';
import type { RedisStream, StreamPosition } from './redis-stream.ts';

/** How long records are collected before they are sent, and the pause after a failure, in milliseconds. */
const GATHER_MS = 20;
const RETRY_MS = 250;
/** Records and characters after which no further batch is added to a call: about a millisecond of CPU time. */
const MOST_RECORDS = 200;
const MOST_CHARACTERS = 128 * 1024;
/** Interval of heads in the stream, in milliseconds. */
const ANCHOR_EVERY_MS = 60_000;
/** How long `close` waits for the last records, in milliseconds. */
const CLOSE_MS = 2_000;

export interface SinkOptions {
  /** The folder of this replica. */
  readonly folder: string;
  readonly replica: string;
  readonly keys: AuditKeys;
  /** Records of all replicas that the stream keeps. */
  readonly maxLength: number;
}

export interface SinkDeps {
  readonly stream: RedisStream;
  readonly log: Log;
}

/**
 * Copies the log to a stream, in order and each record once. It reads the files behind the writer, so records that the
 * stream does not have yet take no memory, however long Redis is away.
 */
export class StreamSink implements AuditSink {
  readonly #options: SinkOptions;
  readonly #deps: SinkDeps;
  #head: Head | undefined;
  /** The position in Redis as a text; undefined: it has to be read. */
  #position: string | undefined;
  /** The last position that this process has set. */
  #sent: StreamPosition | undefined;
  #batches: SealedBatches | undefined;
  /** Number of the last record that needs not be read any more. */
  #after = 0;
  #told: 'diverged' | 'forged' | undefined;
  #log: LossRecorder | undefined;
  /** True if the log has a record of what it lost before this process. */
  #lossRecorded = false;
  /** A batch that was read before the writer said that it stays in the file. */
  #ahead: SealedBatch | undefined;
  #aheadState: 'kept' | 'gone' | undefined;
  #running: Promise<void> | undefined;
  #anchored = Number.NEGATIVE_INFINITY;
  #closed = false;
  failing: string | undefined;
  failures = 0;

  constructor(options: SinkOptions, deps: SinkDeps) {
    this.#options = options;
    this.#deps = deps;
  }

  open(log: LossRecorder): void {
    this.#log = log;
  }

  sealed(head: Head): void {
    this.#head = head;
    const ahead = this.#ahead?.seal;
    if (ahead !== undefined && this.#aheadState === undefined && head.seq >= ahead.last) {
      this.#aheadState = head.seq === ahead.last && head.hmac === ahead.hmac ? 'kept' : 'gone';
    }
    this.#running ??= this.#run().finally(() => {
      this.#running = undefined;
    });
  }

  async close(): Promise<void> {
    await inTime(this.#running, CLOSE_MS);
    this.#closed = true;
    await this.#deps.stream.close();
    await this.#running;
    await this.#batches?.close();
  }

  async #run(): Promise<void> {
    await delay(GATHER_MS);
    while (!this.#closed && this.#isBehind()) {
      try {
        if (this.#position === undefined) await this.#seek();
        await this.#send();
      } catch (error) {
        if (this.#closed) return;
        this.#fail(messageOf(error));
        await delay(RETRY_MS);
      }
    }
    if (!this.#closed) this.#recover();
  }

  #isBehind(): boolean {
    return this.#head !== undefined && (this.#position === undefined || this.#after < this.#head.seq);
  }

  #fail(reason: string): void {
    this.failures += 1;
    // A call that timed out may still take effect.
    this.#position = undefined;
    if (this.failing === undefined) {
      this.#deps.log.warn({ reason }, 'audit stream unreachable; records are sent when it is back');
    }
    this.failing = reason;
  }

  #recover(): void {
    if (this.failing === undefined) return;
    this.failing = undefined;
    this.#deps.log.info({ seq: this.#after }, 'audit stream reachable again');
  }

  /** Reads the position in Redis, and goes on reading the log after it. */
  async #seek(): Promise<void> {
    const { replica, maxLength } = this.#options;
    const { stream } = this.#deps;
    const { text, position } = await stream.position(replica);
    if (text !== '' && position === undefined) this.#tell('forged', {});
    // A forged position is ignored; this process knows what it sent.
    const from = position ?? (text === '' ? undefined : this.#sent);
    if (from === undefined || !(await this.#startAfter(from))) {
      if (position !== undefined) await this.#recordLoss(position);
      await this.#startAt(Math.max(0, (this.#head?.seq ?? 0) - maxLength) + 1);
    }
    this.#position = text;
  }

  /** The position in Redis, by which `audit verify` knows of the loss, moves only when the log tells it itself. */
  async #recordLoss(position: StreamPosition): Promise<void> {
    this.#tell('diverged', { seq: position.seq });
    if (this.#lossRecorded) return;
    if ((await this.#log?.recordLoss(position)) !== true) {
      throw new Error('the audit log cannot record that it has lost records');
    }
    this.#lossRecorded = true;
  }

  #tell(what: 'diverged' | 'forged', details: object): void {
    if (this.#told === what) return;
    this.#told = what;
    const message =
      what === 'diverged'
        ? 'the audit stream has records that the audit log lacks; the log was cut, altered or begun anew'
        : 'position of this replica in Redis has no valid signature; ignored';
    this.#deps.log.error({ replica: this.#options.replica, ...details }, message);
  }

  async #startAt(seq: number): Promise<void> {
    await this.#batches?.close();
    this.#batches = new SealedBatches(
      {
        folder: this.#options.folder,
        replica: this.#options.replica,
        keys: [this.#options.keys],
        onForged: ({ first, last }) =>
          this.#deps.log.error(
            { first, last },
            'audit records do not match their seal and are not sent; run audit verify',
          ),
      },
      seq,
    );
    this.#ahead = undefined;
    this.#aheadState = undefined;
    this.#after = seq - 1;
  }

  /** Goes on after that seal; false: it is not in the log. A seal that retention removed is believed. */
  async #startAfter({ seq, hmac }: StreamPosition): Promise<boolean> {
    if (seq > (this.#head?.seq ?? 0)) return false;
    await this.#startAt(Math.max(seq, 1));
    this.#after = seq;
    let before: SealedBatch | undefined;
    for (;;) {
      const batch = await this.#batches?.next();
      if (batch?.seal.hmac === hmac) return true;
      if (batch !== undefined && batch.seal.last <= seq) {
        before = batch;
        continue;
      }
      // The log begins after the seal: retention removed it.
      if (before !== undefined || batch === undefined || batch.seal.first <= seq) return false;
      this.#ahead = batch;
      this.#aheadState = 'kept';
      return true;
    }
  }

  async #send(): Promise<void> {
    const { replica, maxLength } = this.#options;
    const { stream } = this.#deps;
    const batches = await this.#gather();
    const last = batches.at(-1)?.seal;
    if (last === undefined || this.#position === undefined) return;
    const to = { seq: last.last, hmac: last.hmac };
    const anchor = performance.now() - this.#anchored > ANCHOR_EVERY_MS;
    const from = this.#position;
    const there = await stream.append(replica, { from, to, batches, anchor, maxLength });
    if (there !== stream.formatPosition(replica, to)) {
      this.#position = undefined;
      return;
    }
    this.#position = there;
    this.#sent = to;
    if (anchor) this.#anchored = performance.now();
    this.#recover();
  }

  /** The next batches that are certain to stay in the file. */
  async #gather(): Promise<SealedBatch[]> {
    const gathered: SealedBatch[] = [];
    let [records, characters] = [0, 0];
    while (records < MOST_RECORDS && characters < MOST_CHARACTERS) {
      const batch = await this.#next();
      if (batch === undefined) break;
      if (batch.seal.last < this.#after || (batch.records.length > 0 && batch.seal.last <= this.#after))
        continue;
      this.#after = batch.seal.last;
      gathered.push(batch);
      records += batch.records.length;
      characters += batch.lines.length;
    }
    // The file has a batch that may still be taken back.
    if (gathered.length === 0) await delay(GATHER_MS);
    return gathered;
  }

  async #next(): Promise<SealedBatch | undefined> {
    if (this.#ahead !== undefined) {
      if (this.#aheadState === undefined) return undefined;
      const batch = this.#ahead;
      const gone = this.#aheadState === 'gone';
      this.#ahead = undefined;
      this.#aheadState = undefined;
      if (!gone) return batch;
    }
    const batch = await this.#batches?.next();
    if (batch === undefined || batch.records.length === 0 || batch.seal.last <= (this.#head?.seq ?? 0))
      return batch;
    this.#ahead = batch;
    return undefined;
  }
}
