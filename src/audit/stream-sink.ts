import { setTimeout as delay } from 'node:timers/promises';
import { isNativeError } from 'node:util/types';
import type { Log } from '../base/log.ts';
import type { AuditSink } from './audit.ts';
import type { RedisStream, StreamPosition } from './redis-stream.ts';
import type { Head } from './seal.ts';
import { type NumberedLine, type SealedBatch, SealedBatches } from './sealed-batches.ts';

/** How long records are gathered before they are sent, in milliseconds; and the pause after a failure. */
const GATHER_MS = 20;
const RETRY_MS = 250;
/** Records that are sent at once: about a millisecond's work, in which no request is served. */
const MOST_RECORDS = 200;
/** Between two ends of the chain in the stream, in milliseconds. */
const ANCHOR_EVERY_MS = 60_000;
/** How long the last records may take at the end, in milliseconds. */
const FAREWELL_MS = 2_000;

export interface SinkOptions {
  /** Of this replica's log. */
  readonly folder: string;
  readonly replica: string;
  /** Entries that the stream keeps, of all replicas. */
  readonly maxLength: number;
  readonly stream: RedisStream;
  readonly log: Log;
}

interface Slice {
  readonly records: readonly NumberedLine[];
  readonly to: StreamPosition;
}

/**
 * Sends what is in the file on to a stream, in order and each record once. It reads the file itself, behind those who
 * write it: what the stream has not got yet takes no memory, however long Redis is away.
 */
export class StreamSink implements AuditSink {
  readonly #options: SinkOptions;
  #head: Head | undefined;
  /** What the stream has; `unknown`: it has to be asked. */
  #position: StreamPosition | undefined | 'unknown' = 'unknown';
  #batches: SealedBatches | undefined;
  /** The last record that was taken from the file, or is not to be. */
  #after = 0;
  #diverged = false;
  /** Was read before it was certain that it stays in the file. */
  #ahead: SealedBatch | undefined;
  #aheadTaken: 'kept' | 'gone' | undefined;
  #running: Promise<void> | undefined;
  #anchored = Number.NEGATIVE_INFINITY;
  #closed = false;
  failing: string | undefined;
  failures = 0;

  constructor(options: SinkOptions) {
    this.#options = options;
  }

  sealed(head: Head): void {
    this.#head = head;
    const ahead = this.#ahead?.seal;
    if (ahead !== undefined && this.#aheadTaken === undefined && head.seq >= ahead.last) {
      this.#aheadTaken = head.seq === ahead.last && head.hmac === ahead.hmac ? 'kept' : 'gone';
    }
    this.#running ??= this.#run().finally(() => {
      this.#running = undefined;
    });
  }

  async close(): Promise<void> {
    const farewell = new AbortController();
    const late = delay(FAREWELL_MS, undefined, { signal: farewell.signal }).catch(() => undefined);
    await Promise.race([this.#running, late]);
    farewell.abort();
    this.#closed = true;
    this.#options.stream.close();
    await this.#running;
    await this.#batches?.close();
  }

  async #run(): Promise<void> {
    await delay(GATHER_MS);
    while (!this.#closed && this.#isBehind()) {
      try {
        if (this.#position === 'unknown') await this.#seek();
        await this.#send();
      } catch (error) {
        if (this.#closed) return;
        this.#fail(isNativeError(error) ? error.message : String(error));
        await delay(RETRY_MS);
      }
    }
    if (!this.#closed) this.#recover();
  }

  #isBehind(): boolean {
    return this.#head !== undefined && (this.#position === 'unknown' || this.#after < this.#head.seq);
  }

  #fail(reason: string): void {
    this.failures += 1;
    // A call that was given up may still succeed.
    this.#position = 'unknown';
    if (this.failing === undefined) {
      this.#options.log.warn(
        { reason },
        'the audit log does not reach its stream; it is sent once it can be',
      );
    }
    this.failing = reason;
  }

  #recover(): void {
    if (this.failing === undefined) return;
    this.failing = undefined;
    this.#options.log.info({ seq: this.#after }, 'the audit log reaches its stream again');
  }

  /** Finds out what the stream has, and goes on reading after that. */
  async #seek(): Promise<void> {
    const { folder, replica, stream, maxLength, log } = this.#options;
    const position = await stream.position(replica);
    await this.#batches?.close();
    this.#ahead = undefined;
    this.#aheadTaken = undefined;
    const oldest = Math.max(0, (this.#head?.seq ?? 0) - maxLength);
    const known = position !== undefined && (await this.#isOurs(position));
    if (position !== undefined && !known && !this.#diverged) {
      const { seq } = position;
      this.#diverged = true;
      log.error(
        { replica, seq },
        'the stream has records of this replica that its audit log has not: it was cut, altered or begun anew',
      );
    }
    this.#after = known ? position.seq : oldest;
    this.#batches = new SealedBatches(folder, this.#after + 1);
    this.#position = position;
  }

  /** Whether the last seal that the stream knows of stands in the log. One that was removed for its age is believed. */
  async #isOurs({ seq, seal }: StreamPosition): Promise<boolean> {
    if (seq > (this.#head?.seq ?? 0)) return false;
    if (seal.hmac === '') return true;
    const batches = new SealedBatches(this.#options.folder, seal.last);
    try {
      for (let batch = await batches.next(); batch !== undefined; batch = await batches.next()) {
        if (batch.seal.last >= seal.last) {
          return batch.seal.first > seal.last || batch.seal.hmac === seal.hmac;
        }
      }
      return false;
    } finally {
      await batches.close();
    }
  }

  async #send(): Promise<void> {
    const { replica, stream, maxLength } = this.#options;
    for (const { records, to } of slices(await this.#gather(), this.#position)) {
      const anchor = performance.now() - this.#anchored > ANCHOR_EVERY_MS && to.seq === to.seal.last;
      const from = this.#position === 'unknown' ? undefined : this.#position;
      const there = await stream.append(replica, { from, to, records, anchor, maxLength });
      if (there?.seq !== to.seq || there.seal.hmac !== to.seal.hmac) {
        this.#position = 'unknown';
        return;
      }
      this.#position = to;
      if (anchor) this.#anchored = performance.now();
      this.#recover();
    }
  }

  /** What comes next and is certain to stay in the file; a batch is never divided here. */
  async #gather(): Promise<SealedBatch[]> {
    const gathered: SealedBatch[] = [];
    for (let count = 0; count < MOST_RECORDS; ) {
      const batch = await this.#next();
      if (batch === undefined) break;
      const records = batch.records.filter(({ seq }) => seq > this.#after);
      if (records.length === 0) continue;
      this.#after = records.at(-1)?.seq ?? this.#after;
      gathered.push({ records, seal: batch.seal });
      count += records.length;
    }
    // There is more in the file, and it is not to be read yet.
    if (gathered.length === 0) await delay(GATHER_MS);
    return gathered;
  }

  async #next(): Promise<SealedBatch | undefined> {
    if (this.#ahead !== undefined) {
      if (this.#aheadTaken === undefined) return undefined;
      const batch = this.#ahead;
      const gone = this.#aheadTaken === 'gone';
      this.#ahead = undefined;
      this.#aheadTaken = undefined;
      if (!gone) return batch;
    }
    const batch = await this.#batches?.next();
    if (batch === undefined || batch.seal.last <= (this.#head?.seq ?? 0)) return batch;
    this.#ahead = batch;
    return undefined;
  }
}

/** In parts that are sent at once. Between them, the last seal is that of the batch before. */
function* slices(
  batches: readonly SealedBatch[],
  position: StreamPosition | undefined | 'unknown',
): Generator<Slice, void> {
  const before = position === undefined || position === 'unknown' ? { last: 0, hmac: '' } : position.seal;
  let seal = before;
  let records: NumberedLine[] = [];
  for (const batch of batches) {
    for (const record of batch.records) {
      records.push(record);
      if (records.length < MOST_RECORDS || record.seq === batch.seal.last) continue;
      yield { records, to: { seq: record.seq, seal } };
      records = [];
    }
    seal = { last: batch.seal.last, hmac: batch.seal.hmac };
  }
  const last = records.at(-1);
  if (last !== undefined) yield { records, to: { seq: last.seq, seal } };
}
