import { Readable, type Writable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { type Io, print } from './io.ts';
import type { ReadProgress } from './progress.ts';

/** Prints lines. `progress` is hidden meanwhile. */
export async function printLines(
  io: Io,
  lines: AsyncIterable<string>,
  progress?: ReadProgress,
): Promise<void> {
  for await (const piece of inPieces(lines)) {
    progress?.hide();
    await print(io, piece);
  }
}

/** Writes lines to a stream and ends it. */
export function writeLines(lines: AsyncIterable<string>, target: Writable): Promise<void> {
  return pipeline(Readable.from(inPieces(lines)), target);
}

/** Joins lines, because one write per line is slow. */
async function* inPieces(lines: AsyncIterable<string>): AsyncGenerator<string, void> {
  let piece = '';
  for await (const line of lines) {
    piece += line;
    if (piece.length < 64 * 1024) continue;
    yield piece;
    piece = '';
  }
  if (piece !== '') yield piece;
}
