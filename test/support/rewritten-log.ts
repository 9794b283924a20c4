import { hash } from 'node:crypto';
import { readdir, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { auditKeys } from '../../src/audit/keys.ts';
import { leavesOf } from '../../src/audit/merkle.ts';
import { parseSeal, type Seal, sealFor, sealLine } from '../../src/audit/seal.ts';
import { Secret } from '../../src/base/secret.ts';
import { AUDIT_KEY, REPLICA, segmentText } from './audit-log.ts';

/** The names of the segments of the test log, the oldest first. */
export async function namesOf(directory: string): Promise<string[]> {
  return (await readdir(join(directory, REPLICA))).filter((name) => name.includes('.jsonl')).sort();
}

/** Writes a segment anew, as whoever has the folder could; returns its name. */
export async function rewrite(
  directory: string,
  at: number,
  change: (lines: string[]) => string[],
): Promise<string> {
  const name = (await namesOf(directory)).at(at) ?? '';
  const lines = change((await segmentText(directory, name)).trimEnd().split('\n'));
  await rm(join(directory, REPLICA, name));
  const plain = name.replace('.zst', '');
  await writeFile(join(directory, REPLICA, plain), `${lines.join('\n')}\n`);
  return plain;
}

/** Seals the lines of a segment anew with the key of the seals, as whoever has that could. */
export function resealed(lines: readonly string[]): string[] {
  const keys = auditKeys(new Secret(AUDIT_KEY));
  let previous = (JSON.parse(lines[0] ?? '') as { segment: { previous: string } }).segment.previous;
  return withSeals(lines, (seal, covered) => {
    const made = sealFor(keys, { replica: REPLICA, previous }, seal, leavesOf(covered));
    previous = made.hmac;
    return made;
  });
}

/** Makes the seals of a segment fit its lines, but not the key, as whoever has the folder could. */
export function redigested(lines: readonly string[]): string[] {
  return withSeals(lines, (seal, covered) => {
    const bytes = seal.form === 'leaves' ? Buffer.from(leavesOf(covered).join(''), 'latin1') : covered;
    return { ...seal, digest: hash('sha256', bytes, 'base64url') };
  });
}

function withSeals(lines: readonly string[], make: (seal: Seal, covered: Buffer) => Seal): string[] {
  let batch = '';
  return lines.map((line) => {
    const seal = parseSeal(line);
    if (seal === undefined) {
      batch += `${line}\n`;
      return line;
    }
    const covered = Buffer.from(batch);
    batch = '';
    return sealLine(make(seal, covered)).trimEnd();
  });
}
