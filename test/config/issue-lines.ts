import { expect } from '@jest/globals';
import { parseDocument } from 'yaml';
import { ConfigError } from '../../src/config/issues.ts';
import { parseConfig } from '../support/parsed-config.ts';

/** The lines that a user reads about a configuration called c.yaml; none if it is valid. */
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

/** Expects exactly these lines, each without the name of the file. */
export function expectIssues(text: string, lines: readonly string[]): void {
  expect(issueLines(text)).toEqual(lines.map((line) => `c.yaml:${line}`));
}

/** A text, and the lines that it must give. */
export type Case = [title: string, text: string, lines: string[]];

/** Sets `anonymous: true` in a text that has deployments and no clients, so that it has no issue of that. */
export function served(text: string): string {
  const document = parseDocument(text, { uniqueKeys: false });
  const silent =
    document.errors.length === 0 &&
    document.has('deployments') &&
    !document.has('clients') &&
    !document.has('anonymous');
  return silent ? `${text}\nanonymous: true` : text;
}
