import { join } from 'node:path';
import { errorCode } from '../../base/error-code.ts';
import { NEWLINE, type NumberedLine } from '../line.ts';
import { type SealedBatch, SealedBatches } from '../reader/sealed-batches.ts';
import { parseSeal } from '../seal.ts';
import type { Archive } from '../segments/archive.ts';
import { type Segment, segmentName, segmentsIn } from '../segments/segment.ts';
import { lastSeal, openRegular } from '../segments/segment-reader.ts';
import type { FoundPosition, SinkPosition } from '../segments/signed-file.ts';
import type { Source, Unit } from './follower.ts';

/** Bytes at the end of a segment in which its last seal is looked for. */
const TAIL_BYTES = 64 * 1024;
/** Ranges that are read a second time. */
const MOST_DOUBTED = 100;

/** A record with its place in the log. */
export interface PlacedRecord extends NumberedLine {
  readonly replica: string;
  /** Name of the segment, as it is before compression. */
  readonly segment: string;
}

/** Batches of one log, and those of their records that were not delivered before. */
export interface Shipment {
  readonly batches: readonly SealedBatch[];
  readonly records: readonly PlacedRecord[];
}

/** Events of a source. */
export interface SourceEvents {
  /** Records that were never sent and cannot be any more, by number. */
  readonly onSkipped: (first: number, last: number, reason: string) => void;
  /** The log lacks the seal of the position, so the source begins as without one. */
  readonly onDiverged: (position: SinkPosition, reason: string) => Promise<void>;
}

interface RecordSourceOptions extends Archive {
  /** Undefined: the source begins with record `from`. */
  readonly start: FoundPosition | undefined;
  /** Number of the record to begin with without a position; 0: the oldest one. */
  readonly from: number;
  /** Records and characters after which no further batch is added to a unit. */
  readonly most: { readonly records: number; readonly characters: number };
  readonly events: SourceEvents;
}

/** Reads the sealed records of one process's log after the position of a sink. */
export class RecordSource implements Source<Shipment> {
  readonly #options: RecordSourceOptions;
  #batches: SealedBatches;
  /** The position that has to be found in the log first, and whether records before it were found. */
  #seeking: FoundPosition | undefined;
  #hasPassed = false;
  /**
   * Number of the last record that needs not be sent; undefined: the log is sent from its beginning, wherever that is.
   */
  #after: number | undefined;
  #last: SinkPosition | undefined;
  #forged: { readonly first: number; readonly last: number } | undefined;
  /** Ranges that were read again because they looked forged. */
  readonly #doubted = new Set<string>();

  constructor(options: RecordSourceOptions) {
    const { start, from } = options;
    this.#options = options;
    this.#seeking = start;
    this.#last = start?.position;
    this.#after = start?.position.seq ?? afterFrom(from);
    this.#batches = this.#open(start?.position.seq ?? from);
  }

  async next(): Promise<Unit<Shipment> | undefined> {
    const { records: mostRecords, characters: mostCharacters } = this.#options.most;
    const batches: SealedBatch[] = [];
    const records: PlacedRecord[] = [];
    let position: SinkPosition | undefined;
    for (let characters = 0; records.length < mostRecords && characters < mostCharacters; ) {
      const batch = await this.#nextOrResume(position !== undefined);
      if (batch === undefined) break;
      const { seal, lines } = batch;
      const after = this.#after ?? batch.header.first - 1;
      // A batch that the writer took back comes again, in another segment. An opening seal may be taken back, too.
      if (seal.last < after || batch.records.length === 0) continue;
      this.#tellSkipped(after, seal.first);
      const fresh = this.#placed(batch, after);
      records.push(...fresh);
      if (fresh.length > 0) batches.push(batch);
      characters += lines.length;
      this.#after = seal.last;
      position = { seq: seal.last, hmac: seal.hmac };
      this.#last = position;
    }
    if (position === undefined) return undefined;
    const since = Date.parse(records[0]?.time ?? '') || Date.now();
    const content = records.length === 0 ? undefined : { batches, records };
    return { content, records: records.length, since, position };
  }

  /** The records of a batch after that one. */
  #placed({ records, header }: SealedBatch, after: number): PlacedRecord[] {
    const place = { replica: this.#options.replica, segment: segmentName(header.first) };
    return records.flatMap((record) => (record.seq > after ? [{ ...record, ...place }] : []));
  }

  behind(position: SinkPosition | undefined): Promise<number> {
    return recordsBehind(this.#options.folder, position);
  }

  close(): Promise<void> {
    return this.#batches.close();
  }

  #open(seq: number): SealedBatches {
    const { folder, replica, keys } = this.#options;
    const onForged = (range: { readonly first: number; readonly last: number }): void => {
      this.#forged = range;
    };
    return new SealedBatches({ folder, replica, keys: [keys], onForged }, seq);
  }

  async #reopen(seq: number, seeking: FoundPosition | undefined): Promise<void> {
    await this.#batches.close();
    this.#batches = this.#open(seq);
    this.#seeking = seeking;
    this.#hasPassed = false;
  }

  /**
   * The next batch. If a file cannot be read, the log is opened again after the last batch, since a compressed segment
   * cannot be read on after an error. `collected`: batches were read before, which are to be delivered first.
   */
  async #nextOrResume(collected: boolean): Promise<SealedBatch | undefined> {
    try {
      return await this.#next();
    } catch (error) {
      // The content of a damaged file stays unreadable: the cursor goes on with the next segment. The position may be in it.
      if (isDamage(error)) this.#hasPassed = false;
      else await this.#resume();
      if (collected) return undefined;
      throw error;
    }
  }

  /** The next batch after the position. */
  async #next(): Promise<SealedBatch | undefined> {
    for (;;) {
      const batch = await this.#batches.next();
      if (this.#forged !== undefined && (await this.#isMisread(this.#forged))) continue;
      if (this.#seeking === undefined) return batch;
      const after = await this.#seek(this.#seeking, batch);
      if (after !== undefined) return after === 'none' ? undefined : after;
    }
  }

  /** A file that was cut in the middle of being read looks forged once; true: it is read again. */
  async #isMisread({ first, last }: { readonly first: number; readonly last: number }): Promise<boolean> {
    this.#forged = undefined;
    const range = `${first}-${last}`;
    if (this.#doubted.has(range) || this.#doubted.size >= MOST_DOUBTED) return false;
    this.#doubted.add(range);
    await this.#resume();
    return true;
  }

  /** Opens the log again after the last batch. */
  #resume(): Promise<void> {
    const seeking = this.#seeking ?? (this.#last && { position: this.#last, key: undefined });
    return this.#reopen(seeking?.position.seq ?? (this.#after ?? -1) + 1, seeking);
  }

  #tellSkipped(after: number, first: number): void {
    if (first <= after + 1) return;
    const reason = 'they were removed from the log, or do not match their seal';
    this.#options.events.onSkipped(after + 1, first - 1, reason);
  }

  /** Looks for the position; returns the first batch after it, undefined to read on, 'none' if there is none yet. */
  async #seek(
    { position, key }: FoundPosition,
    batch: SealedBatch | undefined,
  ): Promise<SealedBatch | 'none' | undefined> {
    if (batch === undefined) return this.#restart(position);
    const { seal, previous, header, records } = batch;
    const isKnown = key === undefined || header.key === key;
    if (seal.hmac === position.hmac && isKnown) {
      this.#seeking = undefined;
      return undefined;
    }
    // Retention removed the segment that ended with the position, or one behind it, too.
    const isAfter = previous === position.hmac || (!this.#hasPassed && seal.first > position.seq);
    if (isAfter && key === undefined) {
      this.#seeking = undefined;
      return batch;
    }
    if (seal.last > position.seq) return this.#restart(position);
    this.#hasPassed ||= records.length > 0;
    return undefined;
  }

  async #restart(position: SinkPosition): Promise<undefined> {
    const { events, from } = this.#options;
    await events.onDiverged(position, 'the log lacks the seal of the position');
    this.#after = afterFrom(from);
    this.#last = undefined;
    await this.#reopen(from, undefined);
  }
}

/** Undefined: there is none before the first record to be sent. */
function afterFrom(from: number): number | undefined {
  return from === 0 ? undefined : from - 1;
}

/** True if a compressed file was cut or changed. */
export function isDamage(error: unknown): boolean {
  return /^(ZSTD|Z)_/.test(errorCode(error));
}

/** For a file whose content stays unreadable. @throws any error but that it is damaged */
export function ignoreDamage(error: unknown): undefined {
  if (!isDamage(error)) throw error;
}

/**
 * True if the log has the seal of a position, in a segment of its key if that is not the present one, which is not
 * damaged before it.
 * @throws Error if a file cannot be read
 */
export async function hasSealOf(
  { folder, replica, keys }: Archive,
  { position, key }: FoundPosition,
): Promise<boolean> {
  const { seq, hmac } = position;
  const batches = new SealedBatches({ folder, replica, keys: [keys], onForged: () => undefined }, seq);
  try {
    for (;;) {
      const batch = await batches.next().catch(ignoreDamage);
      if (batch === undefined || batch.seal.last > seq) return false;
      const { seal, header } = batch;
      const isKnown = key === undefined || header.key === key;
      if (seal.last === seq && seal.hmac === hmac && isKnown) return true;
    }
  } finally {
    await batches.close();
  }
}

/** Records under a seal after a position. It reads no more than the end of the newest segment. */
export async function recordsBehind(
  folder: string,
  position: Pick<SinkPosition, 'seq'> | undefined,
): Promise<number> {
  return Math.max(0, (await lastRecord(folder, await segmentsIn(folder))) - (position?.seq ?? 0));
}

/** The number of the last record under a seal in these segments of a folder; 0: there is none. */
export async function lastRecord(folder: string, segments: readonly Segment[]): Promise<number> {
  const newest = segments.at(-1);
  if (newest === undefined) return 0;
  const last = newest.compressed ? undefined : await lastSealed(join(folder, newest.name));
  return last ?? newest.first - 1;
}

/** The number of the last record under a seal; undefined: the end of the file has no seal. */
async function lastSealed(path: string): Promise<number | undefined> {
  const handle = await openRegular(path);
  try {
    const { size } = await handle.stat();
    const from = Math.max(0, size - TAIL_BYTES);
    const { buffer, bytesRead } = await handle.read(Buffer.allocUnsafe(size - from), 0, size - from, from);
    const tail = buffer.subarray(0, bytesRead);
    const start = lastSeal(tail, tail.lastIndexOf(NEWLINE) + 1);
    return start === -1
      ? undefined
      : parseSeal(tail.toString('latin1', start, tail.indexOf(NEWLINE, start)))?.last;
  } finally {
    await handle.close();
  }
}
