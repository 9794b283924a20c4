import { resolve } from 'node:path';
import { InvalidArgumentError, Option } from 'commander';
import { type AuditKeys, auditKeys } from '../audit/keys.ts';
import { replicaCriterion } from '../audit/reader/query.ts';
import { processOf } from '../audit/replica-name.ts';
import { foldersIn } from '../audit/segments/segment.ts';
import { messageOf } from '../base/error-code.ts';
import { ConfigError, type LocatedIssue } from '../config/issues.ts';
import { loadLocated } from '../config/load.ts';
import type { Config } from '../config/schema.ts';
import { SourceReader } from '../credentials/sources.ts';
import type { RedisOptions } from '../redis/connection.ts';
import { readAuditKey } from '../setup/audit.ts';
import { ContentReading } from '../setup/content.ts';
import { readRedis } from '../setup/redis.ts';
import { CommandError, type Io, processContext } from './io.ts';

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
  const { config, locate } = await loadLocated(file);
  const issue = (message: string, path: readonly string[]): LocatedIssue => locate({ path, message });
  if (config.audit === undefined) {
    throw new ConfigError([issue('is missing: the configuration has no audit log', ['audit'])]);
  }
  const { keyFile, signingKeyFile: _, ...section } = config.audit;
  const reader = new SourceReader(processContext(io), config.sealed);
  const read = async (name: string): Promise<AuditKeys> => {
    try {
      return auditKeys(await readAuditKey(name, reader));
    } catch (error) {
      throw new ConfigError([issue(messageOf(error), ['audit', 'keyFile'])]);
    }
  };
  const key = await read(keyFile);
  const older = await Promise.all(more.map((path) => read(resolve(path))));
  return { ...section, keys: [key, ...older] };
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
  const { config, locate } = await loadLocated(file);
  if (config.audit !== undefined) return config.audit.directory;
  throw new ConfigError([
    locate({ path: ['audit'], message: 'is missing: the configuration has no audit log' }),
  ]);
}

/**
 * Reads the options of the Redis that has the stream of a configuration's audit log.
 * @throws ConfigError if the configuration is invalid or has no stream
 */
export async function streamRedisOf(io: Io, file: string): Promise<RedisOptions> {
  const { config, locate } = await loadLocated(file);
  if (config.audit?.stream?.redis !== true) {
    const message = 'is missing: there is no stream to follow; give { redis: true }';
    throw new ConfigError([locate({ path: ['audit', 'stream'], message })]);
  }
  const context = processContext(io);
  const reading = new ContentReading(new SourceReader(context, config.sealed), context.uid);
  const options = await readRedis(config.redis, reading);
  if (options === undefined || reading.issues.length > 0) throw new ConfigError(reading.issues.map(locate));
  return options;
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
      throw error instanceof RangeError ? new InvalidArgumentError(error.message) : error;
    }
  };
}
