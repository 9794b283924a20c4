import type { Command } from 'commander';
import { type RecordedRequest, Replay } from '../app/replay.ts';
import { isPseudonym } from '../audit/pseudonym.ts';
import type { FoundRequest } from '../audit/reader/query.ts';
import { search } from '../audit/reader/search.ts';
import { loadConfig } from '../config/load.ts';
import type { Config } from '../config/schema.ts';
import {
  collectFiles,
  fromOption,
  nothingFound,
  openAuditConfig,
  openLog,
  replicaOption,
  toOption,
} from './audit-log.ts';
import type { Io } from './io.ts';

/** The log and the requests to take from it. */
export interface LogArguments {
  readonly config: string;
  readonly logConfig?: string;
  readonly key: readonly string[];
  readonly replica?: string;
  readonly from: string;
  readonly to?: string;
}

/** Adds the options that select requests of an audit log. */
export function addLogOptions(command: Command): Command {
  return command
    .option(
      '--log-config <file>',
      'the configuration whose audit log is read; left out, it is that of --config',
    )
    .option('--key <file>', 'an earlier key of the log; can be repeated', collectFiles, [])
    .addOption(replicaOption('requests'))
    .addOption(fromOption('requests').makeOptionMandatory())
    .addOption(toOption('requests'));
}

/** The requests of a log, and what was wrong with it. */
export class RecordedLog {
  readonly #io: Io;
  readonly #options: LogArguments;
  readonly #client: string | undefined;
  /** True: a part of the log could not be read or trusted. */
  isIncomplete = false;

  /** `client`: only requests of this one. */
  constructor(io: Io, options: LogArguments, client?: string) {
    this.#io = io;
    this.#options = options;
    this.#client = client;
  }

  /**
   * The requests in order of time.
   * @throws ConfigError, or CommandError if there is no such replica
   */
  async *requests(): AsyncGenerator<FoundRequest, void> {
    const { config, logConfig = config, key, replica, from, to } = this.#options;
    using log = await openLog(this.#io, { config: logConfig, key, replica });
    const found = search({
      ...log.options,
      query: { replica, since: from, until: to, client: this.#client },
      onCut: () => undefined,
    });
    for await (const each of found) if ('access' in each) yield each;
    this.isIncomplete = log.reading.isIncomplete;
  }
}

/** Judges by the configuration the requests of its own log, or of that of --log-config. */
export async function replayOf(config: Config, { logConfig }: LogArguments): Promise<Replay> {
  return new Replay(config, logConfig === undefined ? config : await loadConfig(logConfig));
}

/** Says in which log and time there was nothing. */
export async function nothingRecorded(
  io: Io,
  { config, logConfig = config, key, replica, from, to }: LogArguments,
  what: string,
): Promise<string> {
  const { directory } = await openAuditConfig(io, logConfig, key);
  return nothingFound(directory, { replica, from, to }, what);
}

/** True if the upstream was asked, so that the rules had granted the request, or did not decide. */
export function wasServed({ access }: FoundRequest): boolean {
  return access.upstream !== undefined;
}

/** The request as it is judged. A value whose key is destroyed or missing is as unknown as one that is not recorded. */
export function recordedRequest({ access, outcome }: FoundRequest): RecordedRequest {
  const hasBody = outcome !== undefined && outcome.bytes.in > 0;
  return { ...access, parameters: knownParameters(access.parameters), hasBody };
}

function knownParameters(parameters: RecordedRequest['parameters']): RecordedRequest['parameters'] {
  const entries = Object.entries(parameters);
  const isHidden = ([, value]: (typeof entries)[number]): boolean => [value].flat().some(isHiddenValue);
  if (!entries.some(isHidden)) return parameters;
  return Object.fromEntries(entries.map((entry) => [entry[0], isHidden(entry) ? null : entry[1]]));
}

function isHiddenValue(value: string | null): boolean {
  return value !== null && isPseudonym(value);
}
