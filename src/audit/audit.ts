import type { Log } from '../base/log.ts';
import type { Secret } from '../base/secret.ts';
import type { AccessFacts, AdminDetails, OutcomeFacts } from './record.ts';
import type { Head } from './seal.ts';

export interface AuditOptions {
  readonly directory: string;
  /** Name of this process among those that share the directory. */
  readonly replica: string;
  readonly key: Secret;
  /** What a record has to survive before its response leaves: the process, the machine, or neither. */
  readonly durability: 'write' | 'fsync' | 'async';
  readonly onFailure: 'refuse' | 'serve';
  /** Names of the query parameters that are recorded with their values. */
  readonly parameters: readonly string[];
  readonly pseudonymise: readonly 'address'[];
  /** Bytes, and milliseconds. */
  readonly segment: { readonly size: number; readonly age: number; readonly keep: number };
  /** Undefined: records go to the files only. */
  readonly stream?: { readonly redis: boolean; readonly maxLength: number };
}

/** A response, or anything else, that must not go on before its record is written. Exactly one method is called, once. */
export interface Waiter {
  recorded(): void;
  unrecorded(): void;
}

/** One record, as it goes into the log but for the line's number and time. */
export interface RecentRecord {
  readonly seq: number;
  /** Unix milliseconds. */
  readonly at: number;
  /** JSON from its `kind` to its end, without the brace before. */
  readonly record: string;
}

/** The last records of this process. */
export interface RecentRecords {
  /** Records after the first `position` ones, oldest first, as far as they are kept; and how many there were in all. */
  since(position: number): { readonly records: readonly RecentRecord[]; readonly position: number };
}

/** Where it is recorded who got what, and what became of the gateway. */
export interface Audit {
  /** False: nothing is recorded, and no response waits for a record. */
  readonly enabled: boolean;
  /** Why nothing can be recorded; undefined: it can, or nothing is to be. */
  readonly failing: string | undefined;
  /** The second place for what is in the file; undefined: there is none. */
  readonly sink: Pick<AuditSink, 'failing' | 'failures'> | undefined;
  /** Whether nothing may be answered now, since nothing can be recorded. */
  readonly refusing: boolean;
  /** Records since the start; and those that were not written in time, or at all. */
  readonly counts: { readonly records: number; readonly failures: number };
  /** What was found changed in the newest segment at the start; undefined: nothing. */
  readonly damage: string | undefined;
  /** The last records, for the console. */
  readonly recent: RecentRecords;
  /**
   * Records an answer that is about to leave; the waiter is told when it may, now or later. Gives the number of
   * the record, 0 when there is none.
   */
  access(facts: AccessFacts, waiter: Waiter): number;
  /** The same for a request that does not reach the upstream: of many, not each is recorded. */
  refusal(facts: AccessFacts, waiter: Waiter): number;
  /** Counts a request that was refused because nothing can be recorded. */
  missed(): void;
  outcome(facts: OutcomeFacts): void;
  admin(event: string, details: AdminDetails): void;
  /** Records from now on these parameters by value, and these values as pseudonyms; undefined: as before. */
  configure(options: Pick<AuditOptions, 'parameters' | 'pseudonymise'> | undefined): void;
  /** Writes what is left and ends the log; its last record is an admin record of that event. */
  close(event?: 'stop'): Promise<void>;
}

export interface AuditExternals {
  readonly log: Log;
  /** Told of each batch that was written; closed with the log. */
  readonly sink?: AuditSink;
}

/** A second place for what is in the file. */
export interface AuditSink {
  /** Why nothing gets there; undefined: it does. */
  readonly failing: string | undefined;
  /** Attempts that failed. */
  readonly failures: number;
  /** What is in the file now. */
  sealed(head: Head): void;
  close(): Promise<void>;
}

/** Records nothing, and lets everything pass. */
export const noAudit: Audit = {
  enabled: false,
  failing: undefined,
  sink: undefined,
  refusing: false,
  counts: { records: 0, failures: 0 },
  damage: undefined,
  recent: { since: () => ({ records: [], position: 0 }) },
  access: pass,
  refusal: pass,
  missed() {},
  outcome() {},
  admin() {},
  configure() {},
  close: () => Promise.resolve(),
};

function pass(_facts: AccessFacts, waiter: Waiter): number {
  waiter.recorded();
  return 0;
}
