import { isPseudonym, PSEUDONYM_START } from '../pseudonym.ts';

/*
 * Reads what usage counts from the lines of records, without parsing them as JSON, which would take five times as long.
 * The lines have the order of `RecordText`. Within a JSON string every quote is escaped, so no text of a client can hold
 * the quotes of a marker below, and no line end is in a line.
 */

/** The text before each value of an access record, in their order, and before the parameters. */
const TEXT_MARKERS = [
  ...['"client":"', '","address":"', '","deployment":"', '","site":"', '","operation":"', '","method":"'],
  '","parameters":{',
];
const STATUS = '},"status":';
const CUT_STATUS = '},"cut":true,"status":';
const [BYTES, OUT] = ['"bytes":{"in":', ',"out":'];
const [CREDENTIAL, VERSION] = ['"credential":{"name":"', '","version":'];
const [ACCESS, OUTCOME_STATUS] = [',"access":', ',"status":'];
/** Of a number that is exact. */
const MAX_DIGITS = 16;

/** The fields by which requests can be grouped, apart from their status. */
export const NAME_FIELDS = ['client', 'deployment', 'site', 'operation', 'credential', 'address'] as const;

export type NameField = (typeof NAME_FIELDS)[number];

/** How a response ended. */
interface ScannedEnd {
  readonly status: number;
  readonly bytesIn: number;
  readonly bytesOut: number;
}

/**
 * An access record. Texts are as in the line: JSON without its quotes, one character for each byte. They keep the text of
 * the block in memory, so what is kept of them has to be copied: `copyOf`.
 */
export interface ScannedAccess extends ScannedEnd, Readonly<Record<NameField, string>> {
  /** The members of the object with the parameters. */
  readonly parameters: string;
  /** True: path or parameters were too long to be recorded whole. */
  readonly cut: boolean;
  /** False: the record does not have the bytes, so an outcome record follows. */
  readonly hasEnd: boolean;
}

/** Reads the access record that begins at `start`; undefined: no gateway wrote it. */
export function scanAccess(text: string, start: number): ScannedAccess | undefined {
  const line = lineAt(text, start);
  const texts: string[] = [];
  let from = 0;
  for (const marker of TEXT_MARKERS) {
    const at = line.indexOf(marker, from);
    if (at === -1) return undefined;
    texts.push(line.slice(from, at));
    from = at + marker.length;
  }
  const plain = line.indexOf(STATUS, from);
  const cut = plain === -1 ? line.indexOf(CUT_STATUS, from) : -1;
  const close = Math.max(plain, cut);
  const status = numberAt(line, close + (cut === -1 ? STATUS : CUT_STATUS).length);
  if (close === -1 || Number.isNaN(status)) return undefined;
  const [, client = '', address = '', deployment = '', site = '', operation = ''] = texts;
  const bytes = bytesIn(line, close);
  return {
    client,
    address,
    deployment,
    site,
    operation,
    credential: credentialIn(line, close),
    parameters: line.slice(from, close),
    cut: cut !== -1,
    status,
    hasEnd: bytes !== undefined,
    bytesIn: bytes?.[0] ?? 0,
    bytesOut: bytes?.[1] ?? 0,
  };
}

/** The rest of a line: a search in it does not go on to the others. */
function lineAt(text: string, start: number): string {
  const end = text.indexOf('\n', start);
  return text.slice(start, end === -1 ? text.length : end);
}

/** The digits from there on as a number; NaN: there are none. */
function numberAt(line: string, from: number): number {
  return Number.parseInt(line.slice(from, from + MAX_DIGITS), 10);
}

/** Bytes in and out; undefined: the record does not have them. */
function bytesIn(line: string, from: number): readonly [number, number] | undefined {
  const at = line.indexOf(BYTES, from);
  const out = at === -1 ? -1 : line.indexOf(OUT, at);
  if (out === -1) return undefined;
  return [numberAt(line, at + BYTES.length), numberAt(line, out + OUT.length)];
}

function credentialIn(line: string, from: number): string {
  const at = line.indexOf(CREDENTIAL, from);
  const end = at === -1 ? -1 : line.indexOf(VERSION, at);
  return end === -1 ? '' : line.slice(at + CREDENTIAL.length, end);
}

/** True if an address or parameter may be a pseudonym. */
export function mayHidePseudonyms({ address, parameters }: ScannedAccess): boolean {
  return address.startsWith('ps1:') || parameters.includes(PSEUDONYM_START);
}

interface ScannedOutcome extends ScannedEnd {
  /** The number of its access record. */
  readonly access: number;
}

/** Reads the outcome record that begins at `start`; undefined: no gateway wrote it. */
export function scanOutcome(text: string, start: number): ScannedOutcome | undefined {
  const line = lineAt(text, start);
  const at = line.indexOf(ACCESS);
  const status = at === -1 ? -1 : line.indexOf(OUTCOME_STATUS, at);
  const bytes = status === -1 ? undefined : bytesIn(line, status);
  if (bytes === undefined) return undefined;
  return {
    access: numberAt(line, at + ACCESS.length),
    status: numberAt(line, status + OUTCOME_STATUS.length),
    bytesIn: bytes[0],
    bytesOut: bytes[1],
  };
}

/** The text with memory of its own. */
export function copyOf(raw: string): string {
  return Buffer.from(raw, 'latin1').toString('latin1');
}

/** The value of a text as a line has it. */
export function plainText(raw: string): string {
  return JSON.parse(`"${Buffer.from(raw, 'latin1').toString()}"`);
}

/** The inverse of `plainText`. */
export function rawText(value: string): string {
  return Buffer.from(JSON.stringify(value).slice(1, -1)).toString('latin1');
}

/**
 * The number of items in the lists of a parameter, as the members of the object of parameters have it; `member`: its name
 * as JSON with a colon. -1: it is recorded by name only; -2: under a key that is not at hand.
 */
export function itemsIn(parameters: string, member: string): number {
  const start = memberStart(parameters, member);
  if (start === -1) return 0;
  const value = start + member.length;
  switch (parameters.charAt(value)) {
    case '"':
      return itemsOfValue(parameters.slice(value + 1, stringEnd(parameters, value + 1)));
    case '[': {
      let items = 0;
      for (let at = value + 1; parameters.charAt(at) === '"'; ) {
        const end = stringEnd(parameters, at + 1);
        const more = itemsOfValue(parameters.slice(at + 1, end));
        if (more < 0) return more;
        items += more;
        // Behind the quote and a comma.
        at = end + 2;
      }
      return items;
    }
    default:
      return -1;
  }
}

/** Index of the member; -1: there is none. A name that ends with the quote of the searched one is another. */
function memberStart(parameters: string, member: string): number {
  for (let at = parameters.indexOf(member); at !== -1; at = parameters.indexOf(member, at + 1)) {
    if (at === 0 || parameters.charAt(at - 1) === ',') return at;
  }
  return -1;
}

/** Index of the quote that ends the JSON string from `start` on. */
function stringEnd(text: string, start: number): number {
  for (let quote = text.indexOf('"', start); quote !== -1; quote = text.indexOf('"', quote + 1)) {
    let slashes = 0;
    while (text.charAt(quote - 1 - slashes) === '\\') slashes += 1;
    if (slashes % 2 === 0) return quote;
  }
  return text.length;
}

function itemsOfValue(value: string): number {
  return isPseudonym(value) ? -2 : itemsOfList(value);
}

/** Items in quotes; without quotes, items between commas. A malformed list has some, too: it was passed on. */
function itemsOfList(list: string): number {
  const quotes = occurrences(list, "'");
  if (quotes > 0) return Math.ceil(quotes / 2);
  return list === '' ? 0 : occurrences(list, ',') + 1;
}

function occurrences(text: string, mark: string): number {
  let found = 0;
  for (let at = text.indexOf(mark); at !== -1; at = text.indexOf(mark, at + 1)) found += 1;
  return found;
}
