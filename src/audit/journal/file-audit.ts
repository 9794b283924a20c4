import { join } from 'node:path';
import { inTime, stopwatch } from '../../base/clock.ts';
import { isolate } from '../../base/report-error.ts';
import {
  type Audit,
  type AuditDeps,
  type AuditOptions,
  batchEnd,
  type RecordOptions,
  type Signed,
  type Waiter,
} from '../audit.ts';
import { signingKey } from '../checkpoint.ts';
import { finding, type PlacedFinding } from '../findings.ts';
import { type AuditKeys, auditKeys } from '../keys.ts';
import {
  type AccessFacts,
  type AdminDetails,
  type OutcomeFacts,
  RecordText,
  recordedTarget,
} from '../record.ts';
import { processOf } from '../replica-name.ts';
import { formatHead, GENESIS, type Head } from '../seal.ts';
import type { Retirement } from '../segments/admin-records.ts';
import type { Recovered } from '../segments/recovery.ts';
import { Retention } from '../segments/retention.ts';
import { hasWorkerLogs } from '../segments/segment.ts';
import { RecordRing } from './batch.ts';
import { ChainWriter, type WriteError, writeErrorOf } from './chain-writer.ts';
import { Journal } from './journal.ts';
import { PseudonymWriter } from './pseudonym-writer.ts';
import { RefusalSample } from './refusal-sample.ts';

/** How long a record may take to be written, in milliseconds. */
const DEADLINE_MS = 1000;
/** How long the end waits for segments that are being compressed or removed, in milliseconds. */
const RETENTION_END_MS = 5000;
/** Interval at which heads are logged, in milliseconds. */
const HEAD_EVERY_MS = 60_000;
/** Interval at which the folder with the keys of pseudonyms is looked at, in milliseconds. */
const FOLLOW_KEYS_MS = 1000;

/**
 * Opens the audit log of this process, and recovers it if the previous process was killed.
 * @throws Error if another process writes to the folder, or the folder cannot be used; it says what to do
 */
export async function openAudit(options: AuditOptions, deps: AuditDeps): Promise<Audit> {
  const { directory, replica, durability, signingKey: pem } = options;
  const keys = auditKeys(options.key);
  const folder = join(directory, replica);
  const { pseudonyms: hidden } = options;
  const pseudonyms = hidden && new PseudonymWriter(join(hidden.keysDirectory, replica), hidden, deps.log);
  await pseudonyms?.load();
  const { chain, recovered } = await ChainWriter.open({
    folder,
    replica,
    keys,
    signing: pem && signingKey(pem),
    sync: durability === 'fsync',
  });
  const isPrimary = processOf(replica).worker === 0;
  const isBegunAnew =
    isPrimary && recovered.previous === GENESIS && (await hasWorkerLogs(directory, replica));
  const audit = new FileAudit(options, { ...deps, chain, recovered, isBegunAnew, folder, keys, pseudonyms });
  // On a full disk nothing can be written now, and nothing would keep the process alive until it can.
  if (chain.writable) await audit.recoveryRecorded;
  void audit.followKeys();
  return audit;
}

interface FileAuditDeps extends AuditDeps {
  readonly chain: ChainWriter;
  readonly recovered: Recovered;
  /** True: the log of the primary process is new, and there are logs of its workers. */
  readonly isBegunAnew: boolean;
  readonly folder: string;
  readonly keys: AuditKeys;
  /** Undefined: values are recorded as they are. */
  readonly pseudonyms: PseudonymWriter | undefined;
}

class FileAudit implements Audit {
  readonly #options: AuditOptions;
  readonly #deps: FileAuditDeps;
  readonly #journal: Journal;
  /** Names of the parameters that are recorded with their values. */
  #byValue: ReadonlySet<string> = new Set();
  readonly #text: RecordText;
  readonly #pseudonyms: PseudonymWriter | undefined;
  #keyTimer: NodeJS.Timeout | undefined;
  /**
   * Resolves when the findings of the recovery are written, or cannot be. If the process were killed before that, no
   * record under a seal would name the lines that it set aside.
   */
  readonly recoveryRecorded: Promise<unknown>;
  readonly #refusals = new RefusalSample((leftOut) => this.admin('refusals-left-out', { ...leftOut }));
  readonly #retention: Retention;
  #closed = false;
  #head: Head | undefined;
  #headLogged = 0;
  #loggedHead: Head | undefined;
  #loggedCheckpoint: string | undefined;
  #outage: { readonly error: WriteError; readonly since: number } | undefined;
  readonly #missing = { refused: 0, unrecorded: 0, lost: 0 };
  readonly enabled = true;
  readonly counts = { records: 0, failures: 0 };
  readonly recent = new RecordRing();
  readonly integrityError: PlacedFinding | undefined;

  constructor(options: AuditOptions, deps: FileAuditDeps) {
    const { chain, recovered, isBegunAnew, folder, keys, log } = deps;
    this.#options = options;
    this.#deps = deps;
    this.#text = new RecordText(options.replica);
    this.#pseudonyms = deps.pseudonyms;
    this.#byValue = new Set(options.parameters);
    this.#journal = new Journal(
      { nextSeq: recovered.nextSeq, deadlineMs: DEADLINE_MS, segment: options.segment },
      {
        chain,
        onState: (error) => this.#onState(error),
        onSeal: (head) => this.#onSeal(head),
        onRecord: (seq, at, record) => this.recent.add(seq, at, record),
        onUnrecorded: (count) => this.#countUnrecorded(count),
        onClosed: () => this.#retention.start(),
        keysReady: () => this.#pseudonyms?.ready(),
      },
    );
    this.#retention = new Retention(
      {
        folder,
        replica: options.replica,
        keys,
        age: options.segment.age,
        keep: options.segment.keep,
        sinks: options.sinks ?? [],
        keepUnsent: options.segment.keepUnsent ?? 0,
      },
      {
        log,
        retired: () => chain.retired,
        onRetire: (retired) => this.#retire(retired),
        onFailure: () => {
          this.counts.failures += 1;
        },
      },
    );
    this.integrityError = integrityErrorOf(options.replica, recovered, isBegunAnew);
    this.recoveryRecorded = this.#recordRecovery(recovered);
    this.#retention.start();
  }

  get failing(): string | undefined {
    return this.#journal.failing;
  }

  get retentionHeld(): string | undefined {
    return this.#retention.held;
  }

  get head(): Head | undefined {
    return this.#head;
  }

  get signed(): Signed | undefined {
    return this.#deps.chain.signed;
  }

  get refusing(): boolean {
    return this.#options.onFailure === 'refuse' && this.#journal.failing !== undefined;
  }

  access(facts: AccessFacts, waiter: Waiter): number {
    const { durability, onFailure } = this.#options;
    const text = (at: number): string => this.#accessText(facts, at);
    if (durability === 'async') {
      void batchEnd().then(() => isolate(() => waiter.recorded()));
      return this.#append(text);
    }
    return this.#append(text, onFailure === 'refuse' ? waiter : lenient(waiter));
  }

  refusal(facts: AccessFacts, waiter: Waiter): number {
    if (this.#refusals.admits(facts.client, facts.address)) return this.access(facts, waiter);
    waiter.recorded();
    return 0;
  }

  missed(): void {
    this.#missing.refused += 1;
  }

  outcome(facts: OutcomeFacts): void {
    this.#append(() => this.#text.outcome(facts));
  }

  admin(event: string, details: AdminDetails): void {
    const at = Date.now();
    const record = this.#adminText(event, details, at);
    this.#append(() => record, undefined, at);
    this.#journal.writeSoon();
  }

  adminWritten(event: string, details: AdminDetails, onRecorded?: () => void): Promise<boolean> {
    return new Promise((resolve) => {
      const recorded = (): void => {
        onRecorded?.();
        resolve(true);
      };
      const at = Date.now();
      const record = this.#adminText(event, details, at);
      this.#append(() => record, { recorded, unrecorded: () => resolve(false) }, at);
    });
  }

  recordLoss({ replica, seq: last, hmac }: Head): Promise<boolean> {
    const isOwn = replica === this.#options.replica;
    const end = isOwn ? this.#deps.recovered.nextSeq - 1 : undefined;
    return this.adminWritten('records-lost', { log: replica, last, hmac, end });
  }

  async close(event?: 'stop' | 'start-failed'): Promise<void> {
    this.#retention.stop();
    clearTimeout(this.#keyTimer);
    this.#refusals.flush();
    const waited = stopwatch();
    // A segment that takes for ever to be read must not keep the process from its last record.
    await inTime(this.#retention.idle, RETENTION_END_MS);
    if (event !== undefined) this.admin(event, {});
    this.#closed = true;
    await this.#journal.close();
    await inTime(this.#retention.idle, Math.max(0, RETENTION_END_MS - waited()));
    this.#logHead();
  }

  configure(options: RecordOptions | undefined): void {
    if (options === undefined) return;
    this.#byValue = new Set(options.parameters);
    if (this.#pseudonyms && options.pseudonyms) this.#pseudonyms.fields = options.pseudonyms.fields;
  }

  recordedCriterion(value: string): string {
    return this.#pseudonyms?.criterion(value) ?? value;
  }

  #accessText(facts: AccessFacts, at: number): string {
    const { path, parameters, cut } = recordedTarget(facts.target, this.#byValue);
    const { client, address } = facts;
    const hiding = this.#pseudonyms;
    if (hiding === undefined) return this.#text.access(facts, { address, path, parameters, cut });
    hiding.hideParameters(parameters, client, address, at);
    return this.#text.access(facts, { address: hiding.address(address, client, at), path, parameters, cut });
  }

  /** Records keys of pseudonyms that were destroyed, now and from then on. */
  async followKeys(): Promise<void> {
    const writer = this.#pseudonyms;
    const forgotten = (await writer?.refresh()) ?? [];
    for (const each of forgotten) {
      if (!(await this.adminWritten('pseudonyms-forgotten', each))) break;
      await writer?.recorded(each).catch((error) => {
        this.#deps.log.warn({ key: each.key, ...writeErrorOf(error) }, 'a destroyed key is recorded again');
      });
    }
    if (!this.#closed) this.#keyTimer = setTimeout(() => void this.followKeys(), FOLLOW_KEYS_MS).unref();
  }

  #append(text: (at: number) => string, waiter?: Waiter, at?: number): number {
    if (this.#closed || this.#journal.full) {
      this.#missing.lost += 1;
      this.counts.failures += 1;
      waiter?.unrecorded();
      return 0;
    }
    this.counts.records += 1;
    return this.#journal.append(text, waiter, at);
  }

  #countUnrecorded(count: number): void {
    this.#missing.unrecorded += count;
    this.counts.failures += count;
  }

  #onState(error: WriteError | undefined): void {
    const { log } = this.#deps;
    if (error === undefined) {
      if (this.#outage !== undefined) this.#resumed(this.#outage);
      this.#outage = undefined;
      return;
    }
    if (this.#outage === undefined) this.counts.failures += 1;
    this.#outage ??= { error, since: performance.now() };
    const consequence =
      this.#options.onFailure === 'refuse'
        ? 'requests are refused until the audit log can be written'
        : 'requests are served without a record until the audit log can be written';
    log.error({ ...error }, consequence);
  }

  #resumed({ error, since }: { readonly error: WriteError; readonly since: number }): void {
    const details = { ...error, milliseconds: Math.round(performance.now() - since), ...this.#missing };
    Object.assign(this.#missing, { refused: 0, unrecorded: 0, lost: 0 });
    this.#deps.log.info(details, 'audit log writable again');
    this.admin('audit-resumed', details);
  }

  #onSeal(head: Head): void {
    this.#head = head;
    const now = performance.now();
    if (this.#headLogged !== 0 && now - this.#headLogged < HEAD_EVERY_MS) return;
    this.#headLogged = now;
    this.#logHead();
  }

  /** Logs the head: kept elsewhere, it later shows that the end of the audit log was cut off. */
  #logHead(): void {
    const checkpoint = this.signed?.checkpoint;
    const isLogged = this.#head === this.#loggedHead && checkpoint === this.#loggedCheckpoint;
    if (this.#head === undefined || isLogged) return;
    this.#loggedHead = this.#head;
    this.#loggedCheckpoint = checkpoint;
    const signed = checkpoint === undefined ? {} : { checkpoint };
    this.#deps.log.info({ head: formatHead(this.#head), ...signed }, 'audit head');
  }

  #recordRecovery(recovered: Recovered): Promise<unknown> {
    const { nextSeq, setAside, damaged, otherKey, otherSigner, unsigned, tree } = recovered;
    const { log, chain } = this.#deps;
    const written: Promise<boolean>[] = [];
    if (this.#deps.isBegunAnew) {
      written.push(this.adminWritten('log-begun-anew', {}));
      const msg = 'the audit log of the primary process is missing, and there are logs of its workers';
      log.error(`${msg}: run audit verify`);
    }
    if (damaged !== undefined) {
      const { segment, error } = damaged;
      const { line, kind, message } = error;
      written.push(this.adminWritten('segment-damaged', { segment, line, error: kind, message }));
      log.error({ segment, line, error: kind, message }, 'the audit log was changed: run audit verify');
    }
    if (otherKey !== undefined) {
      const msg = 'audit log was sealed with another key; that part was not checked';
      const isUnproven = this.#options.signingKey !== undefined && tree === undefined;
      if (isUnproven)
        log.warn({ before: otherKey, first: nextSeq }, `${msg}, and a new tree of signed heads begins`);
      else log.info({ before: otherKey }, msg);
    }
    if (otherSigner) written.push(this.adminWritten('signing-key-changed', {}));
    if (unsigned > 0) {
      const details = { first: nextSeq - unsigned, last: nextSeq - 1 };
      written.push(this.adminWritten('signed-at-start', details));
      log.warn(details, 'the end of the audit log was under no signed head, and is signed now');
    }
    for (const details of setAside) {
      written.push(this.adminWritten('recovered', { ...details }));
      if (details.afterStop) log.error(details, 'audit log was appended to after its process had stopped');
      else if (chain.writable) log.warn(details, 'the end of the audit log had no seal and was set aside');
      else log.warn(details, 'the end of the audit log has no seal and is set aside when the disk has room');
    }
    return Promise.all(written);
  }

  #adminText(event: string, details: AdminDetails, at: number): string {
    const { address, client = '' } = details;
    const hiding = this.#pseudonyms;
    if (hiding === undefined || typeof address !== 'string') return this.#text.admin(event, details);
    return this.#text.admin(event, { ...details, address: hiding.address(address, String(client), at) });
  }

  #retire(retired: Retirement): Promise<boolean> {
    const { last, hmac } = retired;
    const { chain } = this.#deps;
    const written = this.adminWritten('segment-retired', { ...retired }, () => {
      chain.retired = { last, hmac };
    });
    // In one write with its head: nobody believes a retirement that a start has found under none.
    chain.signWith(this.#journal.lastSeq);
    return written;
  }
}

/** A waiter that goes on with or without a record. */
function lenient(waiter: Waiter): Waiter {
  const goOn = (): void => waiter.recorded();
  return { recorded: goOn, unrecorded: goOn };
}

function integrityErrorOf(
  replica: string,
  { damaged, setAside }: Recovered,
  isBegunAnew: boolean,
): PlacedFinding | undefined {
  if (isBegunAnew) return { ...finding('primary-missing'), replica, segment: '', line: 0 };
  if (damaged !== undefined) return { ...damaged.error, replica, segment: damaged.segment };
  const foreign = setAside.find(({ afterStop }) => afterStop);
  if (foreign === undefined) return undefined;
  const { segment, line, lines: records } = foreign;
  return { ...finding('appended-after-stop', { records }), replica, segment, line };
}
