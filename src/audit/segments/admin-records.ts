import { z } from 'zod';

/** Where the records that are left begin: the last one that was removed for its age, and the seal that it had. */
export interface RetiredEnd {
  readonly last: number;
  readonly hmac: string;
}

const retirement = z.object({
  event: z.literal('segment-retired'),
  /** Number of its own record. */
  seq: z.int(),
  segment: z.string(),
  /** Numbers of its first and last record, and `hmac` of the seals before its first and at its end. */
  first: z.int().optional(),
  previous: z.string().optional(),
  last: z.int(),
  hmac: z.string(),
  /** What was wrong with it when it was removed. */
  altered: z.string().optional(),
  /** Id of a key that the gateway had no more, so that it could not check the segment. */
  unchecked: z.string().optional(),
  /** Numbers of records before it that had gone without having been retired. */
  missingFrom: z.int().optional(),
  missingTo: z.int().optional(),
});

/**
 * The admin record `segment-retired`, written before a segment is removed for its age. It counts under a seal only.
 * Earlier versions wrote `segment`, `last` and `hmac` alone: such a one vouches for where the log begins, and for
 * everything since the one before it.
 */
export type Retirement = z.infer<typeof retirement>;

/** Undefined: the line is no such record. */
export function parseRetirement(line: string): Retirement | undefined {
  if (!line.includes('"event":"segment-retired"')) return undefined;
  try {
    return retirement.safeParse(JSON.parse(line)).data;
  } catch {
    return undefined;
  }
}
