import { execFile } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';

export interface SpinOptions {
  /** Macros of the model, and their values. */
  readonly macros?: Readonly<Record<string, string | number>>;
  /** Options of the compiler of the checker, as `-DNOREDUCE`. */
  readonly compiler?: readonly string[];
  /** Options of the checker itself. */
  readonly checker?: readonly string[];
  /** Files that the model includes, by their names. */
  readonly files?: Readonly<Record<string, string>>;
}

/** A bound that no path reaches. */
const DEPTH = 200_000;

/**
 * Visits the states of a model in this folder, and returns what Spin printed.
 * @throws Error if Spin fails
 */
export async function spin(
  model: string,
  { macros = {}, compiler = [], checker = [], files = {} }: SpinOptions = {},
): Promise<string> {
  const file = fileURLToPath(new URL(`${model}.pml`, import.meta.url));
  const cwd = await mkdtemp(join(tmpdir(), 'spin-'));
  try {
    for (const [name, text] of Object.entries(files)) await writeFile(join(cwd, name), text);
    const changes = Object.entries(macros).map(([name, value]) => `-D${name}=${value}`);
    // What stands before -run is for the model, what follows for the checker.
    const args = [...changes, '-run', ...compiler, `-m${DEPTH}`, ...checker, file];
    const { stdout } = await promisify(execFile)('spin', args, { cwd, maxBuffer: 2 ** 26 });
    return stdout;
  } finally {
    await rm(cwd, { recursive: true, force: true });
  }
}
