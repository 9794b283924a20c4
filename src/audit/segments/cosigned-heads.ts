import { constants } from 'node:fs';
import { lstat, open } from 'node:fs/promises';
import { join } from 'node:path';
import { ignoreAbsent } from '../../base/expected-errors.ts';
import { type Checkpoint, noteOfLine, parseCheckpoint } from '../checkpoint.ts';
import { linesOf, NEWLINE } from '../line.ts';
import { cosignedName } from './segment.ts';
import { NotRegularError, readBlocks } from './segment-reader.ts';

const { O_APPEND, O_CREAT, O_NOFOLLOW, O_NONBLOCK, O_RDWR } = constants;

/** A head that a witness may have cosigned: nothing of it is to be believed before its signatures are checked. */
export interface CosignedHead {
  readonly checkpoint: Checkpoint;
  readonly note: string;
}

/**
 * Appends the line of a cosigned or time-stamped head to the file with those of its segment, durably.
 * @throws Error of the file system
 */
export async function appendHead(folder: string, name: string, line: string): Promise<void> {
  const path = join(folder, name);
  const handle = await open(path, O_RDWR | O_CREAT | O_APPEND | O_NOFOLLOW | O_NONBLOCK, 0o600);
  try {
    const found = await handle.stat();
    if (!found.isFile()) throw new NotRegularError(path);
    const { size } = found;
    const { buffer } = await handle.read(Buffer.alloc(1, NEWLINE), 0, 1, Math.max(0, size - 1));
    // A line that a crash has torn must not take the next one with it.
    await handle.appendFile(buffer[0] === NEWLINE ? line : `\n${line}`);
    await handle.datasync();
  } finally {
    await handle.close();
  }
}

/**
 * The cosigned heads of a segment in their order, as they are at the first call; none if there is no file. Other lines
 * are left out.
 * @throws Error if the file cannot be read
 */
export async function* cosignedHeads(folder: string, segment: number): AsyncGenerator<CosignedHead, void> {
  const path = join(folder, cosignedName(segment));
  try {
    // Heads that come later are of records that the reader may have missed.
    let { size: left } = await lstat(path);
    for await (const { bytes } of readBlocks(path)) {
      yield* cosignedHeadsIn(bytes.subarray(0, left));
      left -= bytes.length;
      if (left <= 0) return;
    }
  } catch (error) {
    ignoreAbsent(error);
  }
}

/** The cosigned heads in lines; what is none is left out. */
export function* cosignedHeadsIn(bytes: Buffer): Generator<CosignedHead, void> {
  for (const [start, end] of linesOf(bytes)) {
    const note = noteOfLine(bytes.toString('utf8', start, end));
    const checkpoint = note === undefined ? undefined : parseCheckpoint(note);
    if (note !== undefined && checkpoint !== undefined) yield { checkpoint, note };
  }
}
