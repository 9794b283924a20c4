import { z } from 'zod';
import { parseJson } from '../../base/json.ts';
import { parseHead } from '../seal.ts';

/** The last record that retention removed, and the `hmac` of its seal: the records that are left begin after it. */
export interface RetiredEnd {
  readonly last: number;
  readonly hmac: string;
}

const retirement = z.object({
  event: z.literal('segment-retired'),
  segment: z.string(),
  /** Numbers of the first and last record of the segment, and `hmac` of the seals before its first and at its end. */
  first: z.int(),
  previous: z.string(),
  last: z.int(),
  hmac: z.string(),
  /** `opened` of the later segment by which all its records were too old. */
  olderThan: z.string(),
  /** The integrity error that the segment had when it was removed. */
  altered: z.string().optional(),
  /** Id of a key that the gateway no longer had, so that it could not check the segment. */
  unchecked: z.string().optional(),
  /** Numbers of records before the segment that were missing without having been retired. */
  missingFrom: z.int().optional(),
  missingTo: z.int().optional(),
  /** Names of the sinks that had not confirmed all of it. */
  unsent: z.array(z.string()).optional(),
});

/** The admin record `segment-retired`, written before a segment is removed for its age. It counts under a seal only. */
export type Retirement = Omit<z.infer<typeof retirement>, 'event'>;

const setAside = z.object({
  event: z.literal('recovered'),
  segment: z.string(),
  /** Number of its first line in the segment. */
  line: z.int(),
  /** Whole lines; and all bytes. */
  lines: z.int(),
  bytes: z.int(),
  /** Name of the file beside the segment, and the SHA-256 of its content, base64url; empty: it was not read. */
  file: z.string(),
  sha256: z.string(),
  /** True: the previous process had stopped before these lines, so no gateway wrote them. */
  afterStop: z.boolean(),
});

/** Lines that a start found under no seal. They are in a file of their own, and no part of the log. */
export type SetAside = Omit<z.infer<typeof setAside>, 'event'>;

const loss = z.object({
  event: z.literal('records-lost'),
  /** Name of the log: this one, or that of a worker. */
  log: z.string(),
  /** Number and `hmac` of the last seal in the stream, which the log lacks. */
  last: z.int(),
  hmac: z.string(),
  /** Number of the last record of the log at the start of the process that found it; not known of a worker's log. */
  end: z.int().optional(),
});

/** Records that the stream had and a log has lost, as a process found it. */
export type Loss = Omit<z.infer<typeof loss>, 'event'>;

/** The ends of the logs of workers, as the log of their primary has them. */
const workerHeads = z.object({
  event: z.literal('worker-heads'),
  /** As `formatHead` writes them. */
  heads: z.array(z.string()).transform((heads) => heads.flatMap((each) => parseHead(each) ?? [])),
  /** True: these workers have ended, and the next process of each continues its log. */
  ended: z.boolean().default(false),
});

const signedLate = z.object({
  event: z.literal('signed-at-start'),
  /** Numbers of the first and last record that a start found at the end of the log, under no head. */
  first: z.int(),
  last: z.int(),
});

/** Events without details. The last two are findings of the same name. */
const plain = z.object({
  event: z.enum(['start', 'start-failed', 'stop', 'log-begun-anew', 'signing-key-changed']),
});

const admin = z.discriminatedUnion('event', [retirement, setAside, loss, workerHeads, signedLate, plain]);
const EVENTS =
  /"event":"(?:segment-retired|recovered|records-lost|worker-heads|signed-at-start|start|start-failed|stop|log-begun-anew|signing-key-changed)"/;

/** An admin record of which readers of the log make something; other ones are for people. */
export type AdminRecord = z.infer<typeof admin>;

/** Undefined: the line is no such record. */
export function parseAdmin(line: string): AdminRecord | undefined {
  // Parsing every line as JSON would take most of the time of a verification.
  return EVENTS.test(line) ? admin.safeParse(parseJson(line)).data : undefined;
}

/** True if it is the last record of its process. */
export function endsProcess(line: string): boolean {
  const event = parseAdmin(line)?.event;
  return event === 'stop' || event === 'start-failed';
}
