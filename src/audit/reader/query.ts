import { isIPv4 } from 'node:net';
import { errorKinds } from '../../base/errors.ts';
import { nearestName } from '../../base/nearest-name.ts';
import { parseAddress } from '../../base/network.ts';
import { printable } from '../../base/printable.ts';
import { parseDuration, parseInstant } from '../../base/units.ts';
import type { LineHead } from '../line.ts';
import { isPseudonym, PSEUDONYM_MARK, PSEUDONYM_START } from '../pseudonym.ts';
import { parseProcessName } from '../replica-name.ts';
import { Pattern } from './byte-matcher.ts';
import { NO_PSEUDONYMS, type PseudonymReader } from './pseudonym-reader.ts';
import type { AccessLine, EndLine, EventLine, OutcomeLine } from './results.ts';
import { type Undecided, unreadParameters } from './undecided.ts';

const TIME_FORMS =
  'a time is 2026-03, 2026-03-01, 2026-03-01T08:00:00Z or "2d ago"; UTC unless it says otherwise';

/** Kinds of records that a search returns: requests, events of the gateway itself (admin records), or both. */
export const KINDS = ['requests', 'events', 'all'] as const;

/** The criteria of a search; an absent one matches every request. */
export interface Query {
  /** Absent: requests. */
  readonly kind?: (typeof KINDS)[number] | undefined;
  /** A replica with its workers (`gateway-1`), or one worker (`gateway-1@2`). */
  readonly replica?: string | undefined;
  readonly requestId?: string | undefined;
  /** Forms of the client's address as it may have been recorded: see `addressForms`. */
  readonly address?: readonly string[] | undefined;
  readonly client?: string | undefined;
  readonly deployment?: string | undefined;
  readonly site?: string | undefined;
  readonly operation?: string | undefined;
  /** The value of a parameter, or an item of a list in it. */
  readonly id?: string | undefined;
  /** Status of the response as it ended. */
  readonly status?: StatusRange | undefined;
  /** Code of the error that the response ended with; empty: of none. */
  readonly code?: string | undefined;
  /** Outcome of the upstream's response. */
  readonly outcome?: string | undefined;
  /** Part of any value, in any case. */
  readonly text?: string | undefined;
  /** RFC 3339 in UTC with milliseconds: inclusive, and exclusive. */
  readonly since?: string | undefined;
  readonly until?: string | undefined;
}

interface StatusRange {
  readonly from: number;
  readonly to: number;
}

/** Later than the time of every record. */
export const LATEST = '9999-12-31T23:59:59.999Z';
/** How long after a response began its outcome is expected, in milliseconds of the log's own time. */
export const OUTCOME_WITHIN_MS = 86_400_000;
/** The same after the `start` of a process: its own first requests can be before it, the others ended with another. */
export const OUTCOME_AFTER_START_MS = 3_600_000;
/** The same for a response that was whole at its head: it has an outcome only if the client did not take all of it. */
export const CORRECTION_WITHIN_MS = 300_000;
/** Requests of one process that are kept until their outcome or their turn; then the oldest goes on without one. */
export const MOST_OPEN = 10_000;

/** An access record as it is in the log, with the end of the response if it was whole at its head. */
export type AccessRecord = AccessLine & Partial<EndLine>;

/** Takes the end of the response out of its access record, so that a search returns the same for both forms. */
export function requestOf({ outcome, bytes, durationMs, ...access }: AccessRecord): FoundRequest {
  if (bytes === undefined || durationMs === undefined) return { access, outcome: undefined };
  const { time, status, code } = access;
  const named = outcome === undefined ? {} : { outcome };
  return { access, outcome: { time, status, code, ...named, bytes, durationMs } };
}

/** A request that matches, with its outcome; undefined: the log does not have it. */
export interface FoundRequest {
  readonly access: AccessLine;
  readonly outcome: OutcomeLine | undefined;
}

interface FoundEvent {
  readonly event: EventLine;
}

export type Found = FoundRequest | FoundEvent;

/** The time of the request's response, or of the event. */
export function timeOf(found: Found): string {
  return 'event' in found ? found.event.time : found.access.time;
}

/** Patterns that are looked for one by one; with more, every record with a pseudonym is read. */
const MAX_PATTERNS = 64;

/** Fields that are in a record as one JSON string, the most selective one first. */
const FIELDS = ['requestId', 'client', 'site', 'operation', 'deployment'] as const;

/** Criteria that no event meets. */
export const REQUEST_CRITERIA = [...FIELDS, 'address', 'id', 'status', 'code', 'outcome'] as const;

/** Groups of patterns: the line of every record that matches, or may, has at least one of each group. */
export function patternsOf(
  { id, address, ...query }: Query,
  byValue: readonly string[] = [],
  pseudonyms = NO_PSEUDONYMS,
): Pattern[][] {
  const exact = (text: string): Pattern => new Pattern(text);
  if (query.kind === 'events') return [[exact('"kind":"admin"')]];
  const fields = FIELDS.flatMap((field) => {
    const value = query[field];
    return value === undefined ? [] : [[exact(`"${field}":${JSON.stringify(value)}`)]];
  });
  return [
    ...(id === undefined ? [] : [idPatterns(id, byValue).map(exact)]),
    ...fields,
    ...(address === undefined ? [] : [addressPatterns(address, pseudonyms)]),
  ];
}

/** Texts of which one is in every record that holds the identifier, or may. */
export function idPatterns(id: string, byValue: readonly string[]): string[] {
  const names = byValue.map((name) => `${JSON.stringify(name)}:null`);
  // With its quote, which is all over a record, it would take five times as long to find.
  return [JSON.stringify(id).slice(1, -1), '"cut":true', PSEUDONYM_MARK, ...names];
}

/** With few keys, a pseudonym under one of them is looked for as it is, and other addresses under it are passed by. */
function addressPatterns(forms: readonly string[], pseudonyms: PseudonymReader): Pattern[] {
  const all = [...forms, ...pseudonyms.formsOf(forms)];
  const isFew = all.length <= MAX_PATTERNS;
  return [
    ...(isFew ? all : forms).map((form) => new Pattern(`"address":${JSON.stringify(form)}`)),
    new Pattern(`"address":${PSEUDONYM_START}`, isFew ? pseudonyms : undefined),
  ];
}

/**
 * The forms in which the log may have an address: as it was given, as the gateway writes it, and of a socket that takes
 * IPv4 and IPv6 (`::ffff:192.0.2.7`). A pseudonym is its own form.
 */
export function addressForms(address: string): string[] {
  const canonical = parseAddress(address)?.toString();
  if (canonical === undefined) return [address];
  return [...new Set([address, canonical, ...(isIPv4(canonical) ? [`::ffff:${canonical}`] : [])])];
}

/** True if the record is in the time range of the query. */
export function isWithin({ since, until }: Query, { time }: Pick<LineHead, 'time'>): boolean {
  return (since === undefined || time >= since) && (until === undefined || time < until);
}

/** Whether the request matches, apart from its time, how the response ended, and the text. `byValue`: `audit.parameters`. */
export function matches(
  { address, id, ...query }: Query,
  access: AccessLine,
  byValue: readonly string[],
): boolean | Undecided {
  if (FIELDS.some((field) => query[field] !== undefined && query[field] !== access[field])) return false;
  const verdicts = [isFrom(access, address), holdsId(access, id, byValue)];
  return verdicts.includes(false) ? false : (verdicts.find((each) => each !== true) ?? true);
}

function isFrom({ address }: AccessLine, forms: readonly string[] | undefined): boolean | Undecided {
  if (forms === undefined || forms.includes(address)) return true;
  return isPseudonym(address) && !forms.some(isPseudonym) && 'hidden';
}

function holdsId(
  access: AccessLine,
  id: string | undefined,
  byValue: readonly string[],
): boolean | Undecided {
  if (id === undefined) return true;
  const values = Object.values(access.parameters).flat();
  // Anybody may have written a record whose key is not at hand, with a number in it.
  const holds = (value: unknown): boolean =>
    value === id || (typeof value === 'string' && itemsIn(value).includes(id));
  if (values.some(holds)) return true;
  return unreadParameters(access, byValue) ?? false;
}

/** True if the query asks for requests. */
export function asksRequests({ kind = 'requests' }: Query): boolean {
  return kind !== 'events';
}

/** True if the query asks for events, and for nothing that only requests have. */
export function asksEvents({ kind = 'requests', ...query }: Query): boolean {
  return kind !== 'requests' && REQUEST_CRITERIA.every((each) => query[each] === undefined);
}

/** True if the event matches, apart from its time. */
export function matchesEvent({ text }: Query, event: EventLine): boolean {
  return text === undefined || holdsText(event, text.toLowerCase());
}

/** True if the response ended as the query asks. `outcome`: undefined if the log does not have it. */
export function hasEnded(query: Query, access: AccessLine, outcome: OutcomeLine | undefined): boolean {
  const { status: wanted } = query;
  const { status, code } = outcome ?? access;
  if (wanted !== undefined && (status < wanted.from || status > wanted.to)) return false;
  if (query.code !== undefined && query.code !== code) return false;
  return query.outcome === undefined || query.outcome === outcome?.outcome;
}

/** True if the response ended as the query asks, or the access record does not say how. */
export function mayEnd(query: Query, record: AccessRecord): boolean {
  const { access, outcome } = requestOf(record);
  return outcome === undefined || hasEnded(query, access, outcome);
}

/** Whether the text is in the request or its outcome. */
export function hasText(
  { text }: Query,
  { access, outcome }: FoundRequest,
  byValue: readonly string[],
): boolean | Undecided {
  if (text === undefined || holdsText([access, outcome], text.toLowerCase())) return true;
  return isPseudonym(access.address) ? 'hidden' : (unreadParameters(access, byValue) ?? false);
}

/** The items of a list, quoted or not. The gateway also lets malformed lists pass, so none is rejected here. */
function itemsIn(value: string): string[] {
  const quoted = Array.from(value.matchAll(/'([^']*)'?/g), ([, item = '']) => item);
  return [...quoted, ...value.split(',').map((item) => item.trim())];
}

function holdsText(value: unknown, text: string): boolean {
  if (typeof value === 'string') return value.toLowerCase().includes(text);
  if (typeof value === 'number') return String(value).includes(text);
  return value instanceof Object && Object.values(value).some((each) => holdsText(each, text));
}

/**
 * Checks an address to search for: an IP address, or one as a log with pseudonyms has it.
 * @throws RangeError with the right form
 */
export function addressCriterion(text: string): string {
  if (parseAddress(text) !== undefined || isPseudonym(text)) return text;
  throw new RangeError('an address is 192.0.2.7, 2001:db8::7, or ps1:… as the log has it');
}

/**
 * Reads a status or a range of them: `404`, `4xx` or `400-499`.
 * @throws RangeError with the right form
 */
export function statusCriterion(text: string): StatusRange {
  const [, exact, hundred, from, to] = /^(?:([1-5]\d\d)|([1-5])xx|([1-5]\d\d)-([1-5]\d\d))$/.exec(text) ?? [];
  if (exact !== undefined) return { from: Number(exact), to: Number(exact) };
  if (hundred !== undefined) return { from: Number(hundred) * 100, to: Number(hundred) * 100 + 99 };
  if (from === undefined || to === undefined) throw new RangeError('a status is 404, 4xx or 400-499');
  return { from: Number(from), to: Number(to) };
}

/**
 * Checks an error code; the empty one is that of requests without an error.
 * @throws RangeError if no response can have it, with the nearest one
 */
export function codeCriterion(text: string): string {
  const codes = errorKinds().map(([code]) => code);
  if (text === '' || codes.some((code) => code === text)) return text;
  const nearest = nearestName(text, codes);
  const hint =
    nearest === undefined ? 'docs/configure/errors.md lists them' : `the nearest one is ${nearest}`;
  throw new RangeError(`there is no such error code; ${hint}`);
}

/**
 * Checks the name of a replica or of one worker.
 * @throws RangeError with the right form
 */
export function replicaCriterion(text: string): string {
  if (parseProcessName(text) !== undefined) return text;
  throw new RangeError('a replica is gateway-1, or one worker of it gateway-1@2');
}

/**
 * Returns the start of a time or period as RFC 3339 in UTC, with milliseconds.
 * @throws RangeError with the forms of a time
 */
export function instantAt(value: string): string {
  return rangeOf(value).from;
}

/**
 * Returns the end of a month or day, or the time itself, as RFC 3339 in UTC.
 * @throws RangeError
 */
export function instantAfter(value: string): string {
  return rangeOf(value).after;
}

function rangeOf(value: string): { from: string; after: string } {
  const [, year, month, day] = /^(\d{4})-(\d\d)(?:-(\d\d))?$/.exec(value) ?? [];
  if (year === undefined || month === undefined) {
    const then = instant(value);
    return { from: then, after: then };
  }
  const from = new Date(parsed(`${year}-${month}-${day ?? '01'}`, parseInstant));
  const after = new Date(from);
  if (day === undefined) after.setUTCMonth(from.getUTCMonth() + 1);
  else after.setUTCDate(from.getUTCDate() + 1);
  return { from: textOf(from), after: textOf(after) };
}

function instant(value: string): string {
  const [, period] = /^(\d+[a-z]+)(?: ago)?$/.exec(value) ?? [];
  if (period !== undefined) return new Date(Date.now() - parsed(period, parseDuration)).toISOString();
  const zoned = /^\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d(\.\d+)?)?$/.test(value) ? `${value}Z` : value;
  const rfc3339 = /^\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:\d\d)$/.test(zoned);
  // Date accepts the 31st of February as the 3rd of March.
  if (rfc3339) parsed(value.slice(0, 10), parseInstant);
  const milliseconds = rfc3339 ? Date.parse(zoned) : Number.NaN;
  if (Number.isNaN(milliseconds)) throw new RangeError(TIME_FORMS);
  return textOf(new Date(milliseconds));
}

/** A year of five digits begins with a sign, so as a text it would be before every time of a record. */
function textOf(time: Date): string {
  return time.getUTCFullYear() > 9999 ? LATEST : time.toISOString();
}

function parsed(value: string, parse: (text: string) => number): number {
  try {
    return parse(value);
  } catch {
    throw new RangeError(TIME_FORMS);
  }
}

/** A column of the results, with its value for a request and for an event. */
interface Column {
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
  const object = 'event' in found ? found.event : { ...found.access, outcome: found.outcome };
  return `${printable(JSON.stringify(object))}\n`;
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

/** Marks formulas as text for spreadsheets, and escapes control characters: clients choose the content of records. */
function csvCell(text: string): string {
  const shown = text.replace(/[^\t\n]+/g, printable);
  const harmless = /^[=+\-@\t\uff0b\uff0d\uff1d\uff20]/.test(shown) ? `'${shown}` : shown;
  return /[",\n]/.test(harmless) ? `"${harmless.replaceAll('"', '""')}"` : harmless;
}
