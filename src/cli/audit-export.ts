import { open } from 'node:fs/promises';
import { type Command, InvalidArgumentError } from 'commander';
import { allRecords } from '../audit/reader/search.ts';
import { CollectedFile, CollectionProgress, collect } from '../audit/shipping/collector.ts';
import { RedisStream } from '../audit/shipping/redis-stream.ts';
import { fileMessageOf } from '../base/error-code.ts';
import { printableLines } from '../base/printable.ts';
import { inPieces, printLines } from './audit-format.ts';
import {
  asRecordedOption,
  fromOption,
  keyOption,
  type LogOptions,
  openAuditConfig,
  openLog,
  replicaOption,
  streamRedisOf,
  toOption,
} from './audit-log.ts';
import { CommandError, type ExitStatus, type Io, note, print, type Run, shutdownSignal } from './io.ts';

interface ExportArguments extends LogOptions {
  readonly follow?: boolean;
  readonly output?: string;
  readonly group: string;
}

/** Registers `audit export`. */
export function registerExport(audit: Command, run: Run): void {
  audit
    .command('export')
    .description(
      'print the records of all replicas, one JSON object per line, in order of time (of one process: in the order of its log)',
    )
    .requiredOption('--config <file>', 'the configuration (YAML)')
    .option(
      '--follow',
      'read the stream in Redis instead, in its order, and keep printing new records; resumes where it stopped',
    )
    .addOption(keyOption())
    .option('--output <file>', 'write to a new file instead of stdout; with --follow, append to the file')
    .option(
      '--group <name>',
      'the consumer group of --follow; each group receives every record',
      group,
      'export',
    )
    .addOption(replicaOption('records'))
    .addOption(fromOption('records'))
    .addOption(toOption('records'))
    .addOption(asRecordedOption())
    .action(run(runExport));
}

async function runExport(io: Io, options: ExportArguments): Promise<ExitStatus> {
  if (options.follow !== true) return exportFiles(io, options);
  if ([options.replica, options.from, options.to].some((each) => each !== undefined)) {
    throw new CommandError(2, '--follow prints everything: leave out --replica, --from and --to');
  }
  return follow(io, options);
}

async function exportFiles(io: Io, options: ExportArguments): Promise<ExitStatus> {
  const { output } = options;
  // Lines on the same terminal show how far it is.
  const shown = output !== undefined || !io.stdout.isTTY;
  using log = await openLog(io, { ...options, shown });
  let isEmpty = true;
  const lines = async function* (): AsyncGenerator<string, void> {
    for await (const { line } of allRecords(log.options)) {
      isEmpty = false;
      yield `${line}\n`;
    }
  };
  if (output === undefined) await printLines(io, shownOn(io, lines()));
  else await writeNew(output, lines());
  if (isEmpty) note(io, await log.nothing('no record'));
  return log.reading.status;
}

/** On a terminal, without its commands; a file or another program gets the bytes of the log. */
async function* shownOn({ stdout }: Io, lines: AsyncIterable<string>): AsyncGenerator<string, void> {
  for await (const line of lines) yield stdout.isTTY === true ? printableLines(line) : line;
}

async function writeNew(output: string, lines: AsyncIterable<string>): Promise<void> {
  const failed = (error: unknown): never => {
    throw new CommandError(1, fileMessageOf(error, output), error);
  };
  await using file = await open(output, 'wx', 0o600).catch(failed);
  for await (const piece of inPieces(lines)) await file.appendFile(piece).catch(failed);
}

async function follow(io: Io, { config, key, output, group: name }: ExportArguments): Promise<ExitStatus> {
  const redis = await streamRedisOf(io, config);
  const { keys } = await openAuditConfig(io, config, key);
  const failed = (error: unknown): never => {
    throw new CommandError(1, fileMessageOf(error, output), error);
  };
  const file = output === undefined ? undefined : await CollectedFile.open(output).catch(failed);
  const ending = new AbortController();
  const stream = new RedisStream(redis, keys);
  void shutdownSignal().then(() => ending.abort());
  const onNote = (text: string): void => note(io, text);
  let rejected = 0;
  try {
    // An entry must not be acknowledged before its text is taken.
    const write = (text: string): Promise<void> => {
      if (file !== undefined) return file.append(text).catch(failed);
      return print(io, io.stdout.isTTY === true ? printableLines(text) : text);
    };
    // Only the first, second, fourth, … is noted, so that a flooded stream does not flood the log.
    const onRejected = (id: string, reason: string): void => {
      rejected += 1;
      if (!Number.isInteger(Math.log2(rejected))) return;
      onNote(`${rejected} entries of the stream were left out; the last one is ${id}: ${reason}`);
    };
    const progress = new CollectionProgress({
      reached: file?.reached ?? [],
      keys,
      onNote,
      onRejected,
    });
    await collect(name, { stream, progress, write, onState: stateNotes(onNote) }, ending.signal);
  } finally {
    await stream.close();
    await file?.close();
  }
  return rejected > 0 ? 1 : 0;
}

/** Prints once when Redis becomes unreachable, and once when it is back. */
function stateNotes(note: (text: string) => void): (reason: string | undefined) => void {
  let noted: string | undefined;
  return (reason) => {
    if (reason !== undefined && noted === undefined) note(`waiting for the stream: ${reason}`);
    if (reason === undefined && noted !== undefined) note('the stream is reachable again');
    noted = reason;
  };
}

function group(value: string): string {
  if (/^[\w.-]{1,64}$/.test(value)) return value;
  throw new InvalidArgumentError('A group has letters, digits, "-", "_" and "." only, 64 at most.');
}
