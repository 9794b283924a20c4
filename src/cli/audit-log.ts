import { resolve } from 'node:path';
import { InvalidArgumentError, Option } from 'commander';
import { findingText, type PlacedFinding } from '../audit/findings.ts';
import { type AuditKeys, auditKeys } from '../audit/keys.ts';
import { PseudonymReader } from '../audit/reader/pseudonym-reader.ts';
import { instantAfter, instantAt, replicaCriterion } from '../audit/reader/query.ts';
import { processOf } from '../audit/replica-name.ts';
import { foldersIn, segmentSizes } from '../audit/segments/segment.ts';
import { BufferGc } from '../base/buffer-gc.ts';
import { messageOf } from '../base/error-code.ts';
import { printable } from '../base/printable.ts';
import { capitalized } from '../base/units.ts';
import { listNames } from '../config/cross-check.ts';
import { ConfigError } from '../config/issues.ts';
import { loadLocated } from '../config/load.ts';
import type { Config } from '../config/schema.ts';
import { SourceReader } from '../credentials/sources.ts';
import type { RedisOptions } from '../redis/connection.ts';
import { readAuditKey } from '../setup/audit.ts';
import { ContentReading, readRedis } from '../setup/content.ts';
import { CommandError, type ExitStatus, type Io, note, processContext } from './io.ts';

/** The options that select a part of the log. */
interface Part {
  readonly replica?: string | undefined;
  readonly from?: string | undefined;
  readonly to?: string | undefined;
}

/** Says where a command looked: what it did not find may be in another folder, or in another time. */
export async function nothingFound(
  directory: string,
  { replica, from, to }: Part,
  what: string,
  predicate = '',
): Promise<string> {
  const folders = await foldersIn(directory, replica);
  if (folders.length === 0) return `nothing found: there is no audit log in ${directory}`;
  const after = from === undefined ? '' : ` from ${from}`;
  const before = to === undefined ? '' : ` before ${to}`;
  const end = predicate === '' ? '' : ` ${predicate}`;
  return `nothing found: ${what} in ${directory} (${printable(listNames(folders))})${after}${before}${end}`;
}

const MIB = 1024 * 1024;
/** Uncompressed bytes before anything is shown, so that a short command shows nothing. */
const SILENT = 16 * MIB;
const SHOWN_EVERY_MS = 100;
/** Puts the cursor of a terminal at the start of its line, and clears the line. */
const CLEAR_LINE = '\x1b[G\x1b[K';

/**
 * A command's reading of an audit log: notes of what is wrong in the log, and, on a terminal, how much has been read, and
 * about how long the rest takes.
 */
export class LogReading implements Disposable {
  readonly #io: Io;
  readonly #gc = new BufferGc();
  readonly #begun = performance.now();
  /** Sizes of the files that are read, in bytes; undefined: the progress is not shown. */
  readonly #sizes: ReadonlyMap<string, number> | undefined;
  #total: number;
  #done = 0;
  #uncompressed = 0;
  #isShown = false;
  #shownAt = Number.NEGATIVE_INFINITY;
  #isIncomplete = false;

  private constructor(io: Io, sizes: ReadonlyMap<string, number> | undefined) {
    this.#io = io;
    this.#sizes = sizes;
    this.#total = [...(sizes?.values() ?? [])].reduce((sum, size) => sum + size, 0);
  }

  /**
   * Begins to read the log of a replica, or of all.
   * @throws Error if a directory cannot be read
   */
  static async of(
    io: Io,
    directory: string,
    { replica, shown = true }: Pick<LogOptions, 'replica' | 'shown'> = {},
  ): Promise<LogReading> {
    const isShown = shown && io.stderr.isTTY === true;
    return new LogReading(io, isShown ? await segmentSizes(directory, replica) : undefined);
  }

  /** Options of the readers of the log. */
  get options() {
    return {
      onBytes: (count: number, stored: number): void => {
        this.#gc.add(count);
        this.#add(count, stored);
      },
      onSkipped: (file: string): void => {
        this.#total -= this.#sizes?.get(file) ?? 0;
      },
      onUnreadable: (finding: PlacedFinding): void => {
        this.#isIncomplete = true;
        this.#note(finding);
      },
      onNote: (finding: PlacedFinding): void => this.#note(finding),
    };
  }

  /** 1: a part of the log could not be read or trusted. */
  get status(): ExitStatus {
    return this.#isIncomplete ? 1 : 0;
  }

  /** Removes the progress from the terminal, before something else is printed. The next bytes show it again. */
  hide(): void {
    if (this.#isShown) this.#io.stderr.write(CLEAR_LINE);
    this.#isShown = false;
  }

  [Symbol.dispose](): void {
    this.hide();
  }

  #note(finding: PlacedFinding): void {
    this.hide();
    note(this.#io, findingText(finding));
  }

  /** Counts a block: its bytes, and how many bytes of the file it took. */
  #add(bytes: number, stored: number): void {
    if (this.#sizes === undefined) return;
    this.#uncompressed += bytes;
    this.#done += stored;
    const now = performance.now();
    if (this.#uncompressed < SILENT || now - this.#shownAt < SHOWN_EVERY_MS) return;
    this.#shownAt = now;
    this.#isShown = true;
    // The segment that a gateway writes to grows meanwhile.
    const total = Math.max(this.#total, this.#done);
    const percentage = Math.floor((this.#done / total) * 100);
    const left = this.#timeLeft(total);
    const text = `${percentage}% of ${Math.ceil(total / MIB)} MiB read, about ${left} left`;
    this.#io.stderr.write(`${CLEAR_LINE}${text}`);
  }

  #timeLeft(total: number): string {
    const seconds = (performance.now() - this.#begun) / 1000;
    const left = this.#done === 0 ? 0 : (seconds * (total - this.#done)) / this.#done;
    if (left < 90) return `${Math.ceil(left)} s`;
    return left < 5_400 ? `${Math.ceil(left / 60)} min` : `${Math.ceil(left / 3_600)} h`;
  }
}

/** The log that a command reads, and how. */
export interface LogOptions extends Part {
  readonly config: string;
  readonly key: readonly string[];
  /** True: pseudonyms stay as they are. */
  readonly asRecorded?: boolean | undefined;
  /** False: the progress is not shown. */
  readonly shown?: boolean | undefined;
}

export type OpenedLog = Awaited<ReturnType<typeof openLog>>;

/**
 * Opens the log that a configuration names, or a part of it; `options` are those of its readers.
 * @throws ConfigError; CommandError if there is no such replica, or no time in that part
 */
export async function openLog(io: Io, given: LogOptions) {
  const { config, key, replica, from, to, asRecorded, shown } = given;
  // That nothing is found there would read as an answer.
  if (from !== undefined && to !== undefined && from >= to) {
    throw new CommandError(2, `--from begins at ${from}, and --to ends at ${to}: no time lies between them`);
  }
  const section = await openAuditConfig(io, config, key);
  const { directory, keys } = section;
  await requireReplica(directory, replica);
  const reading = await LogReading.of(io, directory, { replica, shown });
  const pseudonyms = await openPseudonyms(io, section, asRecorded);
  return {
    section,
    reading,
    options: { directory, keys, pseudonyms, query: { replica, since: from, until: to }, ...reading.options },
    nothing: (what: string, predicate?: string) => nothingFound(directory, given, what, predicate),
    [Symbol.dispose]: () => reading.hide(),
  };
}

/** The audit section of a configuration, with its keys. */
export interface AuditConfig extends Omit<NonNullable<Config['audit']>, 'keyFile' | 'signingKeyFile'> {
  /** The current key first, then earlier keys of the log. */
  readonly keys: readonly [AuditKeys, ...AuditKeys[]];
}

/**
 * Reads the audit section of a configuration file and its key; `more`: files of earlier keys.
 * @throws ConfigError if the configuration is invalid or has no audit section, or a key cannot be read
 */
export async function openAuditConfig(
  io: Io,
  file: string,
  more: readonly string[] = [],
): Promise<AuditConfig> {
  const { config, audit, locate } = await loadAudit(file);
  const { keyFile, signingKeyFile: _, ...section } = audit;
  const reader = new SourceReader(processContext(io), config.sealed);
  const secret = await readAuditKey(keyFile, reader).catch((error: unknown) => {
    throw new ConfigError([locate({ path: ['audit', 'keyFile'], message: messageOf(error) })]);
  });
  const older = await Promise.all(more.map((path) => readOlderKey(resolve(path), reader)));
  return { ...section, keys: [auditKeys(secret), ...older] };
}

/** Reads an earlier key of the log: a new one would check nothing. */
async function readOlderKey(file: string, reader: SourceReader): Promise<AuditKeys> {
  const { secret } = await reader.read({ file, readableByOthers: 'never' }).catch((error: unknown) => {
    throw new CommandError(2, `--key: ${messageOf(error)}`, error);
  });
  try {
    return auditKeys(secret);
  } catch (error) {
    throw new CommandError(2, `--key: ${file} ${messageOf(error)}`, error);
  }
}

/**
 * Returns the audit directory that a command names, or that its configuration names, of which no secret is read.
 * @throws CommandError unless exactly one of both is given; ConfigError if the configuration is invalid
 */
export async function auditDirectory({
  config: file,
  directory,
}: {
  readonly config?: string | undefined;
  readonly directory?: string | undefined;
}): Promise<string> {
  if ((file === undefined) === (directory === undefined)) {
    throw new CommandError(2, 'give either --config or --directory');
  }
  if (file === undefined) return resolve(directory ?? '');
  return (await loadAudit(file)).audit.directory;
}

/** @throws ConfigError if the configuration is invalid or has no audit section */
async function loadAudit(file: string) {
  const { config, locate } = await loadLocated(file);
  if (config.audit !== undefined) return { config, audit: config.audit, locate };
  throw new ConfigError([
    locate({ path: ['audit'], message: 'is missing: the configuration has no audit log' }),
  ]);
}

/** True if a sink sends the log to the stream in Redis. */
export function hasStream({ sinks = [] }: Pick<AuditConfig, 'sinks'>): boolean {
  return sinks.some(({ redis }) => redis !== undefined);
}

/**
 * Reads the options of the Redis that has the stream of a configuration's audit log.
 * @throws ConfigError if the configuration is invalid or has no stream
 */
export async function streamRedisOf(io: Io, file: string): Promise<RedisOptions> {
  const { config, locate } = await loadLocated(file);
  if (!hasStream(config.audit ?? {})) {
    const message = 'has no redis: there is no stream to follow; add { name: stream, redis: {} }';
    throw new ConfigError([locate({ path: ['audit', 'sinks'], message })]);
  }
  const context = processContext(io);
  const reading = new ContentReading(new SourceReader(context, config.sealed), context.uid);
  const options = await readRedis(config.redis, reading);
  if (options === undefined || reading.issues.length > 0) throw new ConfigError(reading.issues.map(locate));
  return options;
}

/**
 * Reads the keys of pseudonyms that a configuration names; `asRecorded`: none. What cannot be read is noted, and its
 * values stay pseudonyms.
 */
export function openPseudonyms(
  io: Io,
  { pseudonyms }: Pick<AuditConfig, 'pseudonyms'>,
  asRecorded = false,
): Promise<PseudonymReader> {
  const onIssue = (issue: string): void => note(io, `pseudonyms stay as they are: ${issue}`);
  return PseudonymReader.open(asRecorded ? undefined : pseudonyms?.keysDirectory, onIssue);
}

/** The option `--as-recorded`. */
export function asRecordedOption(): Option {
  return new Option('--as-recorded', 'leave pseudonyms as the log has them (audit.pseudonyms)');
}

/** The option `--key`. */
export function keyOption(): Option {
  const description = 'an earlier key of the log; can be repeated';
  return new Option('--key <file>', description).argParser(collectFiles).default([]);
}

/** The option `--from`; `what` it selects. */
export function fromOption(what: string): Option {
  const forms = '2026-03, 2026-03-01, 2026-03-01T08:00:00Z, or 30d for 30 days ago';
  return new Option('--from <time>', `${what} from this time on: ${forms}`).argParser(argument(instantAt));
}

/** The option `--to`; `what` it selects. */
export function toOption(what: string): Option {
  const description = `${what} up to this time; a month or a day is included`;
  return new Option('--to <time>', description).argParser(argument(instantAfter));
}

/** The option `--replica`; `what` it selects. */
export function replicaOption(what: string): Option {
  const description = `${what} of this replica with its workers (gateway-1), or of one worker (gateway-1@2)`;
  return new Option('--replica <name>', description).argParser(argument(replicaCriterion));
}

/**
 * Makes sure that there is a log of that replica or worker, if one is named.
 * @throws CommandError with the names that there are
 */
export async function requireReplica(directory: string, replica: string | undefined): Promise<void> {
  if (replica === undefined || (await foldersIn(directory, replica)).length > 0) return;
  const there = new Set((await foldersIn(directory)).map((name) => processOf(name).replica));
  const list = there.size === 0 ? 'there is none' : `there are ${[...there].join(', ')}`;
  throw new CommandError(2, `${directory} has no log of ${replica}: ${list}`);
}

/** Collects the values of an option that can be repeated. */
export function collectFiles(value: string, before: readonly string[]): string[] {
  return [...before, value];
}

/** Makes the parser of an option's value from one that throws a RangeError with the right form. */
export function argument<T>(parse: (text: string) => T): (text: string) => T {
  return (text) => {
    try {
      return parse(text);
    } catch (error) {
      if (!(error instanceof RangeError)) throw error;
      throw new InvalidArgumentError(`${capitalized(error.message)}.`);
    }
  };
}
