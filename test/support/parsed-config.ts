import { locatedAlone } from '../../src/config/load.ts';
import type { Config } from '../../src/config/schema.ts';

/**
 * Parses a configuration that includes no files. `file`: its name for messages; relative file names in it start at its
 * folder.
 * @throws ConfigError with every issue: syntax, values, and values that do not fit each other
 */
export function parseConfig(text: string, file: string): Config {
  return locatedAlone(Buffer.from(text), file).config;
}
