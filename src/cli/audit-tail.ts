import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { type Command, InvalidArgumentError } from 'commander';
import type { AuditKeys } from '../audit/keys.ts';
import { hasPseudonym } from '../audit/pseudonym.ts';
import { PseudonymReader } from '../audit/reader/pseudonym-reader.ts';
import { SealedBatches } from '../audit/reader/sealed-batches.ts';
import { foldersIn, segmentsIn } from '../audit/segments/segment.ts';
import { printable } from '../base/printable.ts';
import { targetOf } from './audit-format.ts';
import {
  asRecordedOption,
  nothingFound,
  openAuditConfig,
  openPseudonyms,
  replicaOption,
  requireReplica,
} from './audit-log.ts';
import { type ExitStatus, type Io, note, print, type Run } from './io.ts';

/** Interval of the reads with --follow, in milliseconds. */
const POLL_MS = 200;
/** Maximum number of records of one process in one round. */
const MOST_TAKEN = 500;

interface TailArguments {
  readonly config: string;
  readonly follow?: boolean;
  readonly lines: number;
  readonly replica?: string;
  readonly json?: boolean;
  readonly asRecorded?: boolean;
}

interface TailRecord {
  readonly time: string;
  readonly line: string;
}

/** Registers `audit tail`. */
export function registerTail(audit: Command, run: Run): void {
  audit
    .command('tail')
    .description('print the newest records of the audit log')
    .requiredOption('--config <file>', 'the configuration (YAML)')
    .option('-f, --follow', 'keep printing new records')
    .option('-n, --lines <count>', 'the number of newest records to print first', count, 10)
    .addOption(replicaOption('records'))
    .option('--json', 'print records as JSON')
    .addOption(asRecordedOption())
    .action(run(runTail));
}

async function runTail(io: Io, options: TailArguments): Promise<ExitStatus> {
  const { config, follow = false, lines, replica, json = false, asRecorded } = options;
  const section = await openAuditConfig(io, config);
  const { directory, keys } = section;
  // With --follow, the replica may begin its log later.
  if (!follow) await requireReplica(directory, replica);
  let status: ExitStatus = 0;
  const onForged = (forged: string): void => {
    note(io, `${forged}: records that are not as a seal covers them are left out: run audit verify`);
    status = 1;
  };
  const followed = { directory, keys, replica, onForged };
  const tails = new Map<string, LogTail>();
  let pseudonyms = await openPseudonyms(io, section, asRecorded);
  const show = ({ line }: TailRecord): string => {
    const revealed = pseudonyms.reveal(line);
    return `${json ? printable(revealed) : readable(revealed)}\n`;
  };
  await addFolders(followed, tails, lines);
  let newest: TailRecord[] = [];
  for (let more = await takeAll(tails); more.length > 0; more = await takeAll(tails)) {
    newest = [...newest, ...more].sort(byTime).slice(-lines);
  }
  await print(io, newest.map(show).join(''));
  if (lines > 0 && newest.length === 0) note(io, await nothingFound(directory, { replica }, 'no record'));
  while (follow) {
    await addFolders(followed, tails);
    const more = await takeAll(tails);
    if (more.length === 0) {
      await delay(POLL_MS);
      continue;
    }
    // A record may be under a key that is new.
    if (asRecorded !== true && more.some(({ line }) => hasPseudonym(pseudonyms.reveal(line)))) {
      // Unreadable files were noted at the start.
      pseudonyms = await PseudonymReader.open(section.pseudonyms?.keysDirectory, () => undefined);
    }
    await print(io, more.sort(byTime).map(show).join(''));
  }
  for (const tail of tails.values()) await tail.close();
  return status;
}

interface Followed {
  readonly directory: string;
  readonly keys: readonly AuditKeys[];
  /** A replica with its workers, or one worker; undefined: all. */
  readonly replica: string | undefined;
  readonly onForged: (replica: string) => void;
}

/** Opens the logs in new folders, each at a segment from which on there are `lines` records, or at its beginning. */
async function addFolders(
  { directory, keys, replica: selected, onForged }: Followed,
  tails: Map<string, LogTail>,
  lines = Number.POSITIVE_INFINITY,
): Promise<void> {
  for (const replica of await foldersIn(directory, selected)) {
    if (tails.has(replica)) continue;
    const folder = join(directory, replica);
    const newest = (await segmentsIn(folder)).at(-1)?.first ?? 1;
    const options = { folder, replica, keys, onForged: () => onForged(replica) };
    tails.set(replica, new LogTail(new SealedBatches(options, newest - lines)));
  }
}

async function takeAll(tails: ReadonlyMap<string, LogTail>): Promise<TailRecord[]> {
  const taken = await Promise.all(Array.from(tails.values(), (tail) => tail.take()));
  return taken.flat();
}

/** The sealed records of one process, as its log grows. */
class LogTail {
  readonly #batches: SealedBatches;
  #seq = 0;

  constructor(batches: SealedBatches) {
    this.#batches = batches;
  }

  /** Reads the next records, a bounded number; none if there are no new ones. */
  async take(): Promise<TailRecord[]> {
    const taken: TailRecord[] = [];
    while (taken.length < MOST_TAKEN) {
      const batch = await this.#batches.next();
      if (batch === undefined) return taken;
      // Records may be written twice after a disk error; the second copy is skipped.
      const records = batch.records.filter(({ seq }) => seq > this.#seq);
      this.#seq = records.at(-1)?.seq ?? this.#seq;
      taken.push(...records);
    }
    return taken;
  }

  close(): Promise<void> {
    return this.#batches.close();
  }
}

function byTime(a: TailRecord, b: TailRecord): number {
  return a.time < b.time ? -1 : Number(a.time > b.time);
}

function readable(line: string): string {
  try {
    return printable(sentence(JSON.parse(line)));
  } catch {
    return printable(line);
  }
}

function sentence(record: Record<string, unknown>): string {
  const { seq: _seq, time, kind, replica, ...rest } = record;
  const start = `${time} ${replica} ${String(kind).padEnd(7)}`;
  if (kind === 'access') return `${start} ${accessSentence(rest)}`;
  if (kind === 'outcome') {
    const { status, requestId, code } = rest;
    return `${start} ${status}${code === '' ? '' : ` ${code}`}${endPhrase(rest)}  ${requestId}`;
  }
  const { event, ...details } = rest;
  const fields = Object.entries(details).map(([name, value]) => `${name}=${String(value)}`);
  return [start, event, ...fields].join(' ');
}

function accessSentence(record: Record<string, unknown>): string {
  const { status, code, client, address, method, path, parameters, requestId } = record;
  const target = targetOf({ path: String(path), parameters: parameters as Record<string, string | null> });
  const who = [client, address].filter((part) => part !== '').join('@');
  return `${status}${code === '' ? '' : ` ${code}`} ${who} ${method} ${target}${endPhrase(record)}  ${requestId}`;
}

/** The end of the response, with a space before it; empty if the record does not have it. */
function endPhrase({ bytes, durationMs, outcome }: Record<string, unknown>): string {
  if (!(bytes instanceof Object && 'out' in bytes)) return '';
  const named = outcome === undefined ? '' : ` (${outcome})`;
  return `${named} ${bytes.out} B in ${durationMs} ms`;
}

function count(value: string): number {
  if (!/^\d{1,5}$/.test(value) || value === '0')
    throw new InvalidArgumentError('Give a number from 1 to 99999.');
  return Number(value);
}
