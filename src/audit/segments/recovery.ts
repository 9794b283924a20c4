import { createHash, type KeyObject } from 'node:crypto';
import { type FileHandle, lstat, open, rename, rm, statfs, truncate } from 'node:fs/promises';
import { join } from 'node:path';
import { syncDirectory } from '../../base/durable-file.ts';
import { ignoreAbsent, reportDefect } from '../../base/expected-errors.ts';
import { isSignedBy } from '../checkpoint.ts';
import { finding } from '../findings.ts';
import { lineEnds } from '../line.ts';
import { GENESIS } from '../seal.ts';
import { parseAdmin, type RetiredEnd, type SetAside } from './admin-records.ts';
import { type Archive, walkSegment } from './archive.ts';
import type { ChainState, ChainWalk, IntegrityError, WalkedBatch } from './chain-walk.ts';
import { MOST_SEQ, type Segment, segmentsIn, setAsideName } from './segment.ts';
import { NotRegularError, openRegular } from './segment-reader.ts';
import { type LogTree, TreeWalk } from './tree-walk.ts';

const COPY_BYTES = 64 * 1024;
/** Bytes after the last seal that a killed process, or a machine without power, can have left. */
const MOST_TAIL = 32 * 1024 * 1024;
/** Files without any seal of the key that one start sets aside at most. A crash leaves one. */
const MOST_SET_ASIDE = 20;
/** Segments without a signed head that one start reads at most, to find the last that has one. */
const MOST_WITHOUT_HEAD = 20;
/** Record numbers that must be left after a segment of another key, which cannot be checked. */
const RESERVE = 1_000_000_000_000;

/** A segment that the next process continues. */
export interface Continued {
  readonly path: string;
  readonly size: number;
  /** Number of its first record. */
  readonly first: number;
  /** When it was begun, Unix milliseconds. */
  readonly opened: number;
}

/** The result of looking for signed heads. */
interface Proven {
  /** The tree of all records; undefined: there is none that can be believed. */
  readonly tree: LogTree | undefined;
  /** True if heads of another signing key are all that proves the tree. */
  readonly otherSigner: boolean;
  /** How many records at the end of the tree are under no head: the process before was killed, or somebody wrote them. */
  readonly unsigned: number;
}

/** Where the chain ends, as far as a seal covers it, and what else was found. */
export interface Recovered extends ChainState, Proven {
  /** The file to continue; undefined: a new one is to be begun. */
  readonly file: Continued | undefined;
  readonly setAside: readonly SetAside[];
  /**
   * Moves the lines without a seal out of the newest segment: to be called before anything is written, and again after an
   * error.
   */
  readonly clear: () => Promise<void>;
  /** The newest segment, if it has an integrity error; it stays as it is. */
  readonly damaged: { readonly segment: string; readonly error: IntegrityError } | undefined;
  /** Id of the key that sealed the log so far, if it is another one, so that the log could not be checked. */
  readonly otherKey: string | undefined;
  /** The last record that retention removed; undefined: none, as far as the newest segment says, checked or not. */
  readonly retired: RetiredEnd | undefined;
}

const UNPROVEN: Proven = { tree: undefined, otherSigner: false, unsigned: 0 };

const FRESH: Recovered = {
  previous: GENESIS,
  nextSeq: 1,
  file: undefined,
  setAside: [],
  clear: () => Promise.resolve(),
  damaged: undefined,
  otherKey: undefined,
  retired: undefined,
  ...UNPROVEN,
};

interface RecoveryOptions extends Archive {
  /** The public key of signed heads; undefined: heads are not signed, and no tree is made. */
  readonly publicKey: KeyObject | undefined;
}

/**
 * Finds the end of the chain in a replica's folder. Only lines under a seal of the key are believed; `clear` sets lines
 * after them aside. Memory use does not depend on the size of the files.
 * @throws Error if the folder cannot be read or written
 */
export async function recover(options: RecoveryOptions): Promise<Recovered> {
  const found: SetAside[] = [];
  const segments = (await segmentsIn(options.folder)).reverse();
  for (const [at, segment] of segments.entries()) {
    const end = await recoverFrom(options, segment, segments.slice(at + 1));
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

/**
 * The end of the chain, if it is in that segment; otherwise the segment, set aside as a whole; undefined: it was empty.
 * `older`: the segments before it, the newest first.
 */
async function recoverFrom(
  options: RecoveryOptions,
  segment: Segment,
  older: readonly Segment[],
): Promise<Recovered | SetAside | undefined> {
  const path = join(options.folder, segment.name);
  const walked = await walkThrough(options, segment);
  const { walk, errors, retired } = walked;
  const { header, sealed } = walk;
  const otherKey = header !== undefined && !walk.keyKnown && header.key !== options.keys.id;
  const { nextSeq } = walk.state;
  if (otherKey && nextSeq > segment.first && nextSeq <= MOST_SEQ - RESERVE) {
    const tail = await tailFrom(path, walk.sealLineEnd, walk);
    const tree = treeUnsealed(options, walked);
    return { ...FRESH, ...walk.state, ...tail, otherKey: header.key, retired, tree };
  }
  if (sealed === undefined) return setAsideWhole(path, segment, walk.lines);
  const proven = await provenTree(options, walked, segment, older);
  const { tree, unsigned } = proven;
  // A retirement that is under no head is recorded anew: no verifier believes it.
  const end = sealed.nextSeq - unsigned;
  const known = unsigned === 0 ? retired : await retiredBefore(options, segment, end);
  const state = { ...FRESH, previous: sealed.previous, nextSeq: sealed.nextSeq, retired: known };
  const [error = (await tailError(path, segment, walk)) ?? unproven(walked, tree)] = errors;
  if (error !== undefined) {
    // The next segment must not have the name of this one.
    return {
      ...state,
      nextSeq: Math.max(sealed.nextSeq, segment.first + 1),
      damaged: { segment: segment.name, error },
    };
  }
  if (segment.compressed) return { ...state, ...proven };
  const opened = header === undefined ? Date.now() : Date.parse(header.opened);
  const tail = await tailFrom(path, sealed.bytes, walk);
  // The header of a segment with signed heads has the tree before it, so a first tree begins with a segment.
  if (options.publicKey !== undefined && tree === undefined) {
    const { previous = GENESIS } = header ?? {};
    if (sealed.nextSeq > segment.first) return { ...state, ...tail };
    // The next segment has the name of this one, which has no record.
    const clear = async (): Promise<void> => {
      await tail.clear();
      await rm(path, { force: true });
    };
    return { ...state, previous, ...tail, clear };
  }
  const file = { path, size: sealed.bytes, first: segment.first, opened };
  return { ...state, ...proven, file, ...tail };
}

/** A segment that was read to its end. */
interface Walked {
  readonly walk: ChainWalk;
  readonly errors: readonly IntegrityError[];
  readonly retired: RetiredEnd | undefined;
  /** Undefined: heads are not signed. */
  readonly trees: TreeWalk | undefined;
  readonly treeErrors: readonly IntegrityError[];
}

async function walkThrough(options: RecoveryOptions, segment: Segment): Promise<Walked> {
  const treeErrors: IntegrityError[] = [];
  let retired: RetiredEnd | undefined;
  const trees = options.publicKey && treeWalk(options);
  const { walk, errors, failure } = await walkSegment(options, segment, (batch) => {
    retired = lastRetired(batch, Number.POSITIVE_INFINITY) ?? retired;
    if (trees !== undefined) treeErrors.push(...trees.take(batch).errors);
  });
  // A file that is not a segment is set aside; one that cannot be read now may be a segment.
  if (failure !== undefined && !isOfFile(failure)) throw failure;
  return { walk, errors, retired: retired ?? walk.header?.retired, trees, treeErrors };
}

/** The last segment that was retired before record `end`, as the segment says. */
async function retiredBefore(
  archive: Archive,
  segment: Segment,
  end: number,
): Promise<RetiredEnd | undefined> {
  let retired: RetiredEnd | undefined;
  const { walk } = await walkSegment(archive, segment, (batch) => {
    retired = lastRetired(batch, end) ?? retired;
  });
  return retired ?? walk.header?.retired;
}

/** The last segment that a record of the batch before record `end` says was retired. */
function lastRetired({ admin, uncheckedAdmin }: WalkedBatch, end: number): RetiredEnd | undefined {
  let retired: RetiredEnd | undefined;
  // Under another key, the record is worth as much as the header, which has only what was retired before.
  for (const { line, seq } of [...admin, ...uncheckedAdmin]) {
    const record = seq < end ? parseAdmin(line) : undefined;
    if (record?.event === 'segment-retired') retired = { last: record.last, hmac: record.hmac };
  }
  return retired;
}

/** True if the file itself is not what a segment is, rather than not to be read now. */
function isOfFile(error: unknown): boolean {
  const { code = '' } = error as NodeJS.ErrnoException;
  return error instanceof NotRegularError || code.startsWith('ZSTD_') || code.startsWith('Z_');
}

/** Without the key of the seals, only a head of the own key says that the records are as they were written. */
function treeUnsealed({ publicKey }: RecoveryOptions, { trees }: Walked): LogTree | undefined {
  if (trees?.head === undefined || trees.unsigned > 0) return undefined;
  return publicKey !== undefined && isSignedBy(trees.head, [publicKey]) ? trees.tree : undefined;
}

/**
 * The tree of all records, if signed heads are where a gateway makes them; undefined: it is not proven. The key of the
 * seals alone could have made any other, and the next head would sign it.
 */
async function provenTree(
  options: RecoveryOptions,
  { errors, trees }: Walked,
  segment: Segment,
  older: readonly Segment[],
): Promise<Proven> {
  const { publicKey } = options;
  if (trees === undefined || publicKey === undefined || errors.length > 0) return UNPROVEN;
  // A segment that was begun last has no head of its own yet.
  const proven = isUnderHeads(trees)
    ? trees
    : await treeUnderHeads(options, [...(await sinceLastHead(options, older)), segment]);
  if (proven?.head === undefined) return UNPROVEN;
  // The last head covers all before it, so it does not matter who signed those.
  const otherSigner = !isSignedBy(proven.head, [publicKey]);
  return { tree: proven.tree, otherSigner, unsigned: proven.unsigned };
}

/** Any key may have signed the heads. */
function treeWalk({ replica }: Archive): TreeWalk {
  return new TreeWalk({ replica, keys: undefined });
}

/**
 * Of these segments, the newest first, those from the last one with a head on, in their order. Each write that fails
 * begins another segment, and several can within the second that a head takes.
 */
async function sinceLastHead(archive: Archive, segments: readonly Segment[]): Promise<Segment[]> {
  const found: Segment[] = [];
  for (const segment of segments.slice(0, MOST_WITHOUT_HEAD)) {
    found.unshift(segment);
    const trees = await walkTree(archive, segment, treeWalk(archive));
    if (trees === undefined || isUnderHeads(trees) || trees.end?.kind === 'heads-missing') break;
  }
  return found;
}

/**
 * The walk through segments, each of which ends with records under heads, or of less than a minute; undefined: one does
 * not.
 */
async function treeUnderHeads(archive: Archive, segments: readonly Segment[]): Promise<TreeWalk | undefined> {
  const trees = treeWalk(archive);
  for (const segment of segments) {
    if ((await walkTree(archive, segment, trees)) === undefined) return undefined;
    if (trees.tree?.tree.size !== 0 && !isUnderHeads(trees)) return undefined;
  }
  return trees;
}

/** Has the walk go through a segment. Undefined: its heads are not right, or it cannot be read. */
async function walkTree(archive: Archive, segment: Segment, trees: TreeWalk): Promise<TreeWalk | undefined> {
  let isWrong = false;
  const { failure } = await walkSegment(archive, segment, (batch) => {
    isWrong = trees.take(batch).errors.length > 0;
    return isWrong;
  });
  if (failure !== undefined) return reportDefect(failure);
  return isWrong ? undefined : trees;
}

/** True if its records are under heads, but for those of less than a minute at the end. */
function isUnderHeads({ tree, checkpoints, end }: TreeWalk): boolean {
  return tree !== undefined && checkpoints > 0 && end?.kind !== 'heads-missing';
}

/** The integrity error of a segment with records whose tree no signed head proves; undefined: there is none. */
function unproven(
  { walk, trees, treeErrors }: Walked,
  proven: LogTree | undefined,
): IntegrityError | undefined {
  const { header, sealed } = walk;
  const hasRecords = header?.tree !== undefined && (sealed?.nextSeq ?? 0) > header.first;
  if (trees === undefined || proven !== undefined || !hasRecords) return undefined;
  const end = trees.end?.kind === 'heads-missing' ? trees.end : finding('checkpoint-missing');
  return treeErrors[0] ?? { ...end, line: 0 };
}

/** The integrity error of a file that has more bytes after its last seal than a killed process can have left. */
async function tailError(
  path: string,
  { compressed }: Segment,
  walk: ChainWalk,
): Promise<IntegrityError | undefined> {
  const { bytes = 0, lines = 0 } = walk.sealed ?? {};
  if (compressed || (await lstat(path)).size - bytes <= MOST_TAIL) return undefined;
  return { ...finding('batch-too-large'), line: lines + 1 };
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
  const readable = found.isFile() && found.size <= MOST_TAIL;
  return { ...aside, sha256: readable ? await digestOf(join(path, '..', file)) : '' };
}

/** The bytes from `from` on, which `clear` moves into a file of their own: it is durable before they are cut off. */
async function tailFrom(
  path: string,
  from: number,
  walk: ChainWalk,
): Promise<Pick<Recovered, 'setAside' | 'clear'>> {
  const { clear } = FRESH;
  if (path.endsWith('.zst') || (await lstat(path)).size <= from) return { setAside: [], clear };
  const segment = path.slice(path.lastIndexOf('/') + 1);
  const file = setAsideName(segment, from);
  const found = await readFrom(path, from);
  const { unsealedLine: line, unsealed, stopped } = walk;
  const setAside = [{ segment, line, file, ...found, afterStop: stopped && unsealed.records > 0 }];
  return { setAside, clear: () => cutTail(path, from, join(path, '..', file)) };
}

async function cutTail(path: string, from: number, to: string): Promise<void> {
  const found = await lstat(path).catch(ignoreAbsent);
  if (found === undefined || found.size <= from) return;
  const folder = join(path, '..');
  await requireRoom(folder, found.size - from);
  try {
    await copyTail(path, from, to);
    await syncDirectory(folder);
    await truncate(path, from);
  } catch (error) {
    // A full disk has room for a part.
    await rm(to, { force: true });
    throw error;
  }
}

/** Resolves when the copy is durable and closed. */
async function copyTail(path: string, from: number, to: string): Promise<void> {
  await using target = await open(to, 'wx', 0o600);
  await readFrom(path, from, target);
  await target.sync();
}

/** @throws Error ENOSPC, before a copy that has no room takes, at each attempt, the room that others need */
export async function requireRoom(folder: string, bytes: number): Promise<void> {
  const { blocks, bavail, bsize } = await statfs(folder);
  // Some file systems do not say how large they are.
  if (blocks === 0 || bavail * bsize >= bytes) return;
  const message = `ENOSPC: no space left on device, copy ${bytes} bytes in '${folder}'`;
  throw Object.assign(new Error(message), { code: 'ENOSPC' });
}

/** Reads the bytes from `from` on, and copies them to `target`, if there is one. */
async function readFrom(path: string, from: number, target?: FileHandle) {
  await using source = await openRegular(path);
  const digest = createHash('sha256');
  const chunk = Buffer.allocUnsafeSlow(COPY_BYTES);
  let bytes = 0;
  let lines = 0;
  for (;;) {
    const { bytesRead } = await source.read(chunk, 0, COPY_BYTES, from + bytes);
    if (bytesRead === 0) break;
    const piece = chunk.subarray(0, bytesRead);
    lines += lineEnds(piece).length;
    digest.update(piece);
    await target?.writeFile(piece);
    bytes += bytesRead;
  }
  return { bytes, lines, sha256: digest.digest('base64url') };
}

/** SHA-256 of a file's content, base64url. */
export async function digestOf(path: string): Promise<string> {
  await using handle = await openRegular(path);
  const digest = createHash('sha256');
  for await (const chunk of handle.createReadStream()) digest.update(chunk as Buffer);
  return digest.digest('base64url');
}
