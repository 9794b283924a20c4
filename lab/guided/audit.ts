import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { zstdCompressSync, zstdDecompressSync } from 'node:zlib';
import type { PlacedFinding } from '../../src/audit/findings.ts';
import { auditKeys } from '../../src/audit/keys.ts';
import { headOf, linesOf } from '../../src/audit/line.ts';
import { leavesOf } from '../../src/audit/merkle.ts';
import { cursorOf, parseCursor } from '../../src/audit/reader/newest-first.ts';
import { SealedBatches } from '../../src/audit/reader/sealed-batches.ts';
import { sealedBlocks } from '../../src/audit/reader/sealed-blocks.ts';
import { searchedSegments } from '../../src/audit/reader/searched-segments.ts';
import { type Verified, verify } from '../../src/audit/reader/verify.ts';
import {
  formatHead,
  type Head,
  parseHead,
  parseSeal,
  SEAL_START,
  sealFor,
  sealLine,
} from '../../src/audit/seal.ts';
import { type ChainState, ChainWalk } from '../../src/audit/segments/chain-walk.ts';
import { compressedName, headerLine, parseHeader, segmentName } from '../../src/audit/segments/segment.ts';
import { errorCode } from '../../src/base/error-code.ts';
import { Secret } from '../../src/base/secret.ts';
import { must, mustEqual, Violation } from './violation.ts';

/*
 * An input changes an audit log of two segments that a gateway has written: each change is five bytes (which, where in
 * two bytes, how much, with what), and for an insertion the bytes that follow. Nobody without the key can make a seal,
 * so a log counts as unchanged only if it is, and nothing is believed that the gateway did not write.
 */

const KEYS = auditKeys(new Secret('0123456789abcdef'.repeat(4)));
const REPLICA = 'r1';
const FIRST_OF_SECOND = 5;
const MOST_CHANGES = 16;
/** The shares of changed logs that are read from files. */
const ONE_OF = 32;
const ONE_OF_COMPRESSED = 4;
/** The change that compresses the first segment. */
const COMPRESS = 7;
/** Bytes of a change before the bytes to insert. */
const CHANGE_BYTES = 5;
const NEWLINE = 0x0a;

interface Log {
  readonly segments: readonly [first: Buffer, second: Buffer];
  readonly head: Head;
}

const LOG = gatewayLog();
/** A record that could follow, and that the gateway did not write. */
const NEXT = `{"seq":${LOG.head.seq + 1},"time":"2026-01-01T00:00:09.000Z","kind":"access"}\n`;
const LINES: ReadonlySet<string> = new Set(
  LOG.segments.flatMap((segment) => segment.toString('latin1').split('\n')),
);

export async function check(input: Buffer, directory: string): Promise<void> {
  checkLine(input.toString('latin1'));
  const { contents, compressed } = changed(input);
  const isUnsealed = !compressed && checkWalks(contents);
  // Reading files takes thirty times as long.
  const sum = input.reduce((total, byte) => total + byte, 0);
  if (isUnsealed || sum % (compressed ? ONE_OF_COMPRESSED : ONE_OF) === 0) {
    await checkFiles(directory, contents, compressed);
  }
}

async function checkFiles(
  directory: string,
  contents: Changed['contents'],
  compressed: boolean,
): Promise<void> {
  const folder = join(directory, REPLICA);
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder);
  const names = [segmentName(1), segmentName(FIRST_OF_SECOND)];
  const files = names.map((name, at) => join(folder, compressed && at === 0 ? compressedName(name) : name));
  for (const [at, file] of files.entries()) writeFileSync(file, contents[at] ?? '');
  const verified = await verify({ directory, keys: [KEYS], heads: [LOG.head], onBytes: () => undefined });
  checkVerdict(verified, contents, compressed);
  await checkBatches(folder);
  await checkBlocks(directory);
}

/**
 * Records 1 to 4 and 5 to 8, the last of which says that the process stopped. The seals of the first segment are over
 * leaves, those of the second one over bytes.
 */
function gatewayLog(): Log {
  let previous = '';
  let seq = 0;
  const record = (kind: string, rest: string): string => {
    seq += 1;
    return `{"seq":${seq},"time":"2026-01-01T00:00:0${seq}.000Z","kind":"${kind}",${rest}}\n`;
  };
  const sealed = (lines: string, first: number): string => {
    const range = { first, last: seq };
    const bytes = Buffer.from(lines);
    const covered = first < FIRST_OF_SECOND ? leavesOf(bytes) : bytes;
    const seal = sealFor(KEYS, { replica: REPLICA, previous }, range, covered);
    previous = seal.hmac;
    return `${lines}${sealLine(seal)}`;
  };
  const segment = (end: () => string): Buffer => {
    const first = seq + 1;
    const header = { replica: REPLICA, first, previous, key: KEYS.id, opened: '2026-01-01T00:00:00.000Z' };
    const opening = sealed(headerLine(header), first);
    const batch = sealed(record('access', '"id":"q"') + record('outcome', '"id":"q","status":200'), first);
    return Buffer.from(opening + batch + sealed(end(), first + 2));
  };
  const segments = [
    segment(() => record('admin', '"event":"reload"') + record('access', '"id":"é"')),
    segment(() => record('access', '"id":"r"') + record('admin', '"event":"stop"')),
  ] as const;
  return { segments, head: { replica: REPLICA, seq, hmac: previous } };
}

interface Changed {
  readonly contents: readonly [first: Buffer, second: Buffer];
  /** True: the first segment is compressed, and was changed before it or afterwards. */
  readonly compressed: boolean;
}

function changed(input: Buffer): Changed {
  const contents: [Buffer, Buffer] = [...LOG.segments];
  let compressed = false;
  let at = 0;
  for (let left = MOST_CHANGES; left > 0 && at + CHANGE_BYTES <= input.length; left -= 1) {
    const change = input[at] ?? 0;
    const inserts = change % 8 === 4;
    const count = input[at + 3] ?? 0;
    const bytes = inserts
      ? input.subarray(at + CHANGE_BYTES, at + CHANGE_BYTES + count)
      : input.subarray(at + 4, at + 5);
    const which = (change >> 3) % 2 === 0 ? 0 : 1;
    if (change === COMPRESS) {
      if (!compressed) contents[0] = zstdCompressSync(contents[0]);
      compressed = true;
    } else {
      contents[which] = changedOnce(contents[which], change % 8, {
        place: input.readUInt16LE(at + 1),
        count,
        bytes,
      });
    }
    at += CHANGE_BYTES + (inserts ? count : 0);
  }
  return { contents, compressed };
}

interface Change {
  readonly place: number;
  readonly count: number;
  readonly bytes: Buffer;
}

function changedOnce(content: Buffer, kind: number, { place, count, bytes }: Change): Buffer {
  const at = place % (content.length + 1);
  const [before, after] = [content.subarray(0, at), content.subarray(at)];
  const lines = content.toString('latin1').split(/(?<=\n)/);
  const line = place % Math.max(1, lines.length);
  switch (kind) {
    case 0: // One byte is another.
      return Buffer.concat([before, bytes, after.subarray(1)]);
    case 1: // Bytes are missing.
      return Buffer.concat([before, after.subarray(count)]);
    case 2: // A line is missing.
      return Buffer.from(lines.toSpliced(line, 1).join(''), 'latin1');
    case 3: // A line of either segment comes once more, or one that could follow.
      return Buffer.from(lines.toSpliced(place % (lines.length + 1), 0, anyLine(count)).join(''), 'latin1');
    case 4: // There are more bytes.
      return Buffer.concat([before, bytes, after]);
    case 5: // The end is missing.
      return before;
    default: // Two lines change places.
      return Buffer.from(lines.with(line, lines[count % lines.length] ?? '').join(''), 'latin1');
  }
}

function anyLine(at: number): string {
  const lines = LOG.segments.flatMap((segment) => segment.toString('latin1').split(/(?<=\n)/));
  return [...lines, NEXT][at % (lines.length + 1)] ?? '';
}

function checkVerdict({ alterations }: Verified, contents: Changed['contents'], compressed: boolean): void {
  for (const { line, message } of alterations) {
    must(
      line >= 0 && message !== '' && !message.includes('undefined'),
      'an alteration has a place and a message',
    );
  }
  must(alterations.length <= 64, 'the number of alterations is bounded');
  if (alterations.length > 0) return;
  const [first, second] = contents;
  checkContents(compressed ? zstdDecompressSync(first) : first, second);
}

function checkContents(plain: Buffer, second: Buffer): void {
  must(plain.equals(LOG.segments[0]), 'a segment that counts as unchanged is');
  must(
    second.subarray(0, LOG.segments[1].length).equals(LOG.segments[1]),
    'the newest segment has all that was sealed',
  );
  const rest = second.subarray(LOG.segments[1].length);
  must(!rest.includes('\n'), 'no line follows after the process stopped');
}

/** Batches that a follower of the log delivers are those of the gateway. */
async function checkBatches(folder: string): Promise<void> {
  const forged: unknown[] = [];
  const batches = new SealedBatches(
    { folder, replica: REPLICA, keys: [KEYS], onForged: (range) => forged.push(range) },
    1,
  );
  try {
    for (let batch = await batches.next(); batch !== undefined; batch = await batches.next()) {
      // Batches of another key are delivered as such.
      if (batch.header.key !== KEYS.id) continue;
      for (const { line, seq } of batch.records) {
        must(
          LINES.has(Buffer.from(line).toString('latin1')),
          'a batch that is delivered is one that was written',
        );
        mustEqual(JSON.parse(line).seq, seq, 'a record has its number');
      }
    }
  } catch (error) {
    checkFileError(error);
  } finally {
    await batches.close();
  }
}

/** Lines that a search finds are those of the gateway. */
async function checkBlocks(directory: string): Promise<void> {
  const ignore = (): void => undefined;
  for await (const searched of searchedSegments({ directory, keys: [KEYS] }, REPLICA, {})) {
    let isKnown = true;
    // A search prints what another key sealed, and says so.
    const onUnreadable = ({ kind }: PlacedFinding): void => {
      if (kind === 'segment-unchecked') isKnown = false;
    };
    const options = { directory, keys: [KEYS] as const, onUnreadable, onNote: ignore, onBytes: ignore };
    for await (const { bytes } of sealedBlocks(options, searched)) {
      for (const [start, end] of linesOf(bytes)) {
        const head = headOf(bytes, start);
        if (!isKnown || head === undefined) continue;
        const line = bytes.toString('latin1', start, end);
        must(LINES.has(line), 'a line under a seal is one that was written');
        const { seq, time, kind } = JSON.parse(line);
        mustEqual(head, { seq, time, kind }, 'the beginning of a record says what the record says');
      }
    }
  }
}

/** A file that cannot be read or decompressed ends a reading, and nothing else does. */
function checkFileError(error: unknown): void {
  if (error instanceof Violation || errorCode(error) === '') throw error;
}

/**
 * A segment is read the same in one block and in a block for each seal, and counts as unchanged only if it is.
 * @returns true if nothing is wrong but that there are lines without a seal
 */
function checkWalks(contents: Changed['contents']): boolean {
  let before: ChainState | undefined;
  let errors = 0;
  let unsealed = 0;
  for (const [at, content] of contents.entries()) {
    const first = at === 0 ? 1 : FIRST_OF_SECOND;
    const whole = content.subarray(0, content.lastIndexOf('\n') + 1);
    const blocks = sealedParts(whole);
    const rest = whole.subarray(blocks.reduce((size, { length }) => size + length, 0));
    const walked = walkedIn([Buffer.concat(blocks)], rest, first, before);
    mustEqual(walkedIn(blocks, rest, first, before), walked, 'blocks make no difference');
    before = walked.state;
    errors += walked.errors.length;
    unsealed += walked.unsealed.lines;
  }
  // A reader of files finds the part of a line at the end of a closed segment.
  const isClosed = contents[0].at(-1) === NEWLINE;
  const isWhole = isClosed && errors + unsealed === 0 && before?.previous === LOG.head.hmac;
  if (isWhole) checkContents(...contents);
  return errors === 0 && unsealed > 0;
}

/** The lines up to each seal. */
function sealedParts(lines: Buffer): Buffer[] {
  const parts: Buffer[] = [];
  let from = 0;
  for (const [start, end] of linesOf(lines)) {
    if (lines.toString('latin1', start, start + SEAL_START.length) !== SEAL_START) continue;
    parts.push(lines.subarray(from, end + 1));
    from = end + 1;
  }
  return parts;
}

function walkedIn(blocks: readonly Buffer[], rest: Buffer, first: number, before: ChainState | undefined) {
  const walk = new ChainWalk({ keys: [KEYS], replica: REPLICA, first, before });
  const batches = [...blocks.flatMap((block) => (walk.isOver ? [] : walk.walk(block)))];
  if (!walk.isOver) batches.push(walk.end(rest));
  const errors = batches.flatMap((batch) => batch.errors);
  const seals = batches.flatMap(({ trust, seal }) => (trust === 'sealed' && seal ? [seal.last] : []));
  const { records, seals: sealed, unsealed, stopped, state } = walk;
  return { errors, seals, records, sealed, unsealed, stopped, state };
}

/** Texts from outside that have a form of their own. */
function checkLine(line: string): void {
  const seal = parseSeal(line);
  if (seal !== undefined)
    mustEqual(parseSeal(sealLine(seal).trimEnd()), seal, 'a seal is read as it is written');
  const head = parseHead(line);
  if (head !== undefined) mustEqual(parseHead(formatHead(head)), head, 'a head is read as it is written');
  const position = parseCursor(line);
  if (position !== undefined)
    mustEqual(parseCursor(cursorOf(position)), position, 'a position is read as it is written');
  const header = parseHeader(line);
  if (header !== undefined)
    mustEqual(parseHeader(headerLine(header).trimEnd()), header, 'a header is read as it is written');
}
