import { readFile } from 'node:fs/promises';
import { dirname } from 'node:path';
import { isNativeError } from 'node:util/types';
import type { z } from 'zod';
import { errorCode } from '../base/error-code.ts';
import { ConfigError, type Issue, type LocatedIssue } from './issues.ts';
import type { Config } from './schema.ts';
import { schemaIssues } from './schema-issues.ts';
import { configSchema } from './section-issues.ts';
import { readYaml, type YamlSource } from './yaml-source.ts';

/** A valid configuration with the source positions of its parts. */
export interface LocatedConfig {
  readonly config: Config;
  /** Its name; relative file names in it start at its folder. */
  readonly file: string;
  /** The configuration as it is written: mappings, lists, texts, numbers, booleans and null. */
  readonly tree: unknown;
  /** Adds the place in the file to an issue that was found later, such as with a file that `config` names. */
  locate(issue: Issue): LocatedIssue;
}

/**
 * Parses a configuration. `file`: its name for messages; relative file names in it start at its folder.
 * @throws ConfigError with every issue: syntax, values, and values that do not fit each other
 */
export function parseConfig(text: string, file: string): Config {
  return parseLocated(text, file).config;
}

/**
 * Reads the configuration in a file.
 * @throws ConfigError with every issue, or if the file cannot be read
 */
export async function loadConfig(file: string): Promise<Config> {
  return (await loadLocated(file)).config;
}

/**
 * Does the same as `loadConfig`, and keeps the source positions for further issues.
 * @throws ConfigError with every issue, or if the file cannot be read
 */
export async function loadLocated(file: string): Promise<LocatedConfig> {
  return parseLocated(await readText(file), file);
}

/**
 * Does the same with the content of a file. `file`: its name for messages; relative file names in it start at its folder.
 * @throws ConfigError with every issue
 */
export function locatedIn(content: Uint8Array, file: string): LocatedConfig {
  try {
    return parseLocated(decoded(content), file);
  } catch (error) {
    throw error instanceof ConfigError ? error : unreadable(file, error);
  }
}

/**
 * Reads a YAML file with another schema, such as that of the simulator.
 * @throws ConfigError with every issue, or if the file cannot be read
 */
export async function loadSettings<T extends z.ZodType>(file: string, schema: T): Promise<z.output<T>> {
  return parse(readYaml(await readText(file), file), schema);
}

/** The schema that was used last. To build one takes longer than to check a small configuration. */
let built: { readonly folder: string; readonly schema: ReturnType<typeof configSchema> } | undefined;

function schemaOf(folder: string): ReturnType<typeof configSchema> {
  if (built?.folder !== folder) built = { folder, schema: configSchema(folder) };
  return built.schema;
}

function parseLocated(text: string, file: string): LocatedConfig {
  const source = readYaml(text, file);
  // An empty file is a configuration without keys.
  const tree = source.value === null ? {} : source.value;
  const config = parse({ ...source, value: tree }, schemaOf(dirname(file)));
  return { config, file, tree, locate: source.locate };
}

function parse<T extends z.ZodType>({ value, syntaxIssues, locate }: YamlSource, schema: T): z.output<T> {
  // Without a value every key would be reported as missing.
  if (value === undefined && syntaxIssues.length > 0) throw new ConfigError(syntaxIssues);
  const result = schema.safeParse(value);
  const found = schemaIssues(schema, value, result.error?.issues ?? []);
  if (result.success && syntaxIssues.length === 0) return result.data;
  throw new ConfigError([...syntaxIssues, ...found.map(locate)]);
}

async function readText(file: string): Promise<string> {
  try {
    return decoded(await readFile(file));
  } catch (error) {
    throw unreadable(file, error);
  }
}

function decoded(content: Uint8Array): string {
  return new TextDecoder('utf-8', { fatal: true }).decode(content);
}

function unreadable(file: string, error: unknown): ConfigError {
  return new ConfigError([{ file, line: 1, column: 1, path: '', message: whyUnreadable(error) }]);
}

function whyUnreadable(error: unknown): string {
  switch (errorCode(error)) {
    case 'ENOENT':
      return 'there is no such file: name an existing one with --config';
    case 'EISDIR':
      return 'is a folder: name the file in it with --config';
    case 'EACCES':
      return 'may not be read by this user: give it read permission';
    case 'ERR_ENCODING_INVALID_ENCODED_DATA':
      return 'is not UTF-8 text: save it as UTF-8';
    default:
      return `cannot be read: ${isNativeError(error) ? error.message : 'for an unknown reason'}; name a readable file`;
  }
}
