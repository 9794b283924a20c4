import { parseDocument } from 'yaml';
import { ConfigError } from '../../src/config/issues.ts';
import { parseConfig } from '../../src/config/load.ts';

/** What a user reads of an invalid configuration called c.yaml, line by line; none when it is right. */
export function issueLines(text: string): string[] {
  try {
    parseConfig(served(text), 'c.yaml');
    return [];
  } catch (error) {
    if (error instanceof ConfigError) {
      return error.message.split('\n');
    }
    throw error;
  }
}

/** A text, and the lines that it must give. */
export type Case = [title: string, text: string, lines: string[]];

/**
 * A text that describes deployments and does not say for whom is about something else: then everyone is
 * served. What cannot be read stays as it is.
 */
export function served(text: string): string {
  const document = parseDocument(text, { uniqueKeys: false });
  const silent =
    document.errors.length === 0 &&
    document.has('deployments') &&
    !document.has('clients') &&
    !document.has('anonymous');
  return silent ? `${text}\nanonymous: true` : text;
}
