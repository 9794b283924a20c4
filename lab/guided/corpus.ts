import { readFile, writeFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';

/** Bytes of the inputs of one target that are kept. */
export const MOST_KEPT_BYTES = 48 * 1024;

/** Reads the inputs that are kept for a target: one a line, as a JSON text whose characters are the bytes. */
export async function readCorpus(target: string): Promise<Buffer[]> {
  const text = await readFile(fileOf(target), 'utf8');
  return text
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => Buffer.from(JSON.parse(line), 'latin1'));
}

/** Replaces the inputs that are kept for a target. */
export async function writeCorpus(target: string, inputs: readonly Buffer[]): Promise<void> {
  const lines = new Set(inputs.map((input) => `${JSON.stringify(input.toString('latin1'))}\n`));
  await writeFile(fileOf(target), [...lines].sort().join(''));
}

function fileOf(target: string): string {
  return fileURLToPath(new URL(`corpus/${target}.jsonl`, import.meta.url));
}
