import { globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { checkSync } from 'recheck';
import { parseAst } from 'vite';
import { repository } from '../support/repository.ts';

/*
 * Prints what recheck says of each regular expression of src/, and of those in the arguments, as JSON. A program of its
 * own: in the context of a test, recheck takes forty times as long.
 */

// The same code on every platform, in this process.
process.env['RECHECK_BACKEND'] = 'pure';
process.env['RECHECK_SYNC_BACKEND'] = 'pure';

/** Counts in place of times, so that a slow machine says the same. What has more states than these is fuzzed. */
const LIMITS = {
  timeout: null,
  attackTimeout: null,
  incubationTimeout: null,
  attackLimit: 2_000_000,
  maxNFASize: 5000,
};

/** One regular expression. */
export interface Checked {
  readonly literal: string;
  /** The first file that has it. */
  readonly file: string;
  /** `safe` if no input takes more than linear time. */
  readonly verdict: string;
}

export interface Report {
  readonly checked: readonly Checked[];
  /** Files with patterns that are made at run time, which cannot be checked. */
  readonly constructed: readonly string[];
}

const literals = new Map<string, Checked>();
const constructed: string[] = [];

function check(source: string, file: string): void {
  if (/\bRegExp\(/.test(source)) constructed.push(file);
  JSON.stringify(parseAst(source, { lang: file.endsWith('x') ? 'tsx' : 'ts' }), (_key, value) => {
    if (typeof value === 'bigint') return undefined;
    if (value?.type !== 'Literal' || value.regex === undefined) return value;
    const { pattern, flags } = value.regex;
    const literal = `/${pattern}/${flags}`;
    if (literals.has(literal)) return undefined;
    literals.set(literal, { literal, file, verdict: checkSync(pattern, flags, LIMITS).status });
    return undefined;
  });
}

for (const literal of process.argv.slice(2)) check(literal, '');
for (const file of globSync('src/**/*.{ts,tsx}', { cwd: repository }).sort()) {
  check(readFileSync(join(repository, file), 'utf8'), file);
}
const report: Report = { checked: [...literals.values()], constructed };
process.stdout.write(JSON.stringify(report));
