import type { Log } from '../base/log.ts';
import type { Secret } from '../base/secret.ts';
import type { PlacedFinding } from './findings.ts';
import type { KeyScope } from './pseudonym.ts';
import type { AccessFacts, AdminDetails, OutcomeFacts } from './record.ts';
import type { Head } from './seal.ts';

/** Turns of the event loop that a batch stays open at most. */
const MOST_TURNS = 8;

export interface AuditOptions {
  readonly directory: string;
  /** Name of this process among those that share the directory; of a worker, `REPLICA@K` with K from 1 on. */
  readonly replica: string;
  readonly key: Secret;
  /** The private key of signed heads, PEM; undefined: heads are not signed. */
  readonly signingKey?: Secret | undefined;
  /** A response leaves after its record survives a crash of the process, of the machine, or of neither. */
  readonly durability: 'write' | 'fsync' | 'async';
  readonly onFailure: 'refuse' | 'serve';
  /** Names of the query parameters that are recorded with their values. */
  readonly parameters: readonly string[];
  /** Undefined: values are recorded as they are. */
  readonly pseudonyms?: PseudonymOptions | undefined;
  /** Bytes, and milliseconds. */
  readonly segment: {
    readonly size: number;
    readonly age: number;
    readonly keep: number;
    /** Bytes of a folder up to which segments that a sink has not confirmed are kept longer; without it, none is. */
    readonly keepUnsent?: number;
  };
  /** Names of the sinks, whose positions are in the folder. */
  readonly sinks?: readonly string[];
}

/** Values that are recorded encrypted, under keys that can be destroyed. */
export interface PseudonymOptions {
  /** Has a folder with keys for each process. */
  readonly keysDirectory: string;
  /** `address`, and parameters by name as `parameters.NAME`. */
  readonly fields: readonly string[];
  /** The unit that has a key of its own. */
  readonly per: KeyScope;
}

/** The options that a reload changes: the parameters with values, and the fields of pseudonyms. */
export interface RecordOptions extends Pick<AuditOptions, 'parameters'> {
  readonly pseudonyms?: Pick<PseudonymOptions, 'fields'> | undefined;
}

export interface AuditDeps {
  readonly log: Log;
}

/** The audit log: who received what, and what happened to the gateway itself. */
export interface Audit {
  /** False: nothing is recorded. */
  readonly enabled: boolean;
  /** Why nothing can be written; undefined: records are written, or the log is not enabled. */
  readonly failing: string | undefined;
  /** Why old segments are not removed; undefined: they are. */
  readonly retentionHeld: string | undefined;
  /** True while nothing can be written and `onFailure` is `refuse`: requests are to be refused. */
  readonly refusing: boolean;
  /** Records since the start; and failures: records not written in time or at all, and outages. */
  readonly counts: { readonly records: number; readonly failures: number };
  /** The integrity error found in the newest segment at the start; undefined: none. */
  readonly integrityError: PlacedFinding | undefined;
  /** The end of the chain; undefined: nothing was sealed since the start. */
  readonly head: Head | undefined;
  /** The last signed head, and since when records wait for the next; undefined: heads are not signed. */
  readonly signed: Signed | undefined;
  /** The last records, for the console. */
  readonly recent: RecentRecords;
  /**
   * Records a response that is about to leave. `waiter` is notified when it may leave, possibly before this returns.
   * @returns the number of the record; 0: there is none
   */
  access(facts: AccessFacts, waiter: Waiter): number;
  /** Like `access`, for a request that did not reach the upstream. Of many such requests, only a sample is recorded. */
  refusal(facts: AccessFacts, waiter: Waiter): number;
  /** Counts a request that was refused because nothing can be written. */
  missed(): void;
  outcome(facts: OutcomeFacts): void;
  admin(event: string, details: AdminDetails): void;
  /** Resolves to true when the record is in the file; to false if it cannot be written now, or nothing is recorded. */
  adminWritten(event: string, details: AdminDetails): Promise<boolean>;
  /**
   * Records that this log, or that of a worker, has lost a seal and all after it, so that `audit verify` tells it from
   * now on. Resolves to false if it cannot be recorded now.
   */
  recordLoss(lost: Head): Promise<boolean>;
  /** Changes what later records hold. Undefined: no change. */
  configure(options: RecordOptions | undefined): void;
  /** A criterion of a search as it may be recorded: as it is, or its pseudonym. */
  recordedCriterion(value: string): string;
  /** Writes the records that are left and closes the log. `event` is recorded last. */
  close(event?: 'stop' | 'start-failed'): Promise<void>;
}

/** A response, or anything else, that must not go on before its record is written. Exactly one method is called, once. */
export interface Waiter {
  recorded(): void;
  unrecorded(): void;
}

/** The last signed head, and what follows it. */
export interface Signed {
  /** The checkpoint; undefined: none was signed since the start. */
  readonly checkpoint: string | undefined;
  /** Since when the oldest record waits for a signed head, on the clock of `performance.now()`; undefined: none does. */
  readonly unsignedSince: number | undefined;
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

/** Ends a batch with the current turn of the event loop, or with a later one while each turn brings more. */
export class BatchTimer {
  readonly #onEnd: () => void;
  /** Turns that the batch has lasted; 0: none is open. */
  #turns = 0;
  #count = 0;
  /** How many it had a turn ago. */
  #before = 0;

  constructor(onEnd: () => void) {
    this.#onEnd = onEnd;
  }

  /** Begins a batch, or goes on with the one that is open. `count`: how many it has by now. */
  start(count: number): void {
    this.#count = count;
    if (this.#turns > 0) return;
    this.#turns = 1;
    this.#before = count;
    setImmediate(this.#endTurn);
  }

  readonly #endTurn = (): void => {
    if (this.#count > this.#before && this.#turns < MOST_TURNS) {
      this.#turns += 1;
      this.#before = this.#count;
      setImmediate(this.#endTurn);
      return;
    }
    this.#turns = 0;
    this.#onEnd();
  };
}

/** The open batch of responses that wait for no file, and how many it has; undefined: none is open. */
let leaving: PromiseWithResolvers<void> | undefined;
let leavingCount = 0;
const leavingTimer = new BatchTimer(() => {
  const batch = leaving;
  leaving = undefined;
  leavingCount = 0;
  batch?.resolve();
});

/**
 * Resolves when a response that waits for no file may leave: in a batch with others. One by one, or at each turn, they
 * cost 3 % more CPU time.
 */
export function batchEnd(): Promise<void> {
  leaving ??= Promise.withResolvers();
  leavingCount += 1;
  leavingTimer.start(leavingCount);
  return leaving.promise;
}

/** Records nothing. */
export const noAudit: Audit = {
  enabled: false,
  failing: undefined,
  retentionHeld: undefined,
  refusing: false,
  counts: { records: 0, failures: 0 },
  integrityError: undefined,
  head: undefined,
  signed: undefined,
  recent: { since: () => ({ records: [], position: 0 }) },
  access: recordNothing,
  refusal: recordNothing,
  missed() {},
  outcome() {},
  admin() {},
  adminWritten: () => Promise.resolve(false),
  recordLoss: () => Promise.resolve(false),
  configure() {},
  recordedCriterion: (value) => value,
  close: () => Promise.resolve(),
};

function recordNothing(_facts: AccessFacts, waiter: Waiter): number {
  waiter.recorded();
  return 0;
}
