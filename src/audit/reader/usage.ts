import { getOrInsert, ownEntry } from '../../base/maps.ts';
import { count } from '../../base/units.ts';
import { isPseudonym } from '../pseudonym.ts';
import { csvLine, type FoundRequest, type Query } from './query.ts';
import type { AccessLine, UsageCounts, UsageDay, UsageRow } from './results.ts';
import { type SearchOptions, search } from './search.ts';
import type { ReadOptions } from './searched-segments.ts';

/** The fields by which usage is grouped. */
export const USAGE_FIELDS = [
  'client',
  'deployment',
  'site',
  'operation',
  'credential',
  'address',
  'status',
] as const;

/** The grouping where none is given. */
export const DEFAULT_FIELDS = 'client,site,operation,credential';

export type UsageField = (typeof USAGE_FIELDS)[number];

/**
 * Reads the fields of a grouping, with commas between them.
 * @throws RangeError with those that there are
 */
export function usageFields(text: string): UsageField[] {
  const fields = text.split(',').map((name) => USAGE_FIELDS.find((field) => field === name.trim()));
  const known = fields.filter((field) => field !== undefined);
  if (known.length === fields.length && new Set(known).size === known.length) return known;
  throw new RangeError(`fields are ${USAGE_FIELDS.join(', ')}, each once, with commas between them`);
}

/** Groups that are counted one by one; requests of further ones are counted together. */
const MAX_GROUPS = 50_000;
/** Where no operation says which parameters are lists of identifiers. */
const DEFAULT_LISTS = ['ids'];
const DAY_MS = 86_400_000;
/**
 * A day in 2243. Records of later ones count on the first day, in 1970: anybody may have written them where a key is not
 * at hand, and each group has a bit for each day.
 */
const MAX_DAY = 100_000;

/** Names of the parameters that are quoted lists, by operation, by deployment. */
export type IdentifierLists = Readonly<Record<string, Readonly<Record<string, readonly string[]>>>>;

/** The kinds of parameters of a configuration. */
interface Operations {
  readonly operations: Readonly<Record<string, { readonly parameters: Readonly<Record<string, string>> }>>;
}

/** The parameters that are lists of identifiers by the operations of a configuration. */
export function identifierLists(deployments: Readonly<Record<string, Operations>>): IdentifierLists {
  return mapValues(deployments, ({ operations }) =>
    mapValues(operations, ({ parameters }) =>
      Object.keys(parameters).filter((name) => parameters[name]?.startsWith('quoted-list') === true),
    ),
  );
}

function mapValues<From, To>(
  record: Readonly<Record<string, From>>,
  map: (value: From) => To,
): Record<string, To> {
  return Object.fromEntries(Object.entries(record).map(([name, value]) => [name, map(value)]));
}

export interface Usage {
  readonly by: readonly UsageField[];
  /** Those with the most requests first. */
  readonly rows: readonly UsageRow[];
  /** Requests of the groups without a row; undefined: there are none. */
  readonly other: UsageRow | undefined;
  readonly total: UsageRow;
  readonly daily: readonly UsageDay[];
  /** Names of lists that are recorded by name only. */
  readonly namesOnly: readonly string[];
}

export interface UsageTableOptions {
  readonly by: readonly UsageField[];
  readonly lists: IdentifierLists;
  /** Groups that are counted one by one; left out: 50,000. */
  readonly maxGroups?: number;
  /** Rows of the result; left out: one for each group. */
  readonly maxRows?: number;
}

/** A request as it is counted. */
interface CountedRequest {
  /** Days since 1970, in UTC. */
  readonly day: number;
  readonly identifiers: number;
  /** True: a list of identifiers is not recorded, or not whole. */
  readonly isUncounted: boolean;
  readonly status: number;
  readonly bytesIn: number;
  readonly bytesOut: number;
}

class Counts {
  requests = 0;
  identifiers = 0;
  uncounted = 0;
  bytesIn = 0;
  bytesOut = 0;
  /** Undefined until there is an error, as in most of many groups. */
  #statuses: Map<number, number> | undefined;

  add({ identifiers, isUncounted, status, bytesIn, bytesOut }: CountedRequest): void {
    this.requests += 1;
    this.identifiers += identifiers;
    if (isUncounted) this.uncounted += 1;
    this.bytesIn += bytesIn;
    this.bytesOut += bytesOut;
    if (status >= 400) this.#addErrors(status, 1);
  }

  addCounts(other: UsageCounts): void {
    this.requests += other.requests;
    this.identifiers += other.identifiers;
    this.uncounted += other.uncounted;
    this.bytesIn += other.bytesIn;
    this.bytesOut += other.bytesOut;
    for (const [status, count] of Object.entries(other.statuses)) this.#addErrors(Number(status), count);
  }

  #addErrors(status: number, count: number): void {
    this.#statuses ??= new Map();
    this.#statuses.set(status, (this.#statuses.get(status) ?? 0) + count);
  }

  get counts(): UsageCounts {
    const { requests, identifiers, uncounted, bytesIn, bytesOut } = this;
    const statuses = Object.fromEntries(this.#statuses ?? []);
    const errors = Object.values(statuses).reduce((sum, count) => sum + count, 0);
    return { requests, identifiers, uncounted, bytesIn, bytesOut, errors, statuses };
  }
}

/** A set of days that takes a bit for each day between the first and the last. */
class Days {
  #first = 0;
  #bits = new Uint8Array(0);
  #last = Number.NaN;
  size = 0;

  add(day: number): void {
    if (day === this.#last) return;
    this.#last = day;
    if (this.#bits.length === 0) this.#first = day - (day % 8);
    this.#makeRoom(day);
    const at = day - this.#first;
    const bit = 1 << (at % 8);
    const before = this.#bits[at >> 3] ?? 0;
    if ((before & bit) === 0) this.size += 1;
    this.#bits[at >> 3] = before | bit;
  }

  merge(other: Days): void {
    for (let at = 0; at < 8 * other.#bits.length; at += 1) {
      if (((other.#bits[at >> 3] ?? 0) & (1 << (at % 8))) !== 0) this.add(other.#first + at);
    }
  }

  #makeRoom(day: number): void {
    const earlier = Math.max(0, Math.ceil((this.#first - day) / 8));
    const needed = Math.max(this.#bits.length, ((day - this.#first) >> 3) + 1) + earlier;
    if (needed === this.#bits.length) return;
    const larger = new Uint8Array(needed);
    larger.set(this.#bits, earlier);
    this.#bits = larger;
    this.#first -= 8 * earlier;
  }
}

/** Requests that are counted together. */
class Group extends Counts {
  readonly values: readonly string[];
  readonly days = new Days();

  constructor(values: readonly string[]) {
    super();
    this.values = values;
  }

  merge(other: Group): void {
    this.addCounts(other.counts);
    this.days.merge(other.days);
  }

  get row(): UsageRow {
    return { values: this.values, ...this.counts, days: this.days.size };
  }
}

/** The groups, and what is counted of each. */
class UsageTable {
  readonly #by: readonly UsageField[];
  readonly #maxGroups: number;
  readonly #maxRows: number;
  readonly #lists: IdentifierLists;
  readonly #groups = new Map<string, Group>();
  readonly #total = new Group([]);
  readonly #other = new Group([]);
  readonly #daily = new Map<number, Counts>();
  readonly #namesOnly = new Set<string>();

  constructor({ by, lists, maxGroups = MAX_GROUPS, maxRows = maxGroups }: UsageTableOptions) {
    this.#by = by;
    this.#lists = lists;
    this.#maxGroups = maxGroups;
    this.#maxRows = maxRows;
  }

  add({ access, outcome }: FoundRequest): void {
    const { status } = outcome ?? access;
    const bytes = Object(outcome?.bytes) as Readonly<Record<string, unknown>>;
    const written = Math.floor(Date.parse(access.time) / DAY_MS);
    const day = written >= 0 && written < MAX_DAY ? written : 0;
    const ids = this.#identifiersOf(access);
    // Of a segment whose key is not at hand, anybody may have written the record.
    const request = {
      ...ids,
      day,
      status,
      bytesIn: Number(bytes['in']) || 0,
      bytesOut: Number(bytes['out']) || 0,
    };
    getOrInsert(this.#daily, day, () => new Counts()).add(request);
    for (const group of [this.#groupOf(access, status), this.#total]) {
      group.add(request);
      group.days.add(day);
    }
  }

  /** The result, after which nothing may be added. */
  usage(): Usage {
    const groups = [...this.#groups.values()].sort(byRequests);
    for (const group of groups.splice(this.#maxRows)) this.#other.merge(group);
    const daily = [...this.#daily].sort(([a], [b]) => a - b);
    return {
      by: this.#by,
      rows: groups.map(({ row }) => row),
      other: this.#other.requests === 0 ? undefined : this.#other.row,
      total: this.#total.row,
      daily: daily.map(([day, { counts }]) => ({
        day: new Date(day * DAY_MS).toISOString().slice(0, 10),
        ...counts,
      })),
      namesOnly: [...this.#namesOnly].sort(),
    };
  }

  #groupOf(access: AccessLine, status: number): Group {
    const values = this.#by.map((field) => fieldOf(access, status, field));
    const key = JSON.stringify(values);
    const known = this.#groups.get(key);
    if (known !== undefined) return known;
    if (this.#groups.size >= this.#maxGroups) return this.#other;
    const group = new Group(values);
    this.#groups.set(key, group);
    return group;
  }

  /** The identifiers of a request, as far as they are recorded. */
  #identifiersOf({ deployment, operation, parameters, cut = false }: AccessLine) {
    const named = ownEntry(ownEntry(this.#lists, deployment) ?? {}, operation) ?? [];
    let identifiers = 0;
    let isUncounted = cut;
    for (const name of named.length === 0 ? DEFAULT_LISTS : named) {
      const value = ownEntry(parameters, name);
      if (value === null) this.#namesOnly.add(name);
      const lists = [value ?? []].flat();
      // A pseudonym is left if its key is not at hand.
      isUncounted ||= value === null || lists.some(isPseudonym);
      for (const list of lists) if (!isPseudonym(list)) identifiers += itemsIn(list);
    }
    return { identifiers, isUncounted };
  }
}

/** `status`: that with which the response ended. */
function fieldOf(access: AccessLine, status: number, field: UsageField): string {
  if (field === 'status') return String(status);
  return field === 'credential' ? (access.credential?.name ?? '') : access[field];
}

/** Items in quotes; without quotes, items between commas. A malformed list has some, too: it was passed on. */
function itemsIn(list: string): number {
  const quotes = list.split("'").length - 1;
  if (quotes > 0) return Math.ceil(quotes / 2);
  return list === '' ? 0 : list.split(',').length;
}

function byRequests(a: Group, b: Group): number {
  return b.requests - a.requests || (a.values.join('\n') < b.values.join('\n') ? -1 : 1);
}

interface UsageOptions extends ReadOptions, UsageTableOptions, Pick<SearchOptions, 'onUndecided'> {
  /** Time range and replica. */
  readonly query: Pick<Query, 'since' | 'until' | 'replica'>;
}

/**
 * Counts the requests of the log by group. Only records under a seal count. Memory use depends on the number of groups
 * and days, not on the size of the log.
 * @throws Error if a directory cannot be read
 */
export async function countUsage(options: UsageOptions): Promise<Usage> {
  const table = new UsageTable(options);
  for await (const found of search({ ...options, inAnyOrder: true })) {
    if ('access' in found) table.add(found);
  }
  return table.usage();
}

/** The value of each field in the row of groups beyond the limit. */
export const OTHER = '(other)';

/** Usage as comma-separated values (RFC 4180). */
export function usageCsv({ by, rows, other }: Usage): string {
  const header = [...by, ...COUNTED, 'errorStatuses'];
  const all = other === undefined ? rows : [...rows, { ...other, values: by.map(() => OTHER) }];
  const lines = all.map((row) => [...row.values, ...COUNTED.map((name) => row[name]), statusText(row)]);
  return [header, ...lines].map(csvLine).join('');
}

const COUNTED = ['requests', 'identifiers', 'uncounted', 'bytesIn', 'bytesOut', 'days', 'errors'] as const;

/** Statuses of errors with how often each came, the most frequent first: `404:10 429:2`. */
export function statusText({ statuses }: UsageCounts): string {
  const found = Object.entries(statuses).sort(([, a], [, b]) => b - a);
  return found.map((each) => each.join(':')).join(' ');
}

/** Clauses about requests that the counts leave out or put together. */
export function usageNotes({ total, other, namesOnly }: Usage): string[] {
  const notes: string[] = [];
  if (namesOnly.length > 0) {
    const them = namesOnly.length === 1 ? 'it' : 'them';
    notes.push(
      `the log has ${namesOnly.join(', ')} by name only: add ${them} to audit.parameters to count identifiers from then on`,
    );
  }
  if (total.uncounted > 0) {
    notes.push(
      `the identifiers of ${count(total.uncounted, 'request')} are not counted, or not all of them, since the log does not have the list whole, or its key is destroyed or missing`,
    );
  }
  if (other !== undefined) {
    notes.push(`there are more groups than rows: the others are together in ${OTHER}; name fewer fields`);
  }
  return notes;
}
