import { createHash } from 'node:crypto';
import { createWriteStream } from 'node:fs';
import { lstat, readdir, rename, rm, unlink, utimes } from 'node:fs/promises';
import { join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { createZstdCompress } from 'node:zlib';
import { syncDirectory } from '../../base/durable-file.ts';
import { messageOf } from '../../base/error-code.ts';
import { ignoreAbsent, reportDefect } from '../../base/expected-errors.ts';
import type { Log } from '../../base/log.ts';
import { finding } from '../findings.ts';
import { GENESIS } from '../seal.ts';
import type { RetiredEnd, Retirement } from './admin-records.ts';
import { type Archive, begunSegments, closedSegments, sealedHeader, walkSegment } from './archive.ts';
import { ClockCheck } from './clock-check.ts';
import {
  compressedName,
  cosignedName,
  indexName,
  isSetAside,
  type Segment,
  type SegmentHeader,
  segmentName,
  segmentsIn,
  stampedName,
} from './segment.ts';
import { openRegular, readBlocks } from './segment-reader.ts';
import { PositionFile } from './signed-file.ts';
import { timeRangeOf } from './time-index.ts';

/** Interval at which segments are checked for their age, in milliseconds. */
const EVERY_MS = 3_600_000;
const TEMPORARY = '.tmp';

interface RetentionOptions extends Archive {
  /** Age at which segments are closed, in milliseconds. */
  readonly age: number;
  /** How long closed segments are kept, in milliseconds. */
  readonly keep: number;
  /** Names of the sinks that are to get the log. */
  readonly sinks: readonly string[];
  /** Bytes of the folder up to which a segment that a sink has not confirmed is kept longer. */
  readonly keepUnsent: number;
}

interface RetentionDeps {
  readonly log: Log;
  /** The last record that was removed so far. */
  readonly retired: () => RetiredEnd | undefined;
  /** Records that a segment is about to be removed; resolves to false if that cannot be written. */
  readonly onRetire: (retired: Retirement) => Promise<boolean>;
  readonly onFailure: () => void;
}

/** Compresses and indexes closed segments and removes old ones, one at a time, in the background. */
export class Retention {
  readonly #options: RetentionOptions;
  readonly #deps: RetentionDeps;
  readonly #timer: NodeJS.Timeout;
  /** Segments that were logged: changed, or kept for a sink. */
  readonly #logged = new Set<string>();
  readonly #clock: ClockCheck;
  #work: Promise<void> = Promise.resolve();
  #held: string | undefined;

  constructor(options: RetentionOptions, deps: RetentionDeps) {
    this.#options = options;
    this.#deps = deps;
    this.#clock = new ClockCheck(options);
    this.#timer = setInterval(() => this.start(), EVERY_MS).unref();
  }

  /** Starts a run, after the one that is under way. */
  start(): void {
    this.#then(() => this.#run());
  }

  #then(step: () => Promise<void>): void {
    const { log, onFailure } = this.#deps;
    this.#work = this.#work.then(step).catch((error: Error) => {
      onFailure();
      log.warn({ reason: error.message }, 'closed audit segments cannot be compressed or removed now');
    });
  }

  /** Resolves when no run is under way. */
  get idle(): Promise<void> {
    return this.#work;
  }

  /** Why old segments stay; undefined: they are removed, or there are none. */
  get held(): string | undefined {
    return this.#held;
  }

  stop(): void {
    clearInterval(this.#timer);
    this.#then(() => this.#clock.end());
  }

  async #run(): Promise<void> {
    const { folder, keys, keep } = this.#options;
    const { retired } = this.#deps;
    await this.#removeBeside(await leftOver(folder, retired()));
    await this.#compressClosed();
    for (;;) {
      const due = await nextToRetire(this.#options, keep, retired());
      this.#hold(due && (await this.#clock.doubt()));
      if (this.#held !== undefined) break;
      // The log must say where the chain begins before it begins there: otherwise it looks tampered with.
      if (due === undefined || !(due.recorded || (await this.#announce(due.retired)))) break;
      await this.#remove(due.retired);
    }
    let closed: Segment | undefined;
    for (const segment of await begunSegments(this.#options)) {
      if (closed !== undefined) await timeRangeOf(folder, closed, segment, [keys]);
      closed = segment;
    }
  }

  /**
   * Compresses every closed segment; the newest one is open. A segment with an integrity error stays as it is. A failure
   * is logged only: a full disk gets room when old segments are removed.
   */
  async #compressClosed(): Promise<void> {
    const { folder, keys } = this.#options;
    const { log, onFailure } = this.#deps;
    for (const closed of await closedSegments(this.#options)) {
      if (closed.compressed) continue;
      const { name: segment } = closed;
      const { header, errors } = await check(this.#options, closed);
      const unknownKey = header !== undefined && header.key !== keys.id;
      if (errors.length === 0 || unknownKey) {
        await compress(folder, segment).catch((error: unknown) => {
          onFailure();
          log.warn({ segment, reason: messageOf(error) }, 'a closed audit segment cannot be compressed now');
        });
      } else if (!this.#logged.has(segment)) {
        this.#logged.add(segment);
        log.error({ segment }, 'a closed segment of the audit log was changed: run audit verify');
      }
    }
  }

  /** Removes a retired segment with its index and the files that were set aside from it. */
  async #remove({ segment, first }: Retirement): Promise<void> {
    const { folder } = this.#options;
    await rm(join(folder, segment), { recursive: true });
    await this.#removeBeside((await readdir(folder)).filter((name) => isBeside(name, first)));
    await syncDirectory(folder);
  }

  /** Logs a file once if it cannot be removed: it must not keep other segments from being compressed and removed. */
  async #removeBeside(names: readonly string[]): Promise<void> {
    const { folder } = this.#options;
    const { log, onFailure } = this.#deps;
    for (const name of names) {
      try {
        await rm(join(folder, name), { recursive: true, force: true });
      } catch (error) {
        onFailure();
        const msg = 'what belongs to a removed audit segment cannot be removed: remove it';
        if (!this.#logged.has(name)) log.warn({ file: name, reason: messageOf(error) }, msg);
        this.#logged.add(name);
      }
    }
  }

  #hold(days: number | undefined): void {
    const reason = `the clock is ${days} days ahead of the audit log, so old segments are not removed for a day`;
    const held = days === undefined ? undefined : `${reason}; run audit accept-clock if it is right`;
    if (held !== undefined && this.#held === undefined) this.#deps.log.error(held);
    this.#held = held;
  }

  /** Records that a segment is about to be removed; false: it stays, for a sink or since that cannot be written. */
  async #announce(retired: Retirement): Promise<boolean> {
    const { folder, keepUnsent } = this.#options;
    const { log, onRetire } = this.#deps;
    const unsent = await unsentBy(this.#options, retired.last);
    if (unsent.length === 0) return onRetire(retired);
    const { segment } = retired;
    if ((await bytesIn(folder)) <= keepUnsent) {
      const msg = 'an old audit segment is kept for sinks that have not confirmed it';
      if (!this.#logged.has(segment)) log.warn({ segment, sinks: unsent }, msg);
      this.#logged.add(segment);
      return false;
    }
    const recorded = await onRetire({ ...retired, unsent });
    if (recorded) {
      log.error({ segment, sinks: unsent }, 'an audit segment is removed that sinks have not confirmed');
    }
    return recorded;
  }
}

/** The names of the sinks that have not confirmed every record up to that one. */
async function unsentBy({ folder, replica, keys, sinks }: RetentionOptions, last: number): Promise<string[]> {
  const positions = sinks.map(async (sink) => {
    // A position that cannot be used, or that another key signed, confirms nothing.
    const found = await new PositionFile(folder, sink, replica, keys).read().catch(reportDefect);
    const confirmed = found !== undefined && found.key === undefined ? found.position.seq : 0;
    return confirmed < last ? sink : [];
  });
  return (await Promise.all(positions)).flat();
}

async function bytesIn(folder: string): Promise<number> {
  const names = await readdir(folder);
  const sizes = await Promise.all(names.map((name) => sizeOf(join(folder, name))));
  return sizes.reduce((sum, size) => sum + size, 0);
}

/** 0 for a file that is gone: sinks rename and remove their positions at any time. */
async function sizeOf(path: string): Promise<number> {
  const found = await lstat(path).catch(ignoreAbsent);
  return found?.size ?? 0;
}

/** Replaces a plain file, which is removed only after the compressed one was read back and has the same content. */
async function compress(folder: string, name: string): Promise<void> {
  const plain = join(folder, name);
  const final = join(folder, compressedName(name));
  const temporary = `${final}${TEMPORARY}`;
  await using source = await openRegular(plain);
  const { atime, mtime } = await source.stat();
  // Something else than a file may stand there.
  await rm(temporary, { force: true, recursive: true });
  try {
    const target = createWriteStream(temporary, { flags: 'wx', mode: 0o600, flush: true });
    await pipeline(source.createReadStream(), createZstdCompress(), target);
    // The reader decides by the name whether to decompress, so the file is renamed before it is compared.
    await utimes(temporary, atime, mtime);
    await rename(temporary, final);
  } finally {
    // After a failure: on a full disk, it has the room that the next records need.
    await rm(temporary, { force: true });
  }
  if ((await contentDigest(plain)) !== (await contentDigest(final))) {
    await rm(final);
    throw new Error(`${final} could not be read back as it was written`);
  }
  await syncDirectory(folder);
  await unlink(plain);
  await syncDirectory(folder);
}

async function contentDigest(file: string): Promise<string> {
  const digest = createHash('sha256');
  for await (const { bytes } of readBlocks(file)) digest.update(bytes);
  return digest.digest('hex');
}

interface Due {
  readonly retired: Retirement;
  /** True: it was recorded before, and the process ended before the segment was removed. */
  readonly recorded: boolean;
}

/**
 * The oldest segment, if all its records are older than `keep` milliseconds. That is decided by a later header under a
 * seal, since anybody can set the time of a file. `end`: the last record that was removed before, from a record under a
 * seal.
 */
async function nextToRetire(
  archive: Archive,
  keep: number,
  end: RetiredEnd | undefined,
): Promise<Due | undefined> {
  const [oldest, ...later] = await segmentsIn(archive.folder);
  if (oldest === undefined) return undefined;
  const now = Date.now();
  const begun = openedAt(await sealedHeader(archive, oldest));
  let next: SegmentHeader | undefined;
  for (const segment of later) {
    const header = await sealedHeader(archive, segment);
    if (segment === later[0]) next = header;
    const opened = openedAt(header);
    // A clock that was ahead would keep the segment until the time it showed; one that was behind would remove it now.
    if (!(opened <= now) || (begun <= now && opened < begun)) continue;
    if (header === undefined || opened >= now - keep) return undefined;
    const retired = { ...(await describe(archive, oldest, next, end)), olderThan: header.opened };
    return { retired, recorded: retired.last === end?.last && retired.hmac === end.hmac };
  }
  return undefined;
}

/** In Unix milliseconds; NaN: no seal of the key says that. */
function openedAt(header: SegmentHeader | undefined): number {
  return Date.parse(header?.opened ?? '');
}

async function describe(
  archive: Archive,
  segment: Segment,
  next: SegmentHeader | undefined,
  end: RetiredEnd | undefined,
): Promise<Omit<Retirement, 'olderThan'>> {
  const { header, state, errors } = await check(archive, segment);
  const { first = segment.first, previous = '' } = header ?? {};
  // The next segment says under its own seal where it continues.
  const last = next === undefined ? state.nextSeq - 1 : next.first - 1;
  const hmac = next?.previous ?? state.previous;
  const unchecked = header !== undefined && header.key !== archive.keys.id;
  const [error] = unchecked ? [] : errors;
  const cut = hmac === state.previous ? undefined : 'its end is not what the next segment continues';
  const altered = error === undefined ? cut : `line ${error.line} ${error.message}`;
  const known = isKnownStart({ first, previous }, end);
  return {
    segment: segment.name,
    first,
    previous,
    last,
    hmac,
    ...(altered !== undefined && { altered }),
    ...(unchecked && { unchecked: header.key }),
    ...(!known && { missingFrom: (end?.last ?? 0) + 1, missingTo: first - 1 }),
  };
}

/** True if every record before that one was retired, as the newest header or a record says. */
function isKnownStart(
  { first, previous }: { readonly first: number; readonly previous: string },
  end: RetiredEnd | undefined,
): boolean {
  return (previous === GENESIS && first === 1) || (end?.last === first - 1 && end.hmac === previous);
}

/** Names what was beside removed segments: a process that is killed meanwhile leaves it, whole records among it. */
async function leftOver(folder: string, retired: RetiredEnd | undefined): Promise<string[]> {
  const [oldest] = await segmentsIn(folder);
  if (oldest === undefined || retired === undefined) return [];
  return (await readdir(folder)).filter((name) => {
    const first = Number.parseInt(name, 10);
    return first <= retired.last && first < oldest.first && isBeside(name, first);
  });
}

/** True for the index of a segment, its cosigned and stamped heads, and the files that were set aside from it. */
function isBeside(name: string, first: number): boolean {
  if (isSetAside(name)) return name.startsWith(segmentName(first));
  return name === indexName(first) || name === cosignedName(first) || name === stampedName(first);
}

async function check(archive: Archive, segment: Segment) {
  const { walk, errors: found } = await walkSegment(archive, segment);
  const { torn: bytes, unsealed, lines } = walk;
  const errors = [...found];
  if (bytes > 0) errors.push({ ...finding('line-torn', { bytes }), line: lines + 1 });
  if (unsealed.lines > 0) {
    errors.push({ ...finding('lines-unsealed', { lines: unsealed.lines }), line: walk.unsealedLine });
  }
  return { header: walk.header, state: walk.state, errors };
}
