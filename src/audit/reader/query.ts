import type { LineHead } from '../line.ts';

/** What is looked for; left out: any. */
export interface Query {
  readonly client?: string;
  readonly deployment?: string;
  readonly site?: string;
  readonly operation?: string;
  /** One identifier, also inside a list: the value of a parameter, or an item in quotes in it. */
  readonly id?: string;
  /** Of the answer as it ended. */
  readonly status?: StatusRange;
  /** RFC 3339 in UTC with milliseconds: from this on, and before that. */
  readonly since?: string;
  readonly until?: string;
}

export interface StatusRange {
  readonly from: number;
  readonly to: number;
}

/** The record of an answer, as far as it is searched. */
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
  /** Whether something was too long to be recorded whole. */
  readonly cut?: boolean;
  readonly status: number;
  readonly code: string;
  readonly upstream?: { readonly status: number; readonly attempts: number };
  readonly credential?: { readonly name: string; readonly version: string };
}

/** What became of it. */
export interface OutcomeLine {
  readonly time: string;
  readonly status: number;
  readonly code: string;
  readonly bytes: { readonly in: number; readonly out: number };
  readonly durationMs: number;
}

/** Fields that a record has one text for, the one that most tells records apart first. */
const FIELDS = ['client', 'site', 'operation', 'deployment'] as const;

/** Bytes that the line of every record that fits has in it. */
export function needlesOf(query: Query): Buffer[] {
  const { id } = query;
  const fields = FIELDS.flatMap((field) => {
    const value = query[field];
    return value === undefined ? [] : [`"${field}":${JSON.stringify(value)}`];
  });
  return [...(id === undefined ? [] : [JSON.stringify(id).slice(1, -1)]), ...fields].map((text) =>
    Buffer.from(text),
  );
}

/** Whether a record of that time is looked for. */
export function isWithin({ since, until }: Query, { time }: Pick<LineHead, 'time'>): boolean {
  return (since === undefined || time >= since) && (until === undefined || time < until);
}

/** Whether the record fits in all but its time and status. */
export function fits(query: Query, access: AccessLine): boolean {
  return fitsButId(query, access) && (query.id === undefined || holdsId(access, query.id));
}

/** Whether it could have held the identifier in what was too long to be recorded. */
export function mayHold(query: Query, access: AccessLine): boolean {
  return access.cut === true && fitsButId(query, access);
}

function fitsButId(query: Query, access: AccessLine): boolean {
  return FIELDS.every((field) => query[field] === undefined || query[field] === access[field]);
}

function holdsId({ parameters }: AccessLine, id: string): boolean {
  return Object.values(parameters)
    .flat()
    .some((value) => value === id || (value !== null && itemsIn(value).includes(id)));
}

/** The items of a list, quoted or not. What the gateway lets pass need not be well formed, so nothing is refused here. */
function itemsIn(value: string): string[] {
  const quoted = Array.from(value.matchAll(/'([^']*)'?/g), ([, item = '']) => item);
  return [...quoted, ...value.split(',').map((item) => item.trim())];
}
