import { cp, mkdir, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { zstdDecompressSync } from 'node:zlib';
import { checkpointLine, type SigningKey, signCheckpoint } from '../../src/audit/checkpoint.ts';
import type { AuditKeys } from '../../src/audit/keys.ts';
import { leafHash, leavesOf, MerkleTree } from '../../src/audit/merkle.ts';
import { GENESIS, sealFor, sealLine } from '../../src/audit/seal.ts';
import { headerLine, segmentName, segmentsIn } from '../../src/audit/segments/segment.ts';
import type { Random } from '../simulation/random.ts';

/** Everything that the machine of a gateway has. */
export interface StolenKeys {
  readonly seal: AuditKeys;
  readonly signing: SigningKey;
}

/** What somebody does to the records of a log. */
export const CHANGES = ['change', 'remove', 'insert', 'swap', 'cut'] as const;
export type Change = (typeof CHANGES)[number];

/** Puts a copy of the log in the place of another. */
export async function putBack(copy: string, directory: string): Promise<void> {
  await rm(directory, { recursive: true, force: true });
  await cp(copy, directory, { recursive: true });
}

/** The lines of all records of a log, in their order. */
export async function recordLines(folder: string): Promise<string[]> {
  const lines: string[] = [];
  for (const { name } of await segmentsIn(folder)) {
    const bytes = await readFile(join(folder, name));
    const text = (name.endsWith('.zst') ? zstdDecompressSync(bytes) : bytes).toString();
    lines.push(...text.split('\n').filter((line) => line.startsWith('{"seq":')));
  }
  return lines;
}

/** The records with one change among the first `covered`; they differ from those before. */
export function changed(lines: readonly string[], change: Change, covered: number, random: Random): string[] {
  const at = random.whole(0, covered - 2);
  const line = lines[at] ?? '';
  const other = lines[at + 1] ?? '';
  switch (change) {
    case 'change':
      return lines.with(at, line.replace('"replica"', `"forged":${random.whole(1, 1e9)},"replica"`));
    case 'remove':
      return lines.toSpliced(at, 1);
    case 'insert':
      return lines.toSpliced(at, 0, line.replace('"replica"', `"forged":${random.whole(1, 1e9)},"replica"`));
    case 'swap':
      return lines.with(at, other).with(at + 1, line);
    case 'cut':
      return lines.slice(0, at + 1);
  }
}

/** Writes a log of these records as one segment, with seals and signed heads like the gateway's own. */
export async function forge(
  folder: string,
  replica: string,
  lines: readonly string[],
  { seal: keys, signing }: StolenKeys,
): Promise<MerkleTree> {
  for (const name of await readdir(folder))
    if (/^\d+\.(jsonl|index)/.test(name)) await rm(join(folder, name));
  await mkdir(folder, { recursive: true });
  const tree = MerkleTree.empty();
  const opened = new Date().toISOString();
  const header = {
    replica,
    first: 1,
    previous: GENESIS,
    key: keys.id,
    opened,
    tree: { first: 1, roots: [] },
  };
  let text = '';
  let previous = GENESIS;
  const add = (batch: string, first: number, last: number): void => {
    const seal = sealFor(keys, { replica, previous }, { first, last }, leavesOf(Buffer.from(batch)));
    previous = seal.hmac;
    text += batch + sealLine(seal);
  };
  add(headerLine(header), 1, 0);
  for (const [index, line] of lines.entries()) {
    const record = line.replace(/^\{"seq":\d+/, `{"seq":${index + 1}`);
    tree.add(leafHash(Buffer.from(record), 0, Buffer.byteLength(record)));
    const head = { replica, first: 1, size: tree.size, root: tree.root };
    add(`${record}\n${checkpointLine(signCheckpoint(signing, head))}`, index + 1, index + 1);
  }
  await writeFile(join(folder, segmentName(1)), text);
  return tree;
}
