import { join } from 'node:path';
import type { Audit, AuditExternals, AuditOptions, Waiter } from '../audit.ts';
import { type AuditKeys, auditKeys } from '../keys.ts';
import {
  type AccessFacts,
  type AdminDetails,
  type OutcomeFacts,
  RecordText,
  recordedTarget,
} from '../record.ts';
import { formatHead, type Head } from '../seal.ts';
import type { Retired } from '../segments/archive.ts';
import type { Recovered } from '../segments/recovery.ts';
import { Upkeep } from '../segments/retention.ts';
import { ChainWriter } from './chain-writer.ts';
import { Departure } from './departure.ts';
import { Journal } from './journal.ts';
import { Pseudonyms } from './pseudonyms.ts';
import { RecentRecords } from './recent.ts';
import { RefusalSample } from './refusal-sample.ts';

/** How long a record may take to be written, in milliseconds. */
const DEADLINE_MS = 1000;
/** Between two heads in the log, in milliseconds. */
const HEAD_EVERY_MS = 60_000;

/**
 * Opens the audit log of this process.
 * @throws Error that says what to do when another process writes there, or the directory cannot be used
 */
export async function openAudit(options: AuditOptions, externals: AuditExternals): Promise<Audit> {
  const { directory, replica, durability } = options;
  const keys = auditKeys(options.key);
  const folder = join(directory, replica);
  const { chain, recovered } = await ChainWriter.open({
    folder,
    replica,
    keys,
    sync: durability === 'fsync',
  });
  const audit = new FileAudit(options, { chain, recovered, folder, keys }, externals);
  await audit.recoveryRecorded;
  return audit;
}

interface Parts {
  readonly chain: ChainWriter;
  readonly recovered: Recovered;
  readonly folder: string;
  readonly keys: AuditKeys;
}

class FileAudit implements Audit {
  readonly #options: AuditOptions;
  readonly #externals: AuditExternals;
  readonly #journal: Journal;
  readonly #chain: ChainWriter;
  readonly #keys: AuditKeys;
  #byValue: ReadonlySet<string> = new Set();
  readonly #text: RecordText;
  #pseudonyms: Pseudonyms | undefined;
  /**
   * Resolves when the log says what its start found, or cannot be written. A process that is killed before that would
   * leave lines of a stranger beside the log, and nothing sealed that tells of them.
   */
  readonly recoveryRecorded: Promise<unknown>;
  readonly #refusals = new RefusalSample((leftOut) => this.admin('refusals-left-out', { ...leftOut }));
  readonly #upkeep: Upkeep;
  readonly #departure = new Departure();
  #closed = false;
  #head: Head | undefined;
  #headLogged = 0;
  #outage: { readonly reason: string; readonly since: number } | undefined;
  readonly #missing = { refused: 0, unrecorded: 0, lost: 0 };
  readonly enabled = true;
  readonly counts = { records: 0, failures: 0 };
  readonly recent = new RecentRecords();
  readonly damage: string | undefined;

  constructor(options: AuditOptions, { chain, recovered, folder, keys }: Parts, externals: AuditExternals) {
    this.#options = options;
    this.#externals = externals;
    this.#chain = chain;
    this.#text = new RecordText(options.replica);
    this.#keys = keys;
    this.configure(options);
    this.#journal = new Journal(
      chain,
      recovered.nextSeq,
      { deadlineMs: DEADLINE_MS, segment: options.segment },
      {
        onState: (reason) => this.#onState(reason),
        onSeal: (head) => this.#onSeal(head),
        onRecord: (seq, at, record) => this.recent.add(seq, at, record),
        onUnrecorded: (count) => this.#countUnrecorded(count),
        onClosed: () => this.#upkeep.begin(),
      },
    );
    this.#upkeep = new Upkeep({
      archive: { folder, replica: options.replica, keys },
      keep: options.segment.keep,
      log: externals.log,
      retired: () => chain.retired,
      onRetire: (retired) => this.#retire(retired),
      onFailure: () => {
        this.counts.failures += 1;
      },
    });
    this.damage = damageOf(recovered);
    this.recoveryRecorded = this.#recordRecovery(recovered);
    this.#upkeep.begin();
  }

  get failing(): string | undefined {
    return this.#journal.failing;
  }

  get sink() {
    return this.#externals.sink;
  }

  get refusing(): boolean {
    return this.#options.onFailure === 'refuse' && this.#journal.failing !== undefined;
  }

  access(facts: AccessFacts, waiter: Waiter): number {
    const { durability, onFailure } = this.#options;
    const text = (): string => this.#accessText(facts);
    if (durability === 'async') {
      this.#departure.add(waiter);
      return this.#append(text);
    }
    return this.#append(text, onFailure === 'refuse' ? waiter : lenient(waiter));
  }

  refusal(facts: AccessFacts, waiter: Waiter): number {
    if (this.#refusals.admits(facts.client, this.#shown(facts.address))) return this.access(facts, waiter);
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
    const record = this.#text.admin(event, details);
    this.#append(() => record);
    this.#journal.hurry();
  }

  async close(event?: 'stop'): Promise<void> {
    this.#upkeep.stop();
    this.#refusals.flush();
    await this.#upkeep.idle;
    if (event !== undefined) this.admin(event, {});
    this.#closed = true;
    await this.#journal.close();
    await this.#externals.sink?.close();
    await this.#upkeep.idle;
    this.#logHead();
  }

  configure(options: Pick<AuditOptions, 'parameters' | 'pseudonymise'> | undefined): void {
    if (options === undefined) return;
    this.#byValue = new Set(options.parameters);
    if (!options.pseudonymise.includes('address')) this.#pseudonyms = undefined;
    else this.#pseudonyms ??= new Pseudonyms(this.#keys);
  }

  #accessText(facts: AccessFacts): string {
    const { path, parameters, cut } = recordedTarget(facts.target, this.#byValue);
    return this.#text.access(facts, { address: this.#shown(facts.address), path, parameters, cut });
  }

  #append(text: () => string, waiter?: Waiter): number {
    if (this.#closed || this.#journal.full) {
      this.#missing.lost += 1;
      this.counts.failures += 1;
      waiter?.unrecorded();
      return 0;
    }
    this.counts.records += 1;
    return this.#journal.append(text, waiter);
  }

  #countUnrecorded(count: number): void {
    this.#missing.unrecorded += count;
    this.counts.failures += count;
  }

  #shown(address: string): string {
    return this.#pseudonyms === undefined ? address : this.#pseudonyms.of(address);
  }

  #onState(reason: string | undefined): void {
    const { log } = this.#externals;
    if (reason === undefined) {
      if (this.#outage !== undefined) this.#resumed(this.#outage);
      this.#outage = undefined;
      return;
    }
    if (this.#outage === undefined) this.counts.failures += 1;
    this.#outage ??= { reason, since: performance.now() };
    const consequence =
      this.#options.onFailure === 'refuse'
        ? 'requests are refused until the audit log can be written'
        : 'requests are served without a record until the audit log can be written';
    log.error({ reason }, consequence);
  }

  #resumed({ reason, since }: { readonly reason: string; readonly since: number }): void {
    const details = { reason, milliseconds: Math.round(performance.now() - since), ...this.#missing };
    Object.assign(this.#missing, { refused: 0, unrecorded: 0, lost: 0 });
    this.#externals.log.info(details, 'the audit log can be written again');
    this.admin('audit-resumed', details);
  }

  #onSeal(head: Head): void {
    this.#head = head;
    this.#externals.sink?.sealed(head);
    const now = performance.now();
    if (this.#headLogged !== 0 && now - this.#headLogged < HEAD_EVERY_MS) return;
    this.#headLogged = now;
    this.#logHead();
  }

  /** Kept with the log, it shows later that the end of the audit log was cut off. */
  #logHead(): void {
    if (this.#head !== undefined) this.#externals.log.info({ head: formatHead(this.#head) }, 'audit log');
  }

  #recordRecovery({ setAside, damaged, otherKey }: Recovered): Promise<unknown> {
    const { log } = this.#externals;
    const written: Promise<boolean>[] = [];
    if (damaged !== undefined) {
      const { segment, fault } = damaged;
      const details = { segment, line: fault.line, fault: fault.message };
      written.push(this.#adminWritten('segment-damaged', details));
      log.error({ segment, ...fault }, 'the audit log was changed: run audit verify');
    }
    if (otherKey !== undefined) {
      log.info(
        { before: otherKey },
        'another key sealed the audit log so far; what it sealed was not checked',
      );
    }
    for (const details of setAside) {
      written.push(this.#adminWritten('recovered', { ...details }));
      if (details.afterStop) log.error(details, 'the audit log was written to after its process had stopped');
      else log.warn(details, 'the end of the audit log had no seal and was set aside');
    }
    return Promise.all(written);
  }

  /** Resolves to whether the record is in the file. */
  #adminWritten(event: string, details: AdminDetails, onRecorded?: () => void): Promise<boolean> {
    return new Promise((resolve) => {
      const recorded = (): void => {
        onRecorded?.();
        resolve(true);
      };
      const record = this.#text.admin(event, details);
      this.#append(() => record, { recorded, unrecorded: () => resolve(false) });
    });
  }

  #retire(retired: Retired): Promise<boolean> {
    const { last, hmac } = retired;
    return this.#adminWritten('segment-retired', { ...retired }, () => {
      this.#chain.retired = { last, hmac };
    });
  }
}

/** Goes on whether there is a record or not. */
function lenient(waiter: Waiter): Waiter {
  const goOn = (): void => waiter.recorded();
  return { recorded: goOn, unrecorded: goOn };
}

function damageOf({ damaged, setAside }: Recovered): string | undefined {
  if (damaged !== undefined)
    return `${damaged.segment}, line ${damaged.fault.line}: ${damaged.fault.message}`;
  const foreign = setAside.find(({ afterStop }) => afterStop);
  return foreign && `${foreign.segment}, line ${foreign.line}: was written after the process had stopped`;
}
