import { lstat, readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { ignoreAbsent } from '../../base/expected-errors.ts';
import { type Archive, begunSegments } from '../segments/archive.ts';
import {
  cosignedName,
  isSetAside,
  type Segment,
  type SegmentHeader,
  segmentName,
  segmentsIn,
  stampedName,
} from '../segments/segment.ts';
import { headerOf } from '../segments/segment-reader.ts';
import type { FoundPosition, SinkPosition } from '../segments/signed-file.ts';
import type { Source, Unit } from './follower.ts';
import { ignoreDamage, type SourceEvents } from './record-source.ts';

/** Age in milliseconds after which a closed segment is sent although it was not compressed: it may have been changed. */
const PLAIN_AFTER_MS = 600_000;

/** Least time between two looks whether the heads of closed segments have grown, in milliseconds. */
const EVIDENCE_EVERY_MS = 60_000;
/** Closed segments that are looked at: a head is stored beside the newest segment with one, or the segment before it. */
const GROWING_SEGMENTS = 2;

/** A closed segment, with the files that were set aside from it and the heads that others have signed or stamped. */
export interface ClosedSegment {
  readonly replica: string;
  readonly folder: string;
  /** Names of the files; the segment is the first. Empty: they were sent before, and only heads are new. */
  readonly names: readonly string[];
  /** Names of the files with heads, which grow. */
  readonly evidence: readonly string[];
  readonly records: number;
}

interface SegmentSourceOptions extends Archive {
  /** Undefined: everything is to be sent. */
  readonly start: FoundPosition | undefined;
  readonly events: SourceEvents;
}

/** Finds the closed segments of one process's log after the position of a sink, and later heads of those before it. */
export class SegmentSource implements Source<ClosedSegment> {
  readonly #options: SegmentSourceOptions;
  #last: FoundPosition | undefined;
  /** Sizes of the files with heads when they were sent or found. */
  #evidence = new Map<string, number>();
  #lookedAt = Number.NEGATIVE_INFINITY;

  constructor(options: SegmentSourceOptions) {
    this.#options = options;
    this.#last = options.start;
  }

  async next(isLast = false): Promise<Unit<ClosedSegment> | undefined> {
    const segments = await begunSegments(this.#options);
    const at = await this.#indexOfNext(segments);
    const [segment, next] = [segments[at], segments[at + 1]];
    const sent = segments.slice(Math.max(0, at - GROWING_SEGMENTS), at);
    if (segment === undefined || next === undefined) return this.#laterHeads(sent, isLast);
    const following = await this.#headerOf(next);
    const since = Date.parse(following?.opened ?? '') || 0;
    const later = segments.slice(at + 1).some(({ compressed }) => compressed);
    // The writer compresses segments in their order, and leaves one that was changed as it is.
    if (!segment.compressed && !later && Date.now() - since < PLAIN_AFTER_MS) {
      return this.#laterHeads(sent, isLast);
    }
    const [first, last] = [segment.first, next.first - 1];
    const position = { seq: last, hmac: following?.previous ?? '' };
    const records = last - first + 1;
    const content = await this.#contentOf(segment, records);
    // Only now, since a segment whose files cannot be listed is tried again.
    this.#tellSkipped(first);
    this.#last = { position, key: undefined };
    return { content, records, since, position };
  }

  /** Records in closed segments. */
  async behind(position: SinkPosition | undefined): Promise<number> {
    const segments = await segmentsIn(this.#options.folder);
    const [oldest, newest] = [segments[0], segments.at(-1)];
    if (oldest === undefined || newest === undefined) return 0;
    return Math.max(0, newest.first - 1 - (position?.seq ?? oldest.first - 1));
  }

  close(): Promise<void> {
    return Promise.resolve();
  }

  async #contentOf(segment: Segment, records: number): Promise<ClosedSegment> {
    const { folder, replica } = this.#options;
    // The log names these files, so it can only be verified with them.
    const aside = (await readdir(folder)).filter(
      (name) => isSetAside(name) && name.startsWith(segmentName(segment.first)),
    );
    const evidence = await evidenceOf(folder, segment);
    for (const [name, size] of evidence) this.#evidence.set(name, size);
    return {
      replica,
      folder,
      names: [segment.name, ...aside.sort()],
      evidence: [...evidence.keys()],
      records,
    };
  }

  /** Files with heads that have grown since they were sent, or may have before this process. */
  async #laterHeads(sent: readonly Segment[], isLast: boolean): Promise<Unit<ClosedSegment> | undefined> {
    const isEarly = performance.now() - this.#lookedAt < EVIDENCE_EVERY_MS;
    if (this.#last === undefined || (isEarly && !isLast)) return undefined;
    this.#lookedAt = performance.now();
    const { folder, replica } = this.#options;
    const before = this.#evidence;
    const found = await Promise.all(sent.map((segment) => evidenceOf(folder, segment)));
    this.#evidence = new Map(found.flatMap((sizes) => [...sizes]));
    const evidence = [...this.#evidence].flatMap(([name, size]) => (before.get(name) === size ? [] : [name]));
    if (evidence.length === 0) return undefined;
    const content = { replica, folder, names: [], evidence, records: 0 };
    return { content, records: 0, since: Date.now(), position: this.#last.position };
  }

  async #indexOfNext(segments: readonly Segment[]): Promise<number> {
    if (this.#last === undefined || segments.length === 0) return 0;
    const { position } = this.#last;
    const at = segments.findIndex(({ first }) => first > position.seq);
    if (await this.#isFollowed(this.#last, segments[at - 1], segments[at])) return at;
    await this.#options.events.onDiverged(position, 'the log is not the one that the position belongs to');
    this.#last = undefined;
    return 0;
  }

  /** True if the segment `next` continues at the position, or retention removed what lay between. */
  async #isFollowed(
    { position, key }: FoundPosition,
    before: Segment | undefined,
    next: Segment | undefined,
  ): Promise<boolean> {
    if (next === undefined) return false;
    if (key !== undefined && (before === undefined || (await this.#headerOf(before))?.key !== key))
      return false;
    if (next.first > position.seq + 1) return before === undefined;
    // A damaged one does not show that the log is another.
    const { previous = position.hmac } = (await this.#headerOf(next)) ?? {};
    return previous === position.hmac;
  }

  /** Undefined: it has none, or is damaged, which must not keep it and those behind it from the receiver. */
  #headerOf({ name }: Segment): Promise<SegmentHeader | undefined> {
    return headerOf(join(this.#options.folder, name)).catch(ignoreDamage);
  }

  #tellSkipped(first: number): void {
    const after = this.#last?.position.seq;
    if (after === undefined || first <= after + 1) return;
    this.#options.events.onSkipped(after + 1, first - 1, 'they were removed from the log');
  }
}

/** The files with the heads of a segment, and their sizes. */
async function evidenceOf(folder: string, { first }: Segment): Promise<Map<string, number>> {
  const sizes = new Map<string, number>();
  for (const name of [cosignedName(first), stampedName(first)]) {
    const found = await lstat(join(folder, name)).catch(ignoreAbsent);
    if (found !== undefined) sizes.set(name, found.size);
  }
  return sizes;
}
