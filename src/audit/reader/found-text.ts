import type { Found, FoundRequest } from './query.ts';

/** A column of the results, with its value for a request and for an event. */
export interface Column {
  readonly name: string;
  readonly of: (found: FoundRequest) => string | number | undefined;
  readonly ofEvent?: (event: Extract<Found, { event: unknown }>['event']) => string | number | undefined;
}

/** The columns of comma-separated values, in their order. */
export const COLUMNS = [
  { name: 'time', of: ({ access }) => access.time, ofEvent: ({ time }) => time },
  { name: 'replica', of: ({ access }) => access.replica, ofEvent: ({ replica }) => replica },
  { name: 'seq', of: ({ access }) => access.seq, ofEvent: ({ seq }) => seq },
  { name: 'requestId', of: ({ access }) => access.requestId },
  { name: 'client', of: ({ access }) => access.client },
  { name: 'address', of: ({ access }) => access.address },
  { name: 'deployment', of: ({ access }) => access.deployment },
  { name: 'site', of: ({ access }) => access.site },
  { name: 'operation', of: ({ access }) => access.operation },
  { name: 'method', of: ({ access }) => access.method },
  { name: 'status', of: ({ access, outcome }) => (outcome ?? access).status },
  { name: 'code', of: ({ access, outcome }) => (outcome ?? access).code },
  { name: 'bytesOut', of: ({ outcome }) => outcome?.bytes.out },
  { name: 'bytesIn', of: ({ outcome }) => outcome?.bytes.in },
  { name: 'durationMs', of: ({ outcome }) => outcome?.durationMs },
  { name: 'upstreamStatus', of: ({ access }) => access.upstream?.status },
  { name: 'attempts', of: ({ access }) => access.upstream?.attempts },
  { name: 'credential', of: ({ access }) => access.credential?.name },
  { name: 'credentialVersion', of: ({ access }) => access.credential?.version },
  { name: 'path', of: ({ access }) => access.path },
  { name: 'parameters', of: ({ access }) => JSON.stringify(access.parameters) },
  { name: 'outcome', of: ({ outcome }) => outcome?.outcome },
  { name: 'event', of: () => undefined, ofEvent: ({ event }) => event },
  { name: 'details', of: () => undefined, ofEvent: detailsOf },
] as const satisfies readonly Column[];

function detailsOf({ seq, time, kind, replica, event, ...details }: Record<string, unknown>): string {
  return JSON.stringify(details);
}

/** One line of JSON for what was found, with its line end. */
export function foundJson(found: Found): string {
  return `${JSON.stringify('event' in found ? found.event : { ...found.access, outcome: found.outcome })}\n`;
}

/** The names of the columns as a line of CSV. */
export function csvHeader(): string {
  return csvLine(COLUMNS.map(({ name }) => name));
}

/** A line of CSV (RFC 4180) for what was found. */
export function foundCsv(found: Found): string {
  return csvLine(
    COLUMNS.map(({ of, ofEvent }: Column) => ('event' in found ? ofEvent?.(found.event) : of(found))),
  );
}

/** A line of CSV (RFC 4180). */
export function csvLine(cells: readonly (string | number | undefined)[]): string {
  return `${cells.map((cell) => (typeof cell === 'string' ? csvCell(cell) : (cell ?? ''))).join(',')}\r\n`;
}

/** Marks formulas as text for spreadsheets, since clients choose the content of records. */
function csvCell(text: string): string {
  const harmless = /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
  return /[",\r\n]/.test(harmless) ? `"${harmless.replaceAll('"', '""')}"` : harmless;
}
