import { z } from 'zod';
import { LONGEST_NAME } from '../replica-name.ts';
import { MOST_SEQ } from '../segments/segment.ts';

/**
 * A place in the whole log, newest first: by time, and at one time by the folder of the process and the number of the
 * record. A search goes on with what lies behind it, so records that are written meanwhile do not shift the pages.
 */
export interface Position {
  /** RFC 3339 in UTC with milliseconds. */
  readonly time: string;
  /** Name of the folder; empty: before all records of that time. */
  readonly folder: string;
  readonly seq: number;
}

const TIME = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/;
const LONGEST_CURSOR = 512;

const stored = z.tuple([
  z
    .string()
    .regex(TIME)
    .refine((time) => !Number.isNaN(Date.parse(time))),
  z.string().max(LONGEST_NAME),
  z.int().min(0).max(MOST_SEQ),
]);

/** The text of a position for the client that asks for the next page. */
export function cursorOf({ time, folder, seq }: Position): string {
  return Buffer.from(JSON.stringify([time, folder, seq])).toString('base64url');
}

/** Undefined: the text is no cursor. */
export function parseCursor(text: string): Position | undefined {
  if (text.length > LONGEST_CURSOR || !/^[\w-]+$/.test(text)) return undefined;
  try {
    const parsed = stored.safeParse(JSON.parse(Buffer.from(text, 'base64url').toString('utf8')));
    if (parsed.data === undefined) return undefined;
    const [time, folder, seq] = parsed.data;
    return { time, folder, seq };
  } catch {
    return undefined;
  }
}

/** Negative if `a` comes before `b`. */
export function compareNewestFirst(a: Position, b: Position): number {
  if (a.time !== b.time) return a.time > b.time ? -1 : 1;
  if (a.folder !== b.folder) return a.folder < b.folder ? -1 : 1;
  return b.seq - a.seq;
}
