import { join } from 'node:path';
import { errorCode } from '../../base/error-code.ts';
import type { AuditKeys } from '../keys.ts';
import { type NumberedLine, type SealedBatch, SealedBatches } from '../reader/sealed-batches.ts';
import { parseSeal, SEAL_START } from '../seal.ts';
import { segmentName, segmentsIn } from '../segments/segment.ts';
import { openRegular } from '../segments/segment-reader.ts';
import type { FoundPosition, SinkPosition } from '../segments/sink-position.ts';
import type { Source, Unit } from './follower.ts';

/** Records and characters after which no further batch is added to a unit. */
const MOST_RECORDS = 1_000;
const MOST_CHARACTERS = 512 * 1024;
/** Bytes at the end of a segment in which its last seal is looked for. */
const TAIL_BYTES = 64 * 1024;
/** Ranges that are read a second time. */
const MOST_DOUBTED = 100;
const SEAL_LINE = `\n${SEAL_START}`;

/** A record with its place in the log. */
export interface PlacedRecord extends NumberedLine {
  readonly replica: string;
  /** Name of the segment, as it is before compression. */
  readonly segment: string;
}

/** Events of a source. */
export interface SourceEvents {
  /** Records that were never sent and cannot be any more, by number. */
  readonly onSkipped: (first: number, last: number, reason: string) => void;
  /** The position does not fit the log; everything is sent again from that record on, or all of it if that is 0. */
  readonly onDiverged: (from: number, reason: string) => Promise<void>;
}

export interface RecordSourceOptions {
  readonly folder: string;
  readonly replica: string;
  readonly keys: AuditKeys;
  /** Undefined: everything is to be sent. */
  readonly start: FoundPosition | undefined;
  readonly events: SourceEvents;
}

/** Reads the sealed records of one process's log after the position of a sink. */
export class RecordSource implements Source<readonly PlacedRecord[]> {
  readonly #options: RecordSourceOptions;
  #batches: SealedBatches;
  /** The position that has to be found in the log first. */
  #seeking: FoundPosition | undefined;
  #found = false;
  /** Number of the last record that needs not be sent; undefined: the log is sent from its beginning, wherever that is. */
  #after: number | undefined;
  #last: SinkPosition | undefined;
  #forged: { readonly first: number; readonly last: number } | undefined;
  /** Ranges that were read again because they looked forged. */
  readonly #doubted = new Set<string>();

  constructor(options: RecordSourceOptions) {
    const { start } = options;
    this.#options = options;
    this.#seeking = start;
    this.#last = start?.position;
    this.#after = start?.position.seq;
    this.#batches = this.#open(start?.position.segment ?? 0);
  }

  async next(): Promise<Unit<readonly PlacedRecord[]> | undefined> {
    const records: PlacedRecord[] = [];
    let position: SinkPosition | undefined;
    for (let characters = 0; records.length < MOST_RECORDS && characters < MOST_CHARACTERS; ) {
      const batch = await this.#nextOrResume(position !== undefined);
      if (batch === undefined) break;
      const { seal, header, lines } = batch;
      const { first: segment, previous } = header;
      const after = this.#after ?? segment - 1;
      // A batch that the writer took back comes again, in another segment.
      if (seal.last < after) continue;
      const fresh = batch.records.filter(({ seq }) => seq > after);
      this.#tellSkipped(after, seal.first);
      const place = { replica: this.#options.replica, segment: segmentName(segment) };
      for (const record of fresh) records.push({ ...record, ...place });
      characters += lines.length;
      this.#after = seal.last;
      position = { segment, previous, seq: seal.last, hmac: seal.hmac };
      this.#last = position;
    }
    if (position === undefined) return undefined;
    const since = Date.parse(records[0]?.time ?? '');
    return { content: records, records: records.length, since: since || Date.now(), position };
  }

  /** Reads no more than the end of the newest segment. */
  async behind(position: SinkPosition | undefined): Promise<number> {
    const { folder } = this.#options;
    const newest = (await segmentsIn(folder)).at(-1);
    if (newest === undefined) return 0;
    const last = newest.compressed ? undefined : await lastSealed(join(folder, newest.name));
    return Math.max(0, (last ?? newest.first - 1) - (position?.seq ?? 0));
  }

  close(): Promise<void> {
    return this.#batches.close();
  }

  #open(segment: number): SealedBatches {
    const { folder, replica, keys } = this.#options;
    const onForged = (range: { readonly first: number; readonly last: number }): void => {
      this.#forged = range;
    };
    return new SealedBatches({ folder, replica, keys: [keys], onForged }, segment);
  }

  async #reopen(segment: number, seeking: FoundPosition | undefined): Promise<void> {
    await this.#batches.close();
    this.#batches = this.#open(segment);
    this.#seeking = seeking;
    this.#found = false;
  }

  /**
   * The next batch. If a file cannot be read, the log is opened again after the last batch, since a compressed segment
   * cannot be read on after an error. `collected`: batches were read before, which are to be delivered first.
   */
  async #nextOrResume(collected: boolean): Promise<SealedBatch | undefined> {
    try {
      return await this.#next();
    } catch (error) {
      // The content of a damaged file stays unreadable: the cursor goes on with the next segment.
      if (!isDamage(error)) await this.#resume();
      if (collected) return undefined;
      throw error;
    }
  }

  /** The next batch after the position. */
  async #next(): Promise<SealedBatch | undefined> {
    for (;;) {
      const batch = await this.#batches.next().catch(noneIfGone);
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
    return this.#reopen(seeking?.position.segment ?? (this.#after ?? -1) + 1, seeking);
  }

  #tellSkipped(after: number, first: number): void {
    if (first <= after + 1) return;
    const reason = 'they were removed from the log, or do not match their seal';
    this.#options.events.onSkipped(after + 1, first - 1, reason);
  }

  /** Looks for the position; returns the first batch after it, undefined to read on, 'none' if there is none yet. */
  async #seek(
    seeking: FoundPosition,
    batch: SealedBatch | undefined,
  ): Promise<SealedBatch | 'none' | undefined> {
    const { position, key } = seeking;
    if (batch === undefined) return this.#notFound(position);
    const { header } = batch;
    const known = key === undefined || header.key === key;
    if (header.first === position.segment && header.previous === position.previous && known) {
      this.#found = true;
      if (batch.seal.hmac === position.hmac) this.#seeking = undefined;
      return undefined;
    }
    if (this.#found) return this.#notFound(position);
    if (header.first > position.segment && key === undefined) {
      // Retention removed the segment, or the position is at the end of it.
      this.#seeking = undefined;
      return batch;
    }
    return this.#restart(0, 'the log is not the one that the position belongs to');
  }

  /** The segment is there and lacks the seal: the log lost its end, and its numbers were given to other records. */
  #notFound({ segment }: SinkPosition): Promise<'none' | undefined> {
    return this.#found
      ? this.#restart(segment, 'the log lacks the seal of the position: its end was lost')
      : this.#restart(0, 'the log has no segment of the position');
  }

  async #restart(segment: number, reason: string): Promise<undefined> {
    await this.#options.events.onDiverged(segment, reason);
    this.#after = segment === 0 ? undefined : segment - 1;
    this.#last = undefined;
    await this.#reopen(segment, undefined);
  }
}

/** True if a compressed file was cut or changed. */
function isDamage(error: unknown): boolean {
  return /^(ZSTD|Z)_/.test(errorCode(error));
}

/** A folder that was removed has nothing more. */
function noneIfGone(error: unknown): undefined {
  if (errorCode(error) !== 'ENOENT') throw error;
}

/** The number of the last record under a seal; undefined: the end of the file has no seal. */
async function lastSealed(path: string): Promise<number | undefined> {
  const handle = await openRegular(path);
  try {
    const { size } = await handle.stat();
    const from = Math.max(0, size - TAIL_BYTES);
    const { buffer, bytesRead } = await handle.read(Buffer.allocUnsafe(size - from), 0, size - from, from);
    const text = buffer.toString('latin1', 0, bytesRead);
    const start = text.lastIndexOf(SEAL_LINE) + 1;
    return parseSeal(text.slice(start, text.indexOf('\n', start)))?.last;
  } finally {
    await handle.close();
  }
}
