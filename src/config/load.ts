import { hash } from 'node:crypto';
import { existsSync } from 'node:fs';
import { open } from 'node:fs/promises';
import { dirname } from 'node:path';
import { isNativeError } from 'node:util/types';
import type { z } from 'zod';
import { errorCode } from '../base/error-code.ts';
import { stateOf } from '../base/file-watch.ts';
import { readUpTo, whyUnreached } from '../base/guarded-file.ts';
import { observationIssues } from './client-issues.ts';
import { type FileTrust, findParts, MAX_BYTES, mergeParts, type Part, readParts } from './include.ts';
import { ConfigError, type Issue, type LocatedIssue } from './issues.ts';
import { writtenPath } from './listen.ts';
import { type Config, includeSchema } from './schema.ts';
import { schemaIssues } from './schema-issues.ts';
import { configSchema } from './section-issues.ts';
import { inFolder } from './value-schemas.ts';
import { readYaml, type YamlSource } from './yaml-source.ts';

/** The permission to write of users who are neither the owner nor of the group. */
const OTHERS_WRITE = 0o002;
const WRITABLE = 'can be written by any user, who could send the credentials elsewhere: run chmod o-w on it';

/** A valid configuration with the source positions of its parts. */
export interface CheckedConfig {
  readonly config: Config;
  /** Its name; relative file names in it start at its folder. */
  readonly file: string;
  /** The configuration as it is written, with the included files: mappings, lists, texts, numbers, booleans and null. */
  readonly tree: unknown;
  /** Adds the place in the file to an issue that was found later, such as with a file that `config` names. */
  locate(issue: Issue): LocatedIssue;
}

/** The files of a configuration, as they were read. */
export interface ReadFiles {
  /** State of the file and those that it includes before they were read, as `stateOf` has it. */
  readonly fileState: string;
  /** SHA-256 of the texts of these files, in hex. */
  readonly filesHash: string;
}

export interface LocatedConfig extends CheckedConfig, ReadFiles {
  /** About the included files. */
  readonly warnings: readonly Issue[];
}

/**
 * Checks the content of a configuration that includes no files. `file`: its name for messages; relative file names in it
 * start at its folder.
 * @throws ConfigError with every issue: syntax, values, and values that do not fit each other
 */
export function locatedAlone(content: Uint8Array, file: string): CheckedConfig {
  return checked(mainSource(decoded(content, file), file), [], file, 0);
}

/**
 * Reads the configuration in a file and the files that it includes.
 * @throws ConfigError with every issue, or if a file cannot be read
 */
export async function loadConfig(file: string): Promise<Config> {
  return (await loadLocated(file)).config;
}

/**
 * Does the same as `loadConfig`, and keeps the source positions for further issues. `trust`: a file that any user can
 * write is refused, and an included one that others could exchange; undefined: they are not.
 * @throws ConfigError with every issue, or if a file cannot be read
 */
export async function loadLocated(file: string, trust?: FileTrust): Promise<LocatedConfig> {
  // Before the content is read: a file that changes in between is read again then.
  const state = await stateOf([file]);
  return assembled(await readText(file, trust), file, trust, state);
}

/**
 * Does the same with the content of a file. `file`: its name for messages; relative file names in it start at its folder.
 * @throws ConfigError with every issue
 */
export async function locatedIn(
  content: Uint8Array,
  file: string,
  trust?: FileTrust,
): Promise<LocatedConfig> {
  return assembled({ text: decoded(content, file), changedAt: 0 }, file, trust, '');
}

/** Settings, and what adds the place in the file to an issue with them. */
interface LocatedSettings<T> {
  readonly settings: T;
  locate(issue: Issue): LocatedIssue;
}

/**
 * Reads a YAML file with another schema, such as that of the simulator. `trust`: as for `loadLocated`.
 * @throws ConfigError with every issue, or if the file cannot be read
 */
export async function loadSettings<T extends z.ZodType>(
  file: string,
  schema: T,
  trust?: FileTrust,
): Promise<LocatedSettings<z.output<T>>> {
  const { text } = await readText(file, trust);
  const { value, syntaxIssues, locate } = readYaml(text, file);
  return { settings: parse(value, syntaxIssues, locate, schema, file), locate };
}

/** Parses a configuration, in which an empty file has no keys. */
function mainSource(text: string, file: string): YamlSource {
  const source = readYaml(text, file);
  return source.value === null ? { ...source, value: {} } : source;
}

async function assembled(
  { text, changedAt }: ReadText,
  file: string,
  trust: FileTrust | undefined,
  mainState: string,
): Promise<LocatedConfig> {
  const main = mainSource(text, file);
  const found = await findParts(file, patternsIn(main.value));
  const states = found.files.length === 0 ? [mainState] : [mainState, await stateOf(found.files)];
  const { parts, issues, located } = await readParts(file, found.files, trust);
  const broken = [...[...found.issues, ...issues].map(main.locate), ...located];
  // Later checks would report as missing all that a broken file describes.
  if (broken.length > 0) throw new ConfigError([...main.syntaxIssues, ...broken]);
  const hashes = [[file, hash('sha256', text)], ...parts.map(({ file: name, sha256 }) => [name, sha256])];
  return {
    ...checked(main, parts, file, Math.max(changedAt, ...parts.map((part) => part.changedAt))),
    warnings: found.warnings,
    fileState: states.join(';'),
    filesHash: hash('sha256', JSON.stringify(hashes)),
  };
}

/** Returns the names of included files; none if they are not valid, which the schema reports. */
function patternsIn(tree: unknown): readonly string[] {
  const { include } = { include: undefined, ...(tree as object | undefined) };
  return includeSchema().safeParse(include).data ?? [];
}

/** `changedAt`: the last change of the files in Unix milliseconds; 0: they are none. */
function checked(main: YamlSource, parts: readonly Part[], file: string, changedAt: number): CheckedConfig {
  const { tree, locate, duplicates } = mergeParts(main, parts);
  const config = parse(tree, [...main.syntaxIssues, ...duplicates], locate, configSchema(), file);
  // At a start before the clock is set, the files know better.
  const late = observationIssues(config.clients, Math.max(Date.now(), changedAt));
  if (late.length > 0) throw new ConfigError(late.map(locate));
  const isList = Array.isArray(Object(tree).listen);
  return {
    config,
    file,
    tree,
    locate: (issue) => locate({ ...issue, path: writtenPath(issue.path, isList) }),
  };
}

/** `known`: issues that were found before. */
function parse<T extends z.ZodType>(
  tree: unknown,
  known: readonly LocatedIssue[],
  locate: YamlSource['locate'],
  schema: T,
  file: string,
): z.output<T> {
  // Without a value every key would be reported as missing.
  if (tree === undefined && known.length > 0) throw new ConfigError(known);
  const result = inFolder(dirname(file), () => schema.safeParse(tree));
  const found = schemaIssues(schema, tree, result.error?.issues ?? []);
  if (result.success && known.length === 0) return result.data;
  throw new ConfigError([...known, ...found.map((issue) => locateWithOther(issue, locate))]);
}

function locateWithOther({ other, ...issue }: Issue, locate: YamlSource['locate']): LocatedIssue {
  if (other === undefined) return locate(issue);
  const { file, line, column } = locate({ path: other, message: '' });
  return locate({ ...issue, message: `${issue.message} (first at ${file}:${line}:${column})` });
}

interface ReadText {
  readonly text: string;
  /** In Unix milliseconds. */
  readonly changedAt: number;
}

async function readText(file: string, trust?: FileTrust): Promise<ReadText> {
  let bytes: Buffer | undefined;
  let changedAt: number;
  try {
    await using handle = await open(file);
    const stats = await handle.stat();
    changedAt = stats.mtimeMs;
    // The name of a folder is a mistake, which reading reports: its permissions may be right.
    const othersWrite = !stats.isDirectory() && (stats.mode & OTHERS_WRITE) !== 0;
    if (trust !== undefined && othersWrite) throw refused(file, WRITABLE);
    bytes = await readUpTo(handle, MAX_BYTES);
  } catch (error) {
    throw unreadable(file, error);
  }
  if (bytes === undefined) throw refused(file, `is larger than ${MAX_BYTES} bytes: name the right file`);
  return { text: decoded(bytes, file), changedAt };
}

function decoded(content: Uint8Array, file: string): string {
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(content);
  } catch (error) {
    throw unreadable(file, error);
  }
}

function unreadable(file: string, error: unknown): ConfigError {
  return error instanceof ConfigError ? error : refused(file, whyUnreadable(file, error));
}

function refused(file: string, message: string): ConfigError {
  return new ConfigError([{ file, line: 1, column: 1, path: '', message }]);
}

function whyUnreadable(file: string, error: unknown): string {
  switch (errorCode(error)) {
    case 'ENOENT':
      return existsSync(dirname(file))
        ? 'there is no such file: name an existing one with --config'
        : `the folder ${dirname(file)} does not exist: name an existing file with --config`;
    case 'ENOTDIR':
      return 'is not in a folder: a part of its name is a file; name an existing file with --config';
    case 'EISDIR':
      return 'is a folder: name the file in it with --config';
    case 'EACCES':
      return whyUnreached(file) ?? 'may not be read by this user: give it read permission';
    case 'ERR_ENCODING_INVALID_ENCODED_DATA':
      return 'is not UTF-8 text: save it as UTF-8';
    default:
      return `cannot be read: ${isNativeError(error) ? error.message : 'for an unknown reason'}; name a readable file`;
  }
}
