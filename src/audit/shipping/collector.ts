import { constants, type FileHandle, lstat, open, stat } from 'node:fs/promises';
import { dirname } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { z } from 'zod';
import { syncDirectoryIfPossible } from '../../base/durable-file.ts';
import { messageOf } from '../../base/error-code.ts';
import { ignoreAbort, ignoreAbsent, reportDefect } from '../../base/expected-errors.ts';
import { parseJson } from '../../base/json.ts';
import type { AuditKeys } from '../keys.ts';
import { linesOf, recordsIn } from '../line.ts';
import { checkSeal, parseSeal, type Seal } from '../seal.ts';
import { type Lock, lockFile } from '../segments/replica-folder.ts';
import { readBlocks } from '../segments/segment-reader.ts';
import type { RedisStream, StreamEntry, StreamRead } from './redis-stream.ts';

/** Pause after a failure of Redis, in milliseconds. */
const RETRY_MS = 250;
/** The consumer name, always the same, so that a new process finds the entries that the previous one had received. */
const CONSUMER = 'collector';
/** Records of a replica whose times are remembered, at least: a crash loses what a disk has not written yet. */
const MIN_RECENT = 65_536;

interface CollectorDeps {
  readonly stream: RedisStream;
  readonly progress: CollectionProgress;
  /** Stores lines durably; their entries are acknowledged when it resolves. */
  readonly write: (text: string) => Promise<void>;
  /** Called with the reason when Redis cannot be read; with undefined when it can. */
  readonly onState: (reason: string | undefined) => void;
}

/**
 * Collects the entries of the stream until the signal is aborted. Each consumer group receives every entry.
 * @throws Error if `write` does
 */
export async function collect(group: string, deps: CollectorDeps, signal: AbortSignal): Promise<void> {
  const { stream, onState } = deps;
  let failing = true;
  let taken = true;
  while (!signal.aborted) {
    let read: StreamRead;
    try {
      // Redis may have restarted without the group.
      if (failing) await stream.openGroup(group);
      read = await stream.read(group, CONSUMER, taken ? 'taken' : 'new');
    } catch (error) {
      failing = true;
      // Entries may have been delivered when the connection failed.
      taken = true;
      onState(messageOf(error));
      await delay(RETRY_MS, undefined, { signal }).catch(ignoreAbort);
      continue;
    }
    if (failing) onState(undefined);
    failing = false;
    taken = await store(group, deps, read, taken);
  }
}

/** Stores and acknowledges entries; resolves to true if there may be more that were delivered and not acknowledged. */
async function store(
  group: string,
  { stream, progress, write }: CollectorDeps,
  { entries, more }: StreamRead,
  taken: boolean,
): Promise<boolean> {
  if (entries.length === 0) return more;
  const text = entries.map((entry) => progress.take(entry)).join('');
  if (text !== '') await write(text);
  const ids = entries.map(({ id }) => id);
  // Entries that are not acknowledged come again, and are recognised.
  await stream.acknowledge(group, ids).catch(reportDefect);
  return more || taken;
}

interface Timed {
  readonly seq: number;
  readonly time: string;
}

/**
 * The exact times of the records of a replica that were collected last. A record that comes again has the same time;
 * one that a machine wrote instead of a lost one has another, which is earlier if the clock was ahead before.
 */
class RecentTimes {
  /** Times of records with ascending numbers, in the order in which they were collected. */
  readonly #runs: { first: number; times: number[] }[] = [];
  #size = 0;
  #forgotten = 0;

  /** The highest number of a record whose time is no longer remembered. */
  get forgotten(): number {
    return this.#forgotten;
  }

  add({ seq, time }: Timed): void {
    const run = this.#runs.at(-1);
    const next = run === undefined ? 1 : run.first + run.times.length;
    if (run !== undefined && seq === next) run.times.push(Date.parse(time));
    else this.#runs.push({ first: seq, times: [Date.parse(time)] });
    // The records in between were collected to an earlier file, or never: their times are not known.
    if (seq > next) this.#forgotten = Math.max(this.#forgotten, seq - 1);
    this.#size += 1;
    // Not with each record: what follows in a run is moved.
    if (this.#size > 2 * MIN_RECENT) this.#forget(this.#size - MIN_RECENT);
  }

  has({ seq, time }: Timed): boolean {
    const wanted = Date.parse(time);
    return this.#runs.some(({ first, times }) => times[seq - first] === wanted);
  }

  #forget(count: number): void {
    for (let left = count; left > 0; ) {
      const run = this.#runs[0];
      if (run === undefined) return;
      const part = Math.min(left, run.times.length);
      this.#forgotten = Math.max(this.#forgotten, run.first + part - 1);
      run.first += part;
      run.times.splice(0, part);
      if (run.times.length === 0) this.#runs.shift();
      this.#size -= part;
      left -= part;
    }
  }
}

/** How far one replica's log was collected. */
interface Reached {
  readonly seq: number;
  /** The latest times of its records: the last record, and before it each that is later than all that follow. */
  readonly times: readonly Timed[];
  readonly recent: RecentTimes;
  /** Number of the last record for which a head was collected. */
  readonly head: number;
}

function nothing(): Reached {
  return { seq: 0, times: [], recent: new RecentTimes(), head: 0 };
}

interface ProgressOptions {
  readonly keys: readonly AuditKeys[];
  /** How far earlier runs collected. */
  readonly reached: Iterable<readonly [replica: string, Reached]>;
  /** Called if records are missing, or come again with another content. */
  readonly onNote: (note: string) => void;
  /** Called for an entry that no gateway wrote, or that was changed; it is left out. */
  readonly onRejected: (id: string, reason: string) => void;
}

/**
 * How far each replica's log was collected, so that nothing is collected twice. Only batches under a seal of a key count,
 * so a forged entry changes nothing.
 */
export class CollectionProgress {
  readonly #replicas: Map<string, Reached>;
  readonly #options: ProgressOptions;

  constructor(options: ProgressOptions) {
    this.#options = options;
    this.#replicas = new Map(options.reached);
  }

  get replicas(): ReadonlyMap<string, Reached> {
    return this.#replicas;
  }

  /** The new records of an entry as lines with their line ends, and a line with the head if the entry asks for it. */
  take(entry: StreamEntry): string {
    if (entry.gone) return '';
    const { replica, anchor } = entry;
    const lines = Buffer.from(entry.lines);
    const seal = this.#sealOf(entry, lines);
    if (seal === undefined) return '';
    const before = this.#replicas.get(replica) ?? nothing();
    const fresh = recordsIn(lines).filter((record) => isNew(before, record));
    const last = fresh.at(-1);
    if (last === undefined) return '';
    this.#tell(replica, before, fresh[0]?.seq ?? last.seq);
    const told = anchor && last.seq > Math.min(before.head, last.seq - 1);
    const head = told ? last.seq : Math.min(before.head, last.seq);
    this.#replicas.set(replica, { ...fresh.reduce(withRecord, before), head });
    const end = told ? `${JSON.stringify({ kind: 'head', replica, seq: seal.last, hmac: seal.hmac })}\n` : '';
    return `${fresh.map(({ line }) => `${line}\n`).join('')}${end}`;
  }

  #tell(replica: string, before: Reached, first: number): void {
    if (first <= before.seq) {
      this.#options.onNote(
        `${replica}: record ${first} comes a second time with another content: its log lost its end, or two gateways have its name`,
      );
    } else if (before.seq > 0 && first > before.seq + 1) {
      this.#options.onNote(
        `${replica}: records ${before.seq + 1} to ${first - 1} are no longer in the stream: they are in its files`,
      );
    }
  }

  /** The seal of an entry, if a key made it for these lines. */
  #sealOf({ id, replica, seal: line, previous, tooLarge }: StreamEntry, lines: Buffer): Seal | undefined {
    const seal = parseSeal(line);
    const reject = (reason: string): undefined => void this.#options.onRejected(id, reason);
    if (tooLarge) return reject('it is larger than a batch can be');
    if (seal === undefined) return reject('it has no seal');
    const { fits, authentic } = checkSeal(this.#options.keys, { replica, previous }, seal, lines);
    if (!fits) return reject('its lines are not those of its seal');
    return authentic ? seal : reject('no key that is known made its seal');
  }
}

/**
 * False: the record was collected. One with the same number may be another: the machine lost the end of its log and
 * wrote other records instead. Of records of long ago, only those that are later are taken for such ones.
 */
function isNew({ times, recent }: Reached, record: Timed): boolean {
  if (recent.has(record)) return false;
  return record.seq > recent.forgotten || record.time > latestFrom(times, record.seq);
}

/** The latest time of the records from that number on; all have the same length, so comparing texts compares times. */
function latestFrom(times: readonly Timed[], from: number): string {
  return times.find(({ seq }) => seq >= from)?.time ?? '';
}

/** A record of a clock that was ahead says nothing about those that follow, so only it is kept beside them. */
function withTime(times: readonly Timed[], { seq, time }: Timed): readonly Timed[] {
  return [...times.filter((before) => before.time > time), { seq, time }];
}

function withRecord(before: Reached, record: Timed): Reached {
  before.recent.add(record);
  return { ...before, seq: record.seq, times: withTime(before.times, record) };
}

const line = z.object({
  kind: z.string(),
  replica: z.string(),
  seq: z.number(),
  time: z.string().optional(),
});

/** How lines begin: those of records, with any number, and those of heads. */
const LINE_STARTS = ['{"seq":1,"time":"', '{"kind":"head","replica":"'] as const;

/** How often lines are written when their file is moved away each time. */
const MAX_WRITES = 10;

interface OpenFile {
  readonly file: FileHandle;
  readonly lock: Lock;
  /** Bytes that it has at least, unless something cuts it off. */
  readonly size: number;
}

/**
 * The file that the records of all replicas are collected in, by one collector. Its lines say how far that has got. Once
 * it is moved away, a new file of its name gets the next lines.
 */
export class CollectedFile {
  readonly #path: string;
  #open: OpenFile;
  /** How far each replica had been collected when the file was opened. */
  readonly reached: ReadonlyMap<string, Reached>;

  private constructor(path: string, open: OpenFile, reached: ReadonlyMap<string, Reached>) {
    this.#path = path;
    this.#open = open;
    this.reached = reached;
  }

  /**
   * Opens or creates the file, and reads it to its end. An incomplete line of a collector that was killed is cut off.
   * @throws Error if another collector writes to it, or it holds anything else; it says what to do
   */
  static async open(path: string): Promise<CollectedFile> {
    const reached = new Map<string, Reached>();
    return new CollectedFile(path, await openCollected(path, reached), reached);
  }

  /**
   * Appends lines; resolves when they are durable in the file that has the name.
   * @throws Error if the file was cut off, or a new one cannot be opened; it says what to do
   */
  async append(text: string): Promise<void> {
    for (let left = MAX_WRITES; left > 0; left -= 1) {
      if (await this.#appendToNamed(text)) return;
      await this.close();
      this.#open = await openCollected(this.#path, new Map());
    }
    throw new Error(`${this.#path} is moved away each time it is written to: name a file in another folder`);
  }

  async close(): Promise<void> {
    this.#open.lock.release();
    await this.#open.file.close();
  }

  /** False: the file no longer has the name, and got none of the lines. */
  async #appendToNamed(text: string): Promise<boolean> {
    const { file } = this.#open;
    const before = await this.#namedSize();
    if (before === undefined) return false;
    await file.appendFile(text);
    await file.datasync();
    this.#open = { ...this.#open, size: before + Buffer.byteLength(text) };
    if ((await this.#namedSize()) !== undefined) return true;
    // Another program may have compressed the moved file without these lines, and removed it.
    await file.truncate(before);
    return false;
  }

  /** The size of the file; undefined: it no longer has the name. @throws Error if it was cut off */
  async #namedSize(): Promise<number | undefined> {
    const own = await this.#open.file.stat({ bigint: true });
    const named = await lstat(this.#path, { bigint: true }).catch(ignoreAbsent);
    if (named?.dev !== own.dev || named.ino !== own.ino) return undefined;
    if (own.size >= this.#open.size) return Number(own.size);
    const remedy = 'move it away instead (logrotate without copytruncate), and start again';
    throw new Error(`${this.#path} was cut off by another program, so records may be lost: ${remedy}`);
  }
}

async function openCollected(path: string, reached: Map<string, Reached>): Promise<OpenFile> {
  // The error names the folder, not the lock.
  await stat(dirname(path));
  const owner = 'belongs to another audit export that is running: stop that one, or name another file';
  const lock = lockFile(`${path}.lock`, `${path} ${owner}`);
  try {
    const flags = constants.O_WRONLY | constants.O_APPEND | constants.O_CREAT;
    const file = await open(path, flags, 0o600);
    try {
      const size = await readCollected(path, reached);
      await file.truncate(size);
      // Entries are acknowledged once they are in the file, so the name of a new one must be durable before.
      if (size === 0) await syncDirectoryIfPossible(dirname(path));
      return { file, lock, size };
    } catch (error) {
      await file.close();
      throw error;
    }
  } catch (error) {
    lock.release();
    throw error;
  }
}

/** Notes the progress of the lines in a file; resolves to the end of the last whole one. */
async function readCollected(path: string, reached: Map<string, Reached>): Promise<number> {
  let end = 0;
  for await (const { bytes, whole } of readBlocks(path)) {
    if (whole ? !noteAll(bytes, reached) : !beginsLine(bytes)) {
      throw new Error(`${path} holds something else than records of an audit log: name another file`);
    }
    if (whole) end += bytes.length;
  }
  return end;
}

/** Notes the progress of lines; false: a line is not a collector's. */
function noteAll(bytes: Buffer, reached: Map<string, Reached>): boolean {
  for (const [start, end] of linesOf(bytes)) {
    if (!note(bytes.toString('utf8', start, end), reached)) return false;
  }
  return true;
}

/** True if an incomplete line may be a collector's. */
function beginsLine(bytes: Buffer): boolean {
  const text = bytes.toString('latin1', 0, 64).replace(/^\{"seq":\d+/, '{"seq":1');
  return LINE_STARTS.some((start) => start.startsWith(text.slice(0, start.length)));
}

/** Notes the progress of a line; false: it is not a collector's. */
function note(text: string, reached: Map<string, Reached>): boolean {
  const parsed = line.safeParse(parseJson(text));
  if (!parsed.success) return false;
  const { kind, replica, seq, time = '' } = parsed.data;
  const before = reached.get(replica) ?? nothing();
  if (kind === 'head') reached.set(replica, { ...before, head: seq });
  else reached.set(replica, withRecord(before, { seq, time }));
  return true;
}
