import { Readable, type Writable } from 'node:stream';
import { pipeline } from 'node:stream/promises';

/** Writes lines to stdout with back-pressure. */
export function print(lines: AsyncIterable<string>): Promise<void> {
  return pipeline(Readable.from(inPieces(lines)), process.stdout, { end: false });
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
