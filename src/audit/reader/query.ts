import type { LineHead } from '../line.ts';

/** The criteria of a search; an absent one matches every request. */
export interface Query {
  readonly client?: string;
  readonly deployment?: string;
  readonly site?: string;
  readonly operation?: string;
  /** The value of a parameter, or an item of a list in it. */
  readonly id?: string;
  /** Status of the response as it ended. */
  readonly status?: StatusRange;
  /** Outcome of the upstream's response. */
  readonly outcome?: string;
  /** RFC 3339 in UTC with milliseconds: inclusive, and exclusive. */
  readonly since?: string;
  readonly until?: string;
}

export interface StatusRange {
  readonly from: number;
  readonly to: number;
}

/** An access record, as far as it is searched. */
export interface AccessLine {
  readonly seq: number;
  readonly time: string;
  readonly requestId: string;
  readonly replica: string;
  readonly client: string;
  readonly address: string;
  readonly deployment: string;
  readonly site: string;
  readonly operation: string;
  readonly method: string;
  readonly path: string;
  readonly parameters: Readonly<Record<string, string | readonly string[] | null>>;
  /** True: path or parameters were too long to be recorded whole. */
  readonly cut?: boolean;
  readonly status: number;
  readonly code: string;
  readonly upstream?: { readonly status: number; readonly attempts: number };
  readonly credential?: { readonly name: string; readonly version: string };
}

/** An outcome record. */
export interface OutcomeLine {
  readonly time: string;
  readonly status: number;
  readonly code: string;
  /** Undefined: the response belongs to no outcome. */
  readonly outcome?: string;
  readonly bytes: { readonly in: number; readonly out: number };
  readonly durationMs: number;
}

/** Fields that are in a record as one JSON string, the most selective one first. */
const FIELDS = ['client', 'site', 'operation', 'deployment'] as const;

/** Byte strings that are in the line of every record that matches. */
export function patternsOf(query: Query): Buffer[] {
  const { id } = query;
  const fields = FIELDS.flatMap((field) => {
    const value = query[field];
    return value === undefined ? [] : [`"${field}":${JSON.stringify(value)}`];
  });
  return [...(id === undefined ? [] : [JSON.stringify(id).slice(1, -1)]), ...fields].map((text) =>
    Buffer.from(text),
  );
}

/** True if the record is in the time range of the query. */
export function isWithin({ since, until }: Query, { time }: Pick<LineHead, 'time'>): boolean {
  return (since === undefined || time >= since) && (until === undefined || time < until);
}

/** True if the record matches, apart from its time and how the response ended. */
export function matches(query: Query, access: AccessLine): boolean {
  return matchesButId(query, access) && (query.id === undefined || holdsId(access, query.id));
}

/** True if the response ended as the query asks. `outcome`: undefined if the log does not have it. */
export function hasEnded(query: Query, access: AccessLine, outcome: OutcomeLine | undefined): boolean {
  const { status: wanted } = query;
  const status = outcome?.status ?? access.status;
  if (wanted !== undefined && (status < wanted.from || status > wanted.to)) return false;
  return query.outcome === undefined || query.outcome === outcome?.outcome;
}

/** True if the identifier may have been in the part that was too long to be recorded. */
export function mayHold(query: Query, access: AccessLine): boolean {
  return access.cut === true && matchesButId(query, access);
}

function matchesButId(query: Query, access: AccessLine): boolean {
  return FIELDS.every((field) => query[field] === undefined || query[field] === access[field]);
}

function holdsId({ parameters }: AccessLine, id: string): boolean {
  return Object.values(parameters)
    .flat()
    .some((value) => value === id || (value !== null && itemsIn(value).includes(id)));
}

/** The items of a list, quoted or not. The gateway also lets malformed lists pass, so none is rejected here. */
function itemsIn(value: string): string[] {
  const quoted = Array.from(value.matchAll(/'([^']*)'?/g), ([, item = '']) => item);
  return [...quoted, ...value.split(',').map((item) => item.trim())];
}
