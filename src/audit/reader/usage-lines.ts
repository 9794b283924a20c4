import { isPseudonym, PSEUDONYM_START } from '../pseudonym.ts';

/*
 * Reads what usage counts from the lines of records, without parsing them as JSON, which would take three times as long.
 * The lines have the order of `RecordText`. Within a JSON string every quote is escaped, so no text of a client can hold
 * the quotes of a marker below.
 */

const SEQ_LENGTH = '{"seq":'.length;
const TIME_AFTER = ',"time":"'.length;
const DAY_LENGTH = '2026-01-01'.length;
const TIME_LENGTH = '2026-01-01T00:00:00.000Z'.length;
const KIND_AFTER = TIME_AFTER + TIME_LENGTH + '","kind":"'.length;
const CLIENT = '"client":"';
const ADDRESS = '","address":"';
const DEPLOYMENT = '","deployment":"';
const SITE = '","site":"';
const OPERATION = '","operation":"';
const METHOD = '","method":"';
const PARAMETERS = '","parameters":{';
const STATUS = '},"status":';
const CUT_STATUS = '},"cut":true,"status":';
const CREDENTIAL = '"credential":{"name":"';
const VERSION = '","version":"';
const BYTES = '"bytes":{"in":';
const OUT = ',"out":';
const ACCESS = ',"access":';
const OUTCOME_STATUS = ',"status":';
const DIGIT_0 = 48;
const DIGIT_9 = 57;

/** The fields by which requests can be grouped, apart from their status. */
export const NAME_FIELDS = ['client', 'deployment', 'site', 'operation', 'credential', 'address'] as const;

export type NameField = (typeof NAME_FIELDS)[number];

/** A line that begins like a record, and is none that a gateway wrote. */
export class UnreadableLine extends Error {}

/**
 * The record that was read last. Texts are as in the line: JSON without its quotes, one character for each byte. They
 * keep the text of the block in memory, so what is kept of them has to be copied: `copyOf`.
 */
export class RecordScan {
  seq = 0;
  /** `o`: an outcome; `c`: of a request; `d`: an admin record. It is the second letter of the kind. */
  kind = '';
  time = '';
  status = 0;
  /** -1: the record does not have them. */
  bytesIn = 0;
  bytesOut = 0;
  /** Number of the access record of an outcome. */
  access = 0;
  /** True: path or parameters were too long to be recorded whole. */
  cut = false;
  client = '';
  address = '';
  deployment = '';
  site = '';
  operation = '';
  credential = '';
  /** The members of the object with the parameters. */
  parameters = '';

  /** Reads the number, time and kind of the record that begins at `start`. */
  readHead(text: string, start: number): void {
    const end = text.indexOf(',', start + SEQ_LENGTH);
    this.seq = numberAt(text, start + SEQ_LENGTH);
    this.time = text.slice(end + TIME_AFTER, end + TIME_AFTER + TIME_LENGTH);
    this.kind = text.charAt(end + KIND_AFTER + 1);
  }

  /** True if an address or parameter may be one. */
  get hasPseudonyms(): boolean {
    return this.address.startsWith('ps1:') || this.parameters.includes(PSEUDONYM_START);
  }

  get day(): string {
    return this.time.slice(0, DAY_LENGTH);
  }

  /**
   * Reads the access record from `start` to `end`.
   * @throws UnreadableLine
   */
  readAccess(text: string, start: number, end: number): void {
    const client = text.indexOf(CLIENT, start);
    const address = text.indexOf(ADDRESS, client);
    const deployment = text.indexOf(DEPLOYMENT, address);
    const site = text.indexOf(SITE, deployment);
    const operation = text.indexOf(OPERATION, site);
    const method = text.indexOf(METHOD, operation);
    const parameters = text.indexOf(PARAMETERS, method);
    // A marker that is missing makes a later search begin at the start of the text, or end in another line.
    const isOrdered =
      start < client &&
      client < address &&
      address < deployment &&
      deployment < site &&
      site < operation &&
      operation < method &&
      method < parameters &&
      parameters < end;
    if (!isOrdered) throw new UnreadableLine();
    this.client = text.slice(client + CLIENT.length, address);
    this.address = text.slice(address + ADDRESS.length, deployment);
    this.deployment = text.slice(deployment + DEPLOYMENT.length, site);
    this.site = text.slice(site + SITE.length, operation);
    this.operation = text.slice(operation + OPERATION.length, method);
    this.#readRest(text, parameters + PARAMETERS.length, end);
  }

  #readRest(text: string, parameters: number, end: number): void {
    let close = text.indexOf(STATUS, parameters);
    let marker = STATUS;
    if (close === -1 || close > end) {
      close = text.indexOf(CUT_STATUS, parameters);
      marker = CUT_STATUS;
    }
    if (close === -1 || close > end) throw new UnreadableLine();
    this.cut = marker === CUT_STATUS;
    this.parameters = text.slice(parameters, close);
    const rest = text.slice(close + marker.length, end);
    this.status = numberAt(rest, 0);
    const credential = rest.indexOf(CREDENTIAL);
    this.credential =
      credential === -1 ? '' : rest.slice(credential + CREDENTIAL.length, rest.indexOf(VERSION, credential));
    this.#readBytes(rest);
  }

  /**
   * Reads the outcome record from `start` to `end`.
   * @throws UnreadableLine
   */
  readOutcome(text: string, start: number, end: number): void {
    const access = text.indexOf(ACCESS, start);
    if (access === -1 || access > end) throw new UnreadableLine();
    const rest = text.slice(access + ACCESS.length, end);
    this.access = numberAt(rest, 0);
    this.status = numberAt(rest, rest.indexOf(OUTCOME_STATUS) + OUTCOME_STATUS.length);
    this.#readBytes(rest);
  }

  #readBytes(rest: string): void {
    const bytes = rest.indexOf(BYTES);
    this.bytesIn = bytes === -1 ? -1 : numberAt(rest, bytes + BYTES.length);
    this.bytesOut = bytes === -1 ? -1 : numberAt(rest, rest.indexOf(OUT, bytes) + OUT.length);
  }
}

function numberAt(text: string, start: number): number {
  let number = 0;
  for (let at = start; ; at += 1) {
    const code = text.charCodeAt(at);
    // NaN at the end of the text is not a digit, either.
    if (!(code >= DIGIT_0 && code <= DIGIT_9)) return number;
    number = number * 10 + code - DIGIT_0;
  }
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
