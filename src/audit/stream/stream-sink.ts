import { setTimeout as delay } from 'node:timers/promises';
import { isNativeError } from 'node:util/types';
import type { Log } from '../../base/log.ts';
import type { AuditSink } from '../audit.ts';
import type { AuditKeys } from '../keys.ts';
import { type SealedBatch, SealedBatches } from '../reader/sealed-batches.ts';
import type { Head } from '../seal.ts';
import type { RedisStream, StreamPosition } from './redis-stream.ts';

/** How long records are gathered before they are sent, in milliseconds; and the pause after a failure. */
const GATHER_MS = 20;
const RETRY_MS = 250;
/** Records, and characters of them, after which no further batch is sent at once: about a millisecond's work. */
const MOST_RECORDS = 200;
const MOST_CHARACTERS = 128 * 1024;
/** Between two ends of the chain in the stream, in milliseconds. */
const ANCHOR_EVERY_MS = 60_000;
/** How long the last records may take at the end, in milliseconds. */
const FAREWELL_MS = 2_000;

export interface SinkOptions {
  /** Of this replica's log. */
  readonly folder: string;
  readonly replica: string;
  readonly keys: AuditKeys;
  /** Records that the stream keeps, of all replicas. */
  readonly maxLength: number;
  readonly stream: RedisStream;
  readonly log: Log;
}

/**
 * Sends what is in the file on to a stream, in order and each record once. It reads the file itself, behind those who
 * write it: what the stream has not got yet takes no memory, however long Redis is away.
 */
export class StreamSink implements AuditSink {
  readonly #options: SinkOptions;
  #head: Head | undefined;
  /** What Redis holds as the position; undefined: it has to be asked. */
  #position: string | undefined;
  /** What the stream has, as far as this process knows. */
  #sent: StreamPosition | undefined;
  #batches: SealedBatches | undefined;
  /** The last record that was taken from the file, or is not to be. */
  #after = 0;
  #told: 'diverged' | 'forged' | undefined;
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
    await this.#options.stream.close();
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
        this.#fail(isNativeError(error) ? error.message : String(error));
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
    // A call that was given up may still succeed.
    this.#position = undefined;
    if (this.failing === undefined) {
      this.#options.log.warn({ reason }, 'audit stream unreachable; records are sent when it is back');
    }
    this.failing = reason;
  }

  #recover(): void {
    if (this.failing === undefined) return;
    this.failing = undefined;
    this.#options.log.info({ seq: this.#after }, 'audit stream reachable again');
  }

  /** Finds out what the stream has, and goes on reading after that. */
  async #seek(): Promise<void> {
    const { replica, stream, maxLength } = this.#options;
    const { text, position } = await stream.position(replica);
    if (text !== '' && position === undefined) this.#tell('forged', {});
    // A position that no key made says nothing; this process knows what it sent.
    const from = position ?? (text === '' ? undefined : this.#sent);
    if (from === undefined || !(await this.#startAfter(from))) {
      if (position !== undefined) this.#tell('diverged', { seq: position.seq });
      await this.#startAt(Math.max(0, (this.#head?.seq ?? 0) - maxLength) + 1);
    }
    this.#position = text;
  }

  #tell(what: 'diverged' | 'forged', details: object): void {
    if (this.#told === what) return;
    this.#told = what;
    const message =
      what === 'diverged'
        ? 'the audit stream has records that the audit log lacks; the log was cut, altered or begun anew'
        : 'position of this replica in Redis has no valid signature; ignored';
    this.#options.log.error({ replica: this.#options.replica, ...details }, message);
  }

  async #startAt(seq: number): Promise<void> {
    await this.#batches?.close();
    this.#batches = new SealedBatches(
      {
        folder: this.#options.folder,
        replica: this.#options.replica,
        keys: [this.#options.keys],
        onForged: ({ first, last }) =>
          this.#options.log.error(
            { first, last },
            'audit records do not match their seal and are not sent; run audit verify',
          ),
      },
      seq,
    );
    this.#ahead = undefined;
    this.#aheadTaken = undefined;
    this.#after = seq - 1;
  }

  /** Goes on after that seal; false: it is not in the log. One that was removed for its age is believed. */
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
      // Nothing is left from before it.
      if (before !== undefined || batch === undefined || batch.seal.first <= seq) return false;
      this.#ahead = batch;
      this.#aheadTaken = 'kept';
      return true;
    }
  }

  async #send(): Promise<void> {
    const { replica, stream, maxLength } = this.#options;
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

  /** What comes next and is certain to stay in the file. */
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
    if (batch === undefined || batch.records.length === 0 || batch.seal.last <= (this.#head?.seq ?? 0))
      return batch;
    this.#ahead = batch;
    return undefined;
  }
}
