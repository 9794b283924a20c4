import { COLUMNS, csvHeader, type Found, foundCsv, foundJson } from '../audit/reader/query.ts';
import type { AccessLine } from '../audit/reader/results.ts';
import { printable } from '../base/printable.ts';
import type { LogReading } from './audit-log.ts';
import { type Io, print } from './io.ts';
import { tableText } from './table.ts';

export type Format = 'json' | 'csv' | 'table';

/** The columns of the table with their least widths. */
const WIDTHS: Readonly<Record<string, number>> = {
  time: 24,
  requestId: 36,
  client: 16,
  address: 15,
  deployment: 12,
  site: 12,
  operation: 12,
  method: 6,
  status: 6,
  code: 8,
  bytesOut: 9,
  durationMs: 10,
  outcome: 9,
};

const SHOWN = COLUMNS.filter(({ name }) => name in WIDTHS);
const LEAST_WIDTHS = SHOWN.map(({ name }) => WIDTHS[name] ?? 0);
/** Number of requests in one part of the table; columns are aligned within a part. */
const PART = 200;

/**
 * Formats requests as text with line ends, in pieces of one line or more; the header is printed even if there
 * are no requests.
 */
export async function* formatted(found: AsyncIterable<Found>, format: Format): AsyncGenerator<string, void> {
  if (format === 'table') {
    yield* tableParts(found);
    return;
  }
  if (format === 'csv') yield csvHeader();
  for await (const each of found) {
    yield format === 'csv' ? foundCsv(each) : foundJson(each);
  }
}

async function* tableParts(found: AsyncIterable<Found>): AsyncGenerator<string, void> {
  let rows = [[...SHOWN.map(({ name }) => name.toUpperCase()), 'REQUEST']];
  for await (const each of found) {
    if ('event' in each) continue;
    const cells = SHOWN.map(({ of }) => String(of(each) ?? '') || '-');
    rows.push([...cells, targetOf(each.access)].map(printable));
    if (rows.length < PART) continue;
    yield tableText(rows, LEAST_WIDTHS);
    rows = [];
  }
  yield tableText(rows, LEAST_WIDTHS);
}

/** Formats path and parameters for display. */
export function targetOf({ path, parameters }: Pick<AccessLine, 'path' | 'parameters'>): string {
  const query = Object.entries(parameters).map(([name, value]) =>
    value === null ? name : `${name}=${String(value)}`,
  );
  return query.length === 0 ? path : `${path}?${query.join('&')}`;
}

/** Prints lines. The progress of `reading` is hidden meanwhile. */
export async function printLines(io: Io, lines: AsyncIterable<string>, reading?: LogReading): Promise<void> {
  for await (const piece of inPieces(lines)) {
    reading?.hide();
    await print(io, piece);
  }
}

/** Joins lines, because one write per line is slow. */
export async function* inPieces(lines: AsyncIterable<string>): AsyncGenerator<string, void> {
  let piece = '';
  for await (const line of lines) {
    piece += line;
    if (piece.length < 64 * 1024) continue;
    yield piece;
    piece = '';
  }
  if (piece !== '') yield piece;
}
