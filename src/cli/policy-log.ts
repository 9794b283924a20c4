import type { Command } from 'commander';
import { type RecordedRequest, Replay } from '../app/replay.ts';
import { isPseudonym } from '../audit/pseudonym.ts';
import type { FoundRequest } from '../audit/reader/query.ts';
import { search } from '../audit/reader/search.ts';
import { loadConfig } from '../config/load.ts';
import type { Config } from '../config/schema.ts';
import {
  fromOption,
  keyOption,
  type LogOptions,
  type OpenedLog,
  openLog,
  replicaOption,
  toOption,
} from './audit-log.ts';
import type { Io } from './io.ts';

/** The log and the requests to take from it. */
export interface LogArguments extends LogOptions {
  readonly logConfig?: string;
}

/** Adds the options that select requests of an audit log. */
export function addLogOptions(command: Command): Command {
  return command
    .option(
      '--log-config <file>',
      'the configuration whose audit log is read; left out, it is that of --config',
    )
    .addOption(keyOption())
    .addOption(replicaOption('requests'))
    .addOption(fromOption('requests').makeOptionMandatory())
    .addOption(toOption('requests'));
}

/**
 * Opens the log whose requests are to be judged.
 * @throws ConfigError, or CommandError if there is no such replica
 */
export function openRecorded(
  io: Io,
  { config, logConfig = config, ...part }: LogArguments,
): Promise<OpenedLog> {
  return openLog(io, { ...part, config: logConfig });
}

/** The requests in a log in order of time; `client`: only those of this one. */
export async function* requestsIn(
  { options, reading }: OpenedLog,
  client?: string,
): AsyncGenerator<FoundRequest, void> {
  const query = { ...options.query, client };
  const found = search({ ...options, query });
  for await (const each of found) if ('access' in each) yield each;
  reading.hide();
}

/** Judges by the configuration the requests of its own log, or of that of --log-config. */
export async function replayOf(config: Config, { logConfig }: LogArguments): Promise<Replay> {
  return new Replay(config, logConfig === undefined ? config : await loadConfig(logConfig));
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
  const isHidden = ([, value]: (typeof entries)[number]): boolean =>
    [value].flat().some((each) => each !== null && isPseudonym(each));
  if (!entries.some(isHidden)) return parameters;
  return Object.fromEntries(entries.map((entry) => [entry[0], isHidden(entry) ? null : entry[1]]));
}
