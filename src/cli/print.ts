import { Readable, type Writable } from 'node:stream';
import { pipeline } from 'node:stream/promises';

/** Lines to stdout, as fast as it takes them. */
export function print(lines: AsyncIterable<string>): Promise<void> {
  return pipeline(Readable.from(inPieces(lines)), process.stdout, { end: false });
}

/** Lines into a stream that ends with them. */
export function printTo(lines: AsyncIterable<string>, target: Writable): Promise<void> {
  return pipeline(Readable.from(inPieces(lines)), target);
}

/** A write for each line would be slow. */
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
