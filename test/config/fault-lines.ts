import { ConfigError } from '../../src/config/faults.ts';
import { parseConfig } from '../../src/config/load.ts';

/** What a user reads of a faulty configuration called c.yaml, line by line; none when it is right. */
export function faultLines(text: string): string[] {
  try {
    parseConfig(text, 'c.yaml');
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
