import type { Found } from '../audit/reader/search.ts';
import { alignColumns } from './table.ts';

export type Format = 'json' | 'csv' | 'table';

interface Column {
  readonly name: string;
  readonly of: (found: Found) => string | number | undefined;
  /** Least width in the table; columns without one are not in the table. */
  readonly width?: number;
}

const COLUMNS: readonly Column[] = [
  { name: 'time', of: ({ access }) => access.time, width: 24 },
  { name: 'replica', of: ({ access }) => access.replica },
  { name: 'seq', of: ({ access }) => access.seq },
  { name: 'requestId', of: ({ access }) => access.requestId, width: 36 },
  { name: 'client', of: ({ access }) => access.client, width: 16 },
  { name: 'address', of: ({ access }) => access.address, width: 15 },
  { name: 'deployment', of: ({ access }) => access.deployment, width: 12 },
  { name: 'site', of: ({ access }) => access.site, width: 12 },
  { name: 'operation', of: ({ access }) => access.operation, width: 12 },
  { name: 'method', of: ({ access }) => access.method, width: 6 },
  { name: 'status', of: ({ access, outcome }) => (outcome ?? access).status, width: 6 },
  { name: 'code', of: ({ access, outcome }) => (outcome ?? access).code, width: 8 },
  { name: 'bytesOut', of: ({ outcome }) => outcome?.bytes.out, width: 9 },
  { name: 'bytesIn', of: ({ outcome }) => outcome?.bytes.in },
  { name: 'durationMs', of: ({ outcome }) => outcome?.durationMs, width: 10 },
  { name: 'upstreamStatus', of: ({ access }) => access.upstream?.status },
  { name: 'attempts', of: ({ access }) => access.upstream?.attempts },
  { name: 'credential', of: ({ access }) => access.credential?.name },
  { name: 'credentialVersion', of: ({ access }) => access.credential?.version },
  { name: 'path', of: ({ access }) => access.path },
  { name: 'parameters', of: ({ access }) => JSON.stringify(access.parameters) },
  { name: 'outcome', of: ({ outcome }) => outcome?.outcome, width: 9 },
];

const SHOWN = COLUMNS.filter(({ width }) => width !== undefined);
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
  if (format === 'csv') yield csvLine(COLUMNS.map(({ name }) => name));
  for await (const each of found) {
    yield format === 'csv' ? csvLine(COLUMNS.map(({ of }) => of(each))) : jsonLine(each);
  }
}

async function* tableParts(found: AsyncIterable<Found>): AsyncGenerator<string, void> {
  let rows = [[...SHOWN.map(({ name }) => name.toUpperCase()), 'REQUEST']];
  for await (const each of found) {
    const cells = SHOWN.map(({ of }) => String(of(each) ?? '') || '-');
    rows.push([...cells, targetOf(each.access)].map(printable));
    if (rows.length < PART) continue;
    yield tableText(rows);
    rows = [];
  }
  yield tableText(rows);
}

function tableText(rows: readonly (readonly string[])[]): string {
  const lines = alignColumns(
    rows,
    SHOWN.map(({ width = 0 }) => width),
  );
  return lines.map((line) => `${line}\n`).join('');
}

function jsonLine({ access, outcome }: Found): string {
  return `${JSON.stringify({ ...access, outcome })}\n`;
}

/** Formats path and parameters for display. */
export function targetOf({ path, parameters }: Pick<Found['access'], 'path' | 'parameters'>): string {
  const query = Object.entries(parameters).map(([name, value]) =>
    value === null ? name : `${name}=${String(value)}`,
  );
  return query.length === 0 ? path : `${path}?${query.join('&')}`;
}

/** Formats a line of CSV (RFC 4180). */
function csvLine(cells: readonly (string | number | undefined)[]): string {
  return `${cells.map((cell) => (typeof cell === 'string' ? csvCell(cell) : (cell ?? ''))).join(',')}\r\n`;
}

/** Marks formulas as text for spreadsheets, since clients choose the content of records. */
function csvCell(text: string): string {
  const harmless = /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
  return /[",\r\n]/.test(harmless) ? `"${harmless.replaceAll('"', '""')}"` : harmless;
}

/** Escapes control characters, and characters that change the direction of text. */
export function printable(text: string): string {
  return text.replace(
    /[\p{Cc}\p{Cf}\u2028\u2029]/gu,
    (character) => `\\u${(character.codePointAt(0) ?? 0).toString(16).padStart(4, '0')}`,
  );
}
