import { lstat } from 'node:fs/promises';
import { join } from 'node:path';
import { ignoreAbsent } from '../../base/expected-errors.ts';
import { parseJson } from '../../base/json.ts';
import { linesOf } from '../line.ts';
import { segmentsIn, stampedName } from './segment.ts';
import { readBlocks } from './segment-reader.ts';

/** A signed head with a time stamp: nothing of it is to be believed before both are checked. */
export interface StampedHead {
  readonly note: string;
  /** The token of RFC 3161 in DER. */
  readonly token: Buffer;
}

/** The line of a signed head and its token (DER), with its line end. */
export function stampLine(note: string, token: Buffer): string {
  return `${JSON.stringify({ checkpoint: note, timestamp: token.toString('base64') })}\n`;
}

/**
 * The time-stamped heads in a file of a segment in their order, with the numbers of their lines from 1; none if there is no file.
 * Other lines, such as one that a crash has torn, are left out.
 * @throws Error if the file cannot be read
 */
export async function* stampedHeads(
  path: string,
): AsyncGenerator<readonly [line: number, head: StampedHead], void> {
  let line = 0;
  try {
    for await (const { bytes } of readBlocks(path)) {
      for (const [start, end] of linesOf(bytes)) {
        line += 1;
        const head = stampOf(bytes.toString('utf8', start, end));
        if (head !== undefined) yield [line, head];
      }
    }
  } catch (error) {
    ignoreAbsent(error);
  }
}

/** When the newest time stamp in the folder was stored, in Unix milliseconds; 0: there is none. */
export async function lastStampedAt(folder: string): Promise<number> {
  for (const { first } of (await segmentsIn(folder)).reverse()) {
    const found = await lstat(join(folder, stampedName(first))).catch(ignoreAbsent);
    if (found !== undefined) return found.mtimeMs;
  }
  return 0;
}

function stampOf(line: string): StampedHead | undefined {
  const { checkpoint, timestamp } = Object(parseJson(line)) as Readonly<Record<string, unknown>>;
  const token = Buffer.from(String(timestamp), 'base64');
  const note = String(checkpoint);
  return stampLine(note, token) === `${line}\n` ? { note, token } : undefined;
}
