import { createHash } from 'node:crypto';
import { lstat, open, rename, rm, truncate } from 'node:fs/promises';
import { join } from 'node:path';
import { z } from 'zod';
import type { AuditKeys } from '../keys.ts';
import { GENESIS, LARGEST_BATCH } from '../seal.ts';
import { parseRetirement, type RetiredEnd } from './admin-records.ts';
import { type ChainState, ChainWalk, type Fault } from './chain-walk.ts';
import { MOST_SEQ, type Segment, segmentsIn, setAsideName } from './segment.ts';
import { syncDirectory } from './segment-file.ts';
import { NotRegularError, openRegular, readBlocks } from './segment-reader.ts';

const NEWLINE = 10;
const COPY_BYTES = 64 * 1024;
/** Files without any seal of the key that are set aside at one start. A crash leaves one. */
const MOST_SET_ASIDE = 20;
/** Numbers that a segment of another key, which cannot be checked, may not reach. */
const RESERVE = 1_000_000_000_000;

const setAside = z.object({
  segment: z.string(),
  /** Number of its first line in the segment. */
  line: z.int(),
  /** Whole lines; and all bytes. */
  lines: z.int(),
  bytes: z.int(),
  /** Name of the file beside the segment, and the SHA-256 of its content, base64url; empty: it was not read. */
  file: z.string(),
  sha256: z.string(),
  /** The process before had stopped: no gateway wrote it. */
  afterStop: z.boolean(),
});

/**
 * What was found under no seal at a start: it lies in a file of its own, and is no part of the log. The admin record
 * `recovered` tells it.
 */
export type SetAside = z.infer<typeof setAside>;

/** An admin line as what it says was set aside; undefined: it is no `recovered`, or one of an earlier version. */
export function parseSetAside(line: string): SetAside | undefined {
  if (!line.includes('"event":"recovered"')) return undefined;
  try {
    const record = JSON.parse(line) as { event?: unknown };
    return record.event === 'recovered' ? setAside.safeParse(record).data : undefined;
  } catch {
    return undefined;
  }
}

/** Where the writer before ended, by what a seal covers, and what it left. */
export interface Recovered extends ChainState {
  /** The file to go on with; undefined: begin a new one. */
  readonly file: { readonly path: string; readonly size: number } | undefined;
  readonly setAside: readonly SetAside[];
  /** A segment that was changed since it was written; it stays as it is. */
  readonly damaged: { readonly segment: string; readonly fault: Fault } | undefined;
  /** Id of the key that sealed the log so far, if it is another one: what it sealed could not be checked. */
  readonly otherKey: string | undefined;
  /** Undefined: nothing was removed for its age yet, as far as the newest segment says. */
  readonly retired: RetiredEnd | undefined;
}

const FRESH: Recovered = {
  previous: GENESIS,
  nextSeq: 1,
  file: undefined,
  setAside: [],
  damaged: undefined,
  otherKey: undefined,
  retired: undefined,
};

export interface RecoveryOptions {
  readonly folder: string;
  readonly replica: string;
  readonly keys: AuditKeys;
}

/**
 * Finds the end of the chain in a replica's folder. Only what a seal of the key covers is believed; what follows it is
 * set aside. Memory stays flat however large the files are.
 * @throws Error when the folder cannot be read or written
 */
export async function recover(options: RecoveryOptions): Promise<Recovered> {
  const found: SetAside[] = [];
  for (const segment of (await segmentsIn(options.folder)).reverse()) {
    const end = await recoverFrom(options, segment);
    if (end === undefined) continue;
    if ('previous' in end) return { ...end, setAside: [...end.setAside, ...found] };
    found.push(end);
    if (found.length > MOST_SET_ASIDE) {
      throw new Error(
        `${options.folder} has more than ${MOST_SET_ASIDE} files that look like newer segments and have no seal: move them away`,
      );
    }
  }
  return { ...FRESH, setAside: found };
}

/** Where the chain ends if it ends in that segment; else the segment, which was set aside whole, unless it was empty. */
async function recoverFrom(
  options: RecoveryOptions,
  segment: Segment,
): Promise<Recovered | SetAside | undefined> {
  const path = join(options.folder, segment.name);
  const { walk, faults, retired } = await walkThrough(options, segment);
  const { header, sealed } = walk;
  const otherKey = header !== undefined && !walk.keyKnown && header.key !== options.keys.id;
  const { nextSeq } = walk.state;
  if (otherKey && nextSeq > segment.first && nextSeq <= MOST_SEQ - RESERVE) {
    const tail = await cutTail(path, walk.sealLineEnd, walk);
    return { ...FRESH, ...walk.state, setAside: tail, otherKey: header.key, retired: header.retired };
  }
  if (sealed === undefined) return setAsideWhole(path, segment, walk.lines);
  const state = { ...FRESH, previous: sealed.previous, nextSeq: sealed.nextSeq, retired };
  const [fault = await tailFault(path, segment, walk)] = faults;
  if (fault !== undefined) {
    // The next segment must not have the name of this one.
    return {
      ...state,
      nextSeq: Math.max(sealed.nextSeq, segment.first + 1),
      damaged: { segment: segment.name, fault },
    };
  }
  if (segment.compressed) return state;
  return { ...state, file: { path, size: sealed.bytes }, setAside: await cutTail(path, sealed.bytes, walk) };
}

async function walkThrough({ folder, replica, keys }: RecoveryOptions, segment: Segment) {
  const faults: Fault[] = [];
  let retired: RetiredEnd | undefined;
  const walk = new ChainWalk([keys], { replica, first: segment.first }, undefined, {
    onFault: (fault) => faults.push(fault),
    onAdmin: (line) => {
      const { last, hmac } = parseRetirement(line) ?? {};
      if (last !== undefined && hmac !== undefined) retired = { last, hmac };
    },
  });
  try {
    for await (const { bytes, whole } of readBlocks(join(folder, segment.name))) {
      if (!whole) break;
      if (!walk.walk(bytes)) break;
    }
  } catch (error) {
    const { code = '' } = error as NodeJS.ErrnoException;
    // What is no segment is set aside; what cannot be read now may be one.
    const broken = error instanceof NotRegularError || code.startsWith('ZSTD_') || code.startsWith('Z_');
    if (!broken) throw error;
    faults.push({ line: walk.lines + 1, message: 'cannot be read from here on' });
  }
  return { walk, faults, retired: retired ?? walk.header?.retired };
}

/** Of a file that ends with more than a process that died can have left. */
async function tailFault(path: string, { compressed }: Segment, walk: ChainWalk): Promise<Fault | undefined> {
  const { bytes = 0, lines = 0 } = walk.sealed ?? {};
  if (compressed || (await lstat(path)).size - bytes <= LARGEST_BATCH) return undefined;
  return { line: lines + 1, message: 'and what follows have no seal, and are more than one seal covers' };
}

async function setAsideWhole(path: string, { name }: Segment, lines: number): Promise<SetAside | undefined> {
  const found = await lstat(path);
  const file = setAsideName(name, 0);
  const aside = { segment: name, line: 1, lines, bytes: found.size, file, afterStop: false };
  const empty = found.isFile() && found.size === 0;
  if (empty) await rm(path);
  else await rename(path, join(path, '..', file));
  await syncDirectory(join(path, '..'));
  if (empty) return undefined;
  const readable = found.isFile() && found.size <= LARGEST_BATCH;
  return { ...aside, sha256: readable ? await digestOf(join(path, '..', file)) : '' };
}

/** Moves what follows byte `from` into a file beside it, there for good before it is cut off; none: nothing follows. */
async function cutTail(path: string, from: number, walk: ChainWalk): Promise<SetAside[]> {
  const { size } = await lstat(path);
  if (size <= from || path.endsWith('.zst')) return [];
  const segment = path.slice(path.lastIndexOf('/') + 1);
  const file = setAsideName(segment, from);
  const copied = await copyFrom(path, from, join(path, '..', file));
  await truncate(path, from);
  await syncDirectory(join(path, '..'));
  const { unsealedLine: line, unsealed, stopped } = walk;
  return [{ segment, line, file, ...copied, afterStop: stopped && unsealed > 0 }];
}

async function copyFrom(path: string, from: number, to: string) {
  const source = await openRegular(path);
  const target = await open(to, 'wx', 0o600);
  const digest = createHash('sha256');
  const chunk = Buffer.allocUnsafeSlow(COPY_BYTES);
  let bytes = 0;
  let lines = 0;
  try {
    for (;;) {
      const { bytesRead } = await source.read(chunk, 0, COPY_BYTES, from + bytes);
      if (bytesRead === 0) break;
      const piece = chunk.subarray(0, bytesRead);
      for (let at = piece.indexOf(NEWLINE); at !== -1; at = piece.indexOf(NEWLINE, at + 1)) lines += 1;
      digest.update(piece);
      await target.writeFile(piece);
      bytes += bytesRead;
    }
    await target.sync();
  } finally {
    await source.close();
    await target.close();
  }
  return { bytes, lines, sha256: digest.digest('base64url') };
}

/** SHA-256 of a file's content, base64url. */
export async function digestOf(path: string): Promise<string> {
  const digest = createHash('sha256');
  const handle = await openRegular(path);
  const chunk = Buffer.allocUnsafeSlow(COPY_BYTES);
  try {
    for (let at = 0; ; ) {
      const { bytesRead } = await handle.read(chunk, 0, COPY_BYTES, at);
      if (bytesRead === 0) return digest.digest('base64url');
      digest.update(chunk.subarray(0, bytesRead));
      at += bytesRead;
    }
  } finally {
    await handle.close();
  }
}
