import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { errorCode } from '../../base/error-code.ts';
import { NEWLINE } from '../line.ts';
import {
  isSetAside,
  parseHeader,
  type Segment,
  type SegmentHeader,
  segmentName,
  segmentsIn,
} from '../segments/segment.ts';
import { readBlocks } from '../segments/segment-reader.ts';
import type { FoundPosition, SinkPosition } from '../segments/sink-position.ts';
import type { Source, Unit } from './follower.ts';
import type { SourceEvents } from './record-source.ts';

/** Age in milliseconds after which a closed segment is sent although it was not compressed: it may have been changed. */
const PLAIN_AFTER_MS = 600_000;

/** A closed segment with the files that were set aside from it. */
export interface ClosedSegment {
  readonly replica: string;
  readonly folder: string;
  /** Names of the files; the segment is the first. */
  readonly names: readonly string[];
  readonly records: number;
}

export interface SegmentSourceOptions {
  readonly folder: string;
  readonly replica: string;
  /** Undefined: everything is to be sent. */
  readonly start: FoundPosition | undefined;
  readonly events: SourceEvents;
}

/** Finds the closed segments of one process's log after the position of a sink. */
export class SegmentSource implements Source<ClosedSegment> {
  readonly #options: SegmentSourceOptions;
  #last: FoundPosition | undefined;

  constructor(options: SegmentSourceOptions) {
    this.#options = options;
    this.#last = options.start;
  }

  async next(): Promise<Unit<ClosedSegment> | undefined> {
    const { folder } = this.#options;
    const segments = await segmentsIn(folder).catch(noneIfGone);
    const at = await this.#indexOfNext(segments);
    const [segment, next] = [segments[at], segments[at + 1]];
    if (segment === undefined || next === undefined) return undefined;
    const [header, following] = [await headerOf(folder, segment), await headerOf(folder, next)];
    const since = Date.parse(following?.opened ?? '') || 0;
    const later = segments.slice(at + 1).some(({ compressed }) => compressed);
    // The writer compresses segments in their order, and leaves one that was changed as it is.
    if (!segment.compressed && !later && Date.now() - since < PLAIN_AFTER_MS) return undefined;
    const [first, last] = [segment.first, next.first - 1];
    const position = {
      segment: first,
      previous: header?.previous ?? '',
      seq: last,
      hmac: following?.previous ?? '',
    };
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
    return { replica, folder, names: [segment.name, ...aside.sort()], records };
  }

  async #indexOfNext(segments: readonly Segment[]): Promise<number> {
    if (this.#last === undefined || segments.length === 0) return 0;
    const { position, key } = this.#last;
    const at = segments.findIndex(({ first }) => first >= position.segment);
    const found = segments[at];
    if (found?.first === position.segment) {
      const header = await headerOf(this.#options.folder, found);
      const known = key === undefined || header?.key === key;
      if ((header?.previous ?? '') === position.previous && known) return at + 1;
    } else if (at === 0 && key === undefined) return 0;
    await this.#options.events.onDiverged(0, 'the log is not the one that the position belongs to');
    this.#last = undefined;
    return 0;
  }

  #tellSkipped(first: number): void {
    const after = this.#last?.position.seq;
    if (after === undefined || first <= after + 1) return;
    this.#options.events.onSkipped(after + 1, first - 1, 'they were removed from the log');
  }
}

async function headerOf(folder: string, { name }: Segment): Promise<SegmentHeader | undefined> {
  for await (const { bytes } of readBlocks(join(folder, name))) {
    return parseHeader(bytes.toString('utf8', 0, bytes.indexOf(NEWLINE)));
  }
  return undefined;
}

function noneIfGone(error: unknown): Segment[] {
  if (errorCode(error) !== 'ENOENT') throw error;
  return [];
}
