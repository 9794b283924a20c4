import { stat } from 'node:fs/promises';
import { monotonicClock } from '../../base/clock.ts';
import { errorCode, messageOf } from '../../base/error-code.ts';
import type { Log } from '../../base/log.ts';
import { Throttle } from '../../base/throttle.ts';
import type { PseudonymOptions } from '../audit.ts';
import { type KeyScope, newKeyId, newKeyText, PseudonymKey } from '../pseudonym.ts';
import type { RecordedParameters } from '../record.ts';
import {
  type FolderState,
  type ForgottenKey,
  folderState,
  loadKeys,
  markRecorded,
  readForgotten,
  removeLeftOver,
  storeKeys,
} from '../segments/pseudonym-files.ts';
import { makeFolder } from '../segments/replica-folder.ts';

/** Clients or addresses that have a key of their own; the values of further ones are under the key of the month. */
const MAX_SUBJECTS = 20_000;
/** Least time between two log lines about values without a key of their own, in milliseconds. */
const SHARED_EVERY_MS = 3_600_000;
const SHARED =
  'clients or addresses have no pseudonym key of their own: audit forget forgets them with the month only';
/** Pseudonyms of addresses that are cached. Most identifiers come once. */
const MAX_CACHED = 4096;
/** A folder can change within the same tick of its file system's clock, in milliseconds. */
const SETTLED_MS = 2000;
/** Destroyed keys that are recorded at once. */
const MAX_FORGOTTEN = 100;

const NONE: ReadonlySet<string> = new Set();
/** For what is missing: only then does a restart help. */
const RESTORE = 'restore the folder, or restart the gateway to begin new keys';

/** The folder with the keys cannot be used, so nothing can be recorded. */
class PseudonymKeyError extends Error {
  override readonly name = 'PseudonymKeyError';
  readonly code = 'pseudonym-keys';

  constructor(folder: string, reason: string, cause?: unknown) {
    super(`the keys of pseudonyms in ${folder} cannot be used: ${reason}`, { cause });
  }
}

/**
 * Hides values in the records of one process. A key is made in memory when it is first needed; `ready` stores it before
 * the first record under it is written.
 */
export class PseudonymWriter {
  /** That of this process alone. */
  readonly #folder: string;
  /** The values that one key hides: those of a month, a client, or an address. */
  readonly #scope: KeyScope;
  #hidesAddress = false;
  #parameters: ReadonlySet<string> = new Set();
  readonly #keys = new Map<string, PseudonymKey>();
  #unsaved: PseudonymKey[] = [];
  /** True: some of `#unsaved` may be in the folder, since an attempt to store them failed. */
  #isPartlyStored = false;
  /** Ids of keys that are in the folder. */
  readonly #saved = new Set<string>();
  #storing: Promise<void> | undefined;
  #isLoaded = false;
  #failure: PseudonymKeyError | undefined;
  /** When the folder was changed, as far as it was read since; Unix milliseconds. */
  #readAt = Number.NaN;
  #month = '';
  /** The one before it, whose last records may get their text only now. */
  #earlier = '';
  #monthStart = 0;
  #monthEnd = 0;
  readonly #addresses = new Cache();
  readonly #log: Pick<Log, 'warn'>;
  /** Of log lines about values without a key of their own. */
  readonly #sharedLines = new Throttle(monotonicClock, 1, SHARED_EVERY_MS);

  constructor(
    folder: string,
    { per, fields }: Pick<PseudonymOptions, 'per' | 'fields'>,
    log: Pick<Log, 'warn'>,
  ) {
    this.#folder = folder;
    this.#scope = per;
    this.#log = log;
    this.fields = fields;
  }

  /** The fields that are hidden: `address`, and parameters by name as `parameters.NAME`. */
  set fields(fields: readonly string[]) {
    this.#hidesAddress = fields.includes('address');
    const names = fields.filter((field) => field !== 'address');
    this.#parameters = new Set(names.map((field) => field.slice('parameters.'.length)));
  }

  /** The address as a record of that time has it. `client`: its client; empty: none. `at`: Unix milliseconds. */
  address(address: string, client: string, at: number): string {
    if (!this.#hidesAddress || address === '') return address;
    return this.#addresses.hidden(this.#keyFor(client, address, at), address);
  }

  /** Replaces the values of parameters by what a record of that time has of them. `at`: Unix milliseconds. */
  hideParameters(parameters: RecordedParameters, client: string, address: string, at: number): void {
    for (const name of this.#parameters) {
      const value = parameters.get(name);
      if (value === undefined || value === null) continue;
      const key = this.#keyFor(client, address, at);
      const hidden = (each: string): string => key.hide(each);
      parameters.set(name, typeof value === 'string' ? hidden(value) : value.map(hidden));
    }
  }

  /** A criterion of a search as it is recorded: it can be a value that is hidden elsewhere. */
  criterion(value: string): string {
    return this.#keyFor('', '', Date.now()).hide(value);
  }

  /**
   * Undefined: the keys of all records that have their text are stored. Otherwise rejects with PseudonymKeyError, or
   * resolves when those are stored that were made before: ask again.
   */
  ready(): Promise<void> | undefined {
    if (this.isReady) return undefined;
    this.#storing ??= this.#store().finally(() => {
      this.#storing = undefined;
    });
    return this.#storing;
  }

  /** True: the keys of all records that have their text are stored. */
  get isReady(): boolean {
    return this.#isLoaded && this.#unsaved.length === 0 && this.#failure === undefined;
  }

  /**
   * Makes the folder, and reads the keys that it has.
   * @throws PseudonymKeyError
   */
  async load(): Promise<void> {
    try {
      await makeFolder(this.#folder);
      const keys = await loadKeys(this.#folder);
      await removeLeftOver(this.#folder, await folderState(this.#folder));
      for (const key of keys.sort((a, b) => b.made - a.made)) this.#adopt(key);
      this.#isLoaded = true;
    } catch (error) {
      throw this.#error(error);
    }
  }

  /**
   * Looks whether somebody changed the folder. A key that was destroyed is not used again; one that is missing otherwise
   * makes `ready` reject until it is back.
   * @returns the keys that were destroyed, which the audit log does not say yet
   */
  async refresh(): Promise<ForgottenKey[]> {
    if (!this.#isLoaded) return [];
    try {
      const saved = new Set(this.#saved);
      const { mtimeMs } = await stat(this.#folder);
      if (mtimeMs === this.#readAt && this.#failure === undefined) return [];
      const state = await folderState(this.#folder);
      this.#dropDestroyed(state);
      const missing = [...saved].find((id) => this.#saved.has(id) && !state.keys.has(id));
      this.#failure =
        missing === undefined ? undefined : this.#error(new Error(`key ${missing} is missing; ${RESTORE}`));
      const forgotten = state.unrecorded.slice(0, MAX_FORGOTTEN);
      const isSettled = Date.now() - mtimeMs > SETTLED_MS && forgotten.length === 0;
      this.#readAt = isSettled ? mtimeMs : Number.NaN;
      return await Promise.all(forgotten.map((id) => readForgotten(this.#folder, id)));
    } catch (error) {
      this.#failure = this.#error(error);
      return [];
    }
  }

  /** Remembers that the audit log says that the key was destroyed. @throws Error of the file system */
  recorded({ key }: ForgottenKey): Promise<void> {
    return markRecorded(this.#folder, key);
  }

  async #store(): Promise<void> {
    if (!this.#isLoaded) await this.load();
    if (this.#failure !== undefined) await this.refresh();
    if (this.#failure !== undefined) throw this.#failure;
    let keys: PseudonymKey[];
    try {
      const stored = this.#isPartlyStored ? await this.#partlyStored() : NONE;
      keys = [...this.#unsaved];
      this.#isPartlyStored = true;
      const lacking = keys.filter(({ id }) => !stored.has(id));
      await storeKeys(this.#folder, lacking);
      this.#isPartlyStored = false;
    } catch (error) {
      throw this.#error(error);
    }
    for (const { id } of keys) this.#saved.add(id);
    this.#unsaved = this.#unsaved.filter((key) => !keys.includes(key));
  }

  /**
   * Ids of the keys that an attempt which failed has stored. Written again, one that was destroyed since would be back.
   */
  async #partlyStored(): Promise<ReadonlySet<string>> {
    const state = await folderState(this.#folder);
    this.#dropDestroyed(state);
    return state.keys;
  }

  #error(cause: unknown): PseudonymKeyError {
    if (cause instanceof PseudonymKeyError) return cause;
    const remedy = errorCode(cause) === 'ENOENT' ? `; ${RESTORE}` : '';
    return new PseudonymKeyError(this.#folder, messageOf(cause) + remedy, cause);
  }

  #adopt(key: PseudonymKey): void {
    const name = nameOf(key.scope, key.subject);
    if (this.#keys.has(name) || !this.#isOfUse(key)) return;
    this.#keys.set(name, key);
    this.#saved.add(key.id);
  }

  /** Keys of earlier months are for readers only. */
  #isOfUse({ scope, subject }: PseudonymKey): boolean {
    return scope === 'month' ? subject === this.#monthOf(Date.now()) : scope === this.#scope;
  }

  #dropDestroyed({ destroyed }: FolderState): void {
    for (const [name, { id }] of this.#keys) if (destroyed.has(id)) this.#keys.delete(name);
    for (const id of destroyed) this.#saved.delete(id);
    this.#unsaved = this.#unsaved.filter(({ id }) => !destroyed.has(id));
  }

  /** The key for values of a request. Of an unknown client, no address has its own: anybody can send from many. */
  #keyFor(client: string, address: string, at: number): PseudonymKey {
    if (this.#scope !== 'month' && client !== '') {
      const subject = this.#scope === 'client' ? client : address;
      const name = nameOf(this.#scope, subject);
      const known = this.#keys.get(name);
      if (known !== undefined) return known;
      if (subject !== '' && this.#keys.size < MAX_SUBJECTS) return this.#newKey(name, this.#scope, subject);
      if (subject !== '') this.#countShared();
    }
    const month = this.#monthOf(at);
    const name = nameOf('month', month);
    return this.#keys.get(name) ?? this.#newKey(name, 'month', month);
  }

  #countShared(): void {
    const suppressed = this.#sharedLines.admit(SHARED);
    if (suppressed === undefined) return;
    this.#log.warn({ per: this.#scope, keys: this.#keys.size, values: suppressed + 1 }, SHARED);
  }

  #newKey(name: string, scope: KeyScope, subject: string): PseudonymKey {
    const key = new PseudonymKey(newKeyId(), { scope, subject, made: Date.now(), secret: newKeyText() });
    this.#keys.set(name, key);
    this.#unsaved.push(key);
    return key;
  }

  /** The month of a record in UTC. Of other months, only the last one's key is kept, and its file is not needed. */
  #monthOf(at: number): string {
    if (at >= this.#monthStart && at < this.#monthEnd) return this.#month;
    const date = new Date(at);
    const month = date.toISOString().slice(0, 7);
    if (month !== this.#earlier) this.#keys.delete(nameOf('month', this.#earlier));
    const before = this.#keys.get(nameOf('month', this.#month));
    if (before !== undefined) this.#saved.delete(before.id);
    const again = this.#keys.get(nameOf('month', month));
    if (again !== undefined && !this.#unsaved.includes(again)) this.#saved.add(again.id);
    this.#earlier = this.#month;
    this.#month = month;
    this.#monthStart = Date.UTC(date.getUTCFullYear(), date.getUTCMonth());
    this.#monthEnd = Date.UTC(date.getUTCFullYear(), date.getUTCMonth() + 1);
    return this.#month;
  }
}

function nameOf(scope: KeyScope, subject: string): string {
  return `${scope} ${subject}`;
}

/** The last pseudonyms by value. */
class Cache {
  readonly #known = new Map<string, { readonly key: PseudonymKey; readonly pseudonym: string }>();

  hidden(key: PseudonymKey, value: string): string {
    const known = this.#known.get(value);
    if (known?.key === key) return known.pseudonym;
    const pseudonym = key.hide(value);
    if (this.#known.size >= MAX_CACHED) this.#known.clear();
    this.#known.set(value, { key, pseudonym });
    return pseudonym;
  }
}
