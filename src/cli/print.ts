import { once } from 'node:events';
import { Readable, type Writable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import type { ReadProgress } from './progress.ts';

/** Writes lines to stdout with back-pressure. `progress` is hidden meanwhile. */
export async function print(lines: AsyncIterable<string>, progress?: ReadProgress): Promise<void> {
  for await (const piece of inPieces(lines)) {
    progress?.hide();
    if (!process.stdout.write(piece)) await once(process.stdout, 'drain');
  }
}

/** Writes lines to a stream and ends it. */
export function printTo(lines: AsyncIterable<string>, target: Writable): Promise<void> {
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
