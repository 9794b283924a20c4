import { join } from 'node:path';
import { errorCode } from '../../base/error-code.ts';
import type { AuditKeys } from '../keys.ts';
import { type NumberedLine, recordsIn } from '../line.ts';
import type { Seal } from '../seal.ts';
import { lastSealed } from '../segments/archive.ts';
import { ChainWalk, type WalkedBatch } from '../segments/chain-walk.ts';
import { type Segment, type SegmentHeader, segmentsIn } from '../segments/segment.ts';
import { NotRegularError, SegmentReader } from '../segments/segment-reader.ts';

/** Lines of one replica's log under one seal. */
export interface SealedBatch {
  /** Empty under an opening seal. */
  readonly records: readonly NumberedLine[];
  /** The lines as they are in the log, possibly with a header, without the seal. */
  readonly lines: string;
  readonly seal: Seal;
  /** `hmac` of the previous seal. */
  readonly previous: string;
  /** The header of its segment. */
  readonly header: SegmentHeader;
}

interface BatchesOptions {
  readonly folder: string;
  readonly replica: string;
  readonly keys: readonly AuditKeys[];
  /** Called with the records that a seal names if it is forged or does not fit its lines; the batch is left out. */
  readonly onForged: (range: { readonly first: number; readonly last: number }) => void;
}

interface OpenSegment {
  readonly segment: Segment;
  readonly reader: SegmentReader;
  readonly walk: ChainWalk;
}

/**
 * Reads one replica's log batch by batch, as it grows, segment after segment. Lines that have no seal yet are not
 * returned. In segments before the first one that is sealed with one of the keys, only the digests are checked. After a
 * failure of the disk the same records come again, in another segment.
 */
export class SealedBatches {
  readonly #options: BatchesOptions;
  readonly #seq: number;
  #open: OpenSegment | undefined;
  #ready: SealedBatch[] = [];
  /** True if there were batches under seals of the keys. */
  #hasSealed = false;

  /** Starts at the beginning of the segment that holds record `seq`, or of the oldest one. */
  constructor(options: BatchesOptions, seq: number) {
    this.#options = options;
    this.#seq = seq;
  }

  /**
   * The next batch; undefined: there is none yet.
   * @throws Error if a file cannot be read
   */
  async next(): Promise<SealedBatch | undefined> {
    while (this.#ready.length === 0) {
      this.#open ??= await this.#openNext((segments) => this.#holding(segments));
      if (this.#open === undefined) return undefined;
      const hasRead = (await this.#read(this.#open)) || (await this.#goOn(this.#open));
      if (!hasRead) return undefined;
    }
    return this.#ready.pop();
  }

  async close(): Promise<void> {
    await this.#open?.reader.close();
  }

  /** Reads the next block; false: there is none for now. */
  async #read({ reader, walk }: OpenSegment): Promise<boolean> {
    const block = walk.isOver ? undefined : await reader.next();
    if (block === undefined) return false;
    for (const batch of walk.walk(block)) this.#take(batch);
    this.#ready.reverse();
    return true;
  }

  #take({ seal, previous, lines, trust, header }: WalkedBatch): void {
    this.#hasSealed ||= trust === 'sealed';
    // No other key follows the gateway's own.
    const isTrusted = trust === 'sealed' || (trust === 'unchecked' && !this.#hasSealed);
    if (seal === undefined || header === undefined || !isTrusted) {
      this.#options.onForged({ first: seal?.first ?? 0, last: seal?.last ?? 0 });
      return;
    }
    this.#ready.push({ records: recordsIn(lines), lines: lines.toString(), seal, previous, header });
  }

  /** Goes on with the next segment if this one no longer grows; false: it may. */
  async #goOn(open: OpenSegment): Promise<boolean> {
    const { first } = open.segment;
    const replaced = await open.reader.replaced();
    if (!replaced && !(await this.#isOver(open))) return false;
    // Lines may have been added since its end was read.
    if (await this.#read(open)) return true;
    await open.reader.close();
    this.#open = await this.#openNext(
      (segments) => segments.find((segment) => (replaced ? segment.first >= first : segment.first > first)),
      replaced ? 0 : open.walk.state.nextSeq,
    );
    return this.#open !== undefined;
  }

  /**
   * True if a later segment was begun. After one of a key that is known, a seal of such a key has to say so: anybody could
   * put a file there, while the log goes on before it.
   */
  async #isOver({ segment, walk }: OpenSegment): Promise<boolean> {
    const later = (await segmentsIn(this.#options.folder)).filter(({ first }) => first > segment.first);
    return walk.keyKnown ? (await lastSealed(this.#options, later)) !== undefined : later.length > 0;
  }

  /** The segment with record `seq`. One of another key is not, if it comes after one of the keys. */
  async #holding(segments: readonly Segment[]): Promise<Segment | undefined> {
    const before = segments.filter(({ first }) => first <= this.#seq);
    return (await lastSealed(this.#options, before)) ?? before.at(-1) ?? segments[0];
  }

  /** `nextSeq`: number of the record that comes next, or 0. */
  async #openNext(
    choose: (segments: readonly Segment[]) => Segment | undefined | Promise<Segment | undefined>,
    nextSeq = 0,
  ): Promise<OpenSegment | undefined> {
    const { folder, replica, keys } = this.#options;
    const passed = new Set<number>();
    for (;;) {
      const segments = await segmentsIn(folder);
      const segment = await choose(segments.filter((each) => !passed.has(each.first)));
      if (segment === undefined) return undefined;
      const { name, first } = segment;
      try {
        const reader = await SegmentReader.open(join(folder, name), 'seal');
        const mostErrors = Number.POSITIVE_INFINITY;
        return { segment, reader, walk: new ChainWalk({ keys, replica, first, mostErrors }) };
      } catch (error) {
        // Records with these numbers were read, so it is in the place of no segment; others may be back later.
        if (error instanceof NotRegularError && first < nextSeq) passed.add(first);
        // Retention removed it since the folder was read.
        else if (errorCode(error) !== 'ENOENT') throw error;
      }
    }
  }
}
