import { createHash } from 'node:crypto';
import { open, readdir, rename, rm, unlink, utimes } from 'node:fs/promises';
import { join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { createZstdCompress } from 'node:zlib';
import type { AuditKeys } from '../keys.ts';
import { GENESIS } from '../seal.ts';
import { parseRetirement, type RetiredEnd, type Retirement } from './admin-records.ts';
import { ChainWalk, type Fault } from './chain-walk.ts';
import {
  compressedName,
  indexName,
  isSetAside,
  type Segment,
  type SegmentHeader,
  segmentName,
  segmentsIn,
} from './segment.ts';
import { syncDirectory } from './segment-file.ts';
import { openRegular, readBlocks } from './segment-reader.ts';

const TEMPORARY = '.tmp';

/** What is known of a segment that is about to be removed for its age. */
export type Retired = Omit<Retirement, 'event' | 'seq' | 'first' | 'previous'> & {
  readonly first: number;
  readonly previous: string;
};

export interface Due {
  readonly retired: Retired;
  /** It was recorded before, and the process ended before it was removed. */
  readonly recorded: boolean;
}

export interface Archive {
  readonly folder: string;
  readonly replica: string;
  readonly keys: AuditKeys;
}

/**
 * Compresses every closed segment of the folder, the newest one being open. One that was changed stays as it is;
 * gives the names of those.
 * @throws Error when the disk does not let it
 */
export async function compressClosed(archive: Archive): Promise<string[]> {
  const changed: string[] = [];
  for (const segment of (await segmentsIn(archive.folder)).slice(0, -1)) {
    if (segment.compressed) continue;
    const { header, faults } = await check(archive, segment);
    const unknownKey = header !== undefined && header.key !== archive.keys.id;
    if (faults.length === 0 || unknownKey) await compress(archive.folder, segment.name);
    else changed.push(segment.name);
  }
  return changed;
}

/** The plain file goes only after what was written instead was read back and found to be the same. */
async function compress(folder: string, name: string): Promise<void> {
  const plain = join(folder, name);
  const final = join(folder, compressedName(name));
  const temporary = `${final}${TEMPORARY}`;
  const source = await openRegular(plain);
  const { atime, mtime } = await source.stat();
  await rm(temporary, { force: true });
  const handle = await open(temporary, 'wx', 0o600);
  try {
    await pipeline(source.createReadStream(), createZstdCompress(), async (compressed) => {
      for await (const chunk of compressed as AsyncIterable<Buffer>) await handle.writeFile(chunk);
    });
    await handle.sync();
  } finally {
    await handle.close();
  }
  // The name decides how it is read, so it is renamed before it is compared.
  await utimes(temporary, atime, mtime);
  await rename(temporary, final);
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

/**
 * The oldest segment, if all its records are from before `before` (Unix time in ms), as a later header says that a seal
 * covers: the time of a file is anybody's to set. `end`: up to where records were removed before, as a seal said.
 */
export async function nextToRetire(
  archive: Archive,
  before: number,
  end: RetiredEnd | undefined,
): Promise<Due | undefined> {
  const [oldest, ...later] = await segmentsIn(archive.folder);
  if (oldest === undefined) return undefined;
  let next: SegmentHeader | undefined;
  for (const segment of later) {
    const header = await sealedHeader(archive, segment);
    if (segment === later[0]) next = header;
    if (header === undefined) continue;
    if (Date.parse(header.opened) >= before) return undefined;
    const retired = await describe(archive, oldest, next, end);
    return { retired, recorded: retired.last === end?.last && retired.hmac === end.hmac };
  }
  return undefined;
}

async function describe(
  archive: Archive,
  segment: Segment,
  next: SegmentHeader | undefined,
  end: RetiredEnd | undefined,
): Promise<Retired> {
  const { header, state, faults } = await check(archive, segment);
  const { first = segment.first, previous = '' } = header ?? {};
  // What comes next says under its own seal where it goes on.
  const last = next === undefined ? state.nextSeq - 1 : next.first - 1;
  const hmac = next?.previous ?? state.previous;
  const unchecked = header !== undefined && header.key !== archive.keys.id;
  const [fault] = unchecked ? [] : faults;
  const cut = hmac === state.previous ? undefined : 'its end is not what the next segment continues';
  const altered = fault === undefined ? cut : `line ${fault.line} ${fault.message}`;
  const known = await isKnownStart(archive, { first, previous }, end);
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

/** Whether nothing was removed before that record but what was retired, by what the newest header or a record says. */
async function isKnownStart(
  archive: Archive,
  { first, previous }: { readonly first: number; readonly previous: string },
  end: RetiredEnd | undefined,
): Promise<boolean> {
  const fits = ({ last, hmac }: RetiredEnd): boolean => last === first - 1 && hmac === previous;
  if ((previous === GENESIS && first === 1) || (end !== undefined && fits(end))) return true;
  // Headers of earlier versions do not say it.
  for (const segment of await segmentsIn(archive.folder)) {
    const { retirements } = await check(archive, segment);
    if (retirements.some(fits)) return true;
  }
  return false;
}

/** Removes a segment that was retired, and what belongs to it. */
export async function remove(folder: string, { segment, first }: Retired): Promise<void> {
  await rm(join(folder, segment), { recursive: true });
  await rm(join(folder, indexName(first)), { force: true });
  for (const name of await readdir(folder)) {
    if (isSetAside(name) && name.startsWith(segmentName(first))) await rm(join(folder, name));
  }
  await syncDirectory(folder);
}

/** The header of a segment, if a seal of the key covers it. */
async function sealedHeader(archive: Archive, segment: Segment): Promise<SegmentHeader | undefined> {
  const walk = new ChainWalk([archive.keys], { ...archive, ...segment }, undefined, {
    onFault: () => undefined,
  });
  try {
    for await (const { bytes, whole } of readBlocks(join(archive.folder, segment.name))) {
      if (!whole || !walk.walk(bytes)) break;
      if (walk.seals > 0) return walk.header;
    }
  } catch {
    // What cannot be read says nothing.
  }
  return walk.seals > 0 ? walk.header : undefined;
}

async function check(archive: Archive, segment: Segment) {
  const faults: Fault[] = [];
  const retirements: RetiredEnd[] = [];
  const onFault = (fault: Fault): void => void faults.push(fault);
  const walk = new ChainWalk([archive.keys], { ...archive, ...segment }, undefined, {
    onFault,
    onAdmin: (line) => retirements.push(...[parseRetirement(line) ?? []].flat()),
  });
  try {
    for await (const { bytes, whole } of readBlocks(join(archive.folder, segment.name))) {
      if (!whole) onFault({ line: walk.lines + 1, message: 'ends in the middle of a line' });
      else if (!walk.walk(bytes)) break;
    }
  } catch (error) {
    onFault({ line: walk.lines + 1, message: `cannot be read from here on: ${(error as Error).message}` });
  }
  if (walk.unsealed > 0) onFault({ line: walk.unsealedLine, message: 'and what follows have no seal' });
  return { header: walk.header, state: walk.state, faults, retirements };
}
