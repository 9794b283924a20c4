import { open, readFile, stat, truncate, unlink } from 'node:fs/promises';
import { join } from 'node:path';
import { type ChainState, ChainWalk, type Fault } from './chain-walk.ts';
import type { AuditKeys } from './keys.ts';
import { GENESIS } from './seal.ts';
import { type Segment, segmentsIn } from './segment.ts';
import { syncDirectory } from './segment-file.ts';
import { readBlocks } from './segment-reader.ts';

const NOTHING = Buffer.alloc(0);
const NEWLINE = 10;

/** Where the writer before ended, and what it left. */
export interface Recovered extends ChainState {
  /** The file to go on with; undefined: begin a new one. */
  readonly file: { readonly path: string; readonly size: number } | undefined;
  /** Whole lines after the last seal, for the next one to cover, and the number of their first record. */
  readonly unsealed: { readonly bytes: Buffer; readonly first: number | undefined; readonly records: number };
  /** What did not end in a line: it lies in a file of its own now. */
  readonly torn: { readonly file: string; readonly bytes: number } | undefined;
  /** A segment that was changed since it was written; it stays as it is. */
  readonly damaged: { readonly segment: string; readonly fault: Fault } | undefined;
}

const FRESH: Recovered = {
  previous: GENESIS,
  nextSeq: 1,
  file: undefined,
  unsealed: { bytes: NOTHING, first: undefined, records: 0 },
  torn: undefined,
  damaged: undefined,
};

/**
 * Finds the end of the chain in a replica's folder, and sets a torn end aside, which a crash leaves.
 * @throws Error when the folder cannot be read or written
 */
export async function recover(folder: string, keys: AuditKeys): Promise<Recovered> {
  const last = (await segmentsIn(folder)).at(-1);
  if (last === undefined) return FRESH;
  const path = join(folder, last.name);
  const { walk, faults, whole } = await walkThrough(path, keys);
  const [fault] = faults;
  const { header, state } = walk;
  if (header === undefined) {
    if (whole > 0 || last.compressed) return damagedAfter(last, state, fault);
    // Its writer died before the first line was whole: as if it had never begun.
    const torn = await setAside(path, 0);
    await unlink(path);
    return { ...(await recover(folder, keys)), torn };
  }
  if (fault !== undefined && header.key === keys.id) return damagedAfter(last, state, fault);
  // Sealed with the key before: what follows is another segment.
  if (last.compressed || header.key !== keys.id) return { ...FRESH, ...state };
  return goOn(path, walk);
}

async function walkThrough(path: string, keys: AuditKeys) {
  const faults: Fault[] = [];
  const walk = new ChainWalk([keys], undefined, { onFault: (fault) => faults.push(fault) });
  let whole = 0;
  for await (const block of readBlocks(path)) {
    if (!block.whole) continue;
    walk.walk(block.bytes);
    whole += block.bytes.length;
  }
  return { walk, faults, whole };
}

function damagedAfter(segment: Segment, state: ChainState, fault: Fault | undefined): Recovered {
  const nextSeq = Math.max(state.nextSeq, segment.first + 1);
  const damaged = { segment: segment.name, fault: fault ?? { line: 1, message: 'is no segment' } };
  return { ...FRESH, previous: state.previous, nextSeq, damaged };
}

async function goOn(path: string, walk: ChainWalk): Promise<Recovered> {
  const { size } = await stat(path);
  const tail = (await readFile(path)).subarray(walk.sealedEnd);
  const bytes = Buffer.from(wholeRecords(tail));
  const end = walk.sealedEnd + bytes.length;
  const torn = end < size ? await setAside(path, end) : undefined;
  return {
    ...walk.state,
    file: { path, size: end },
    unsealed: { bytes, first: walk.batchFirst, records: walk.unsealed },
    torn,
    damaged: undefined,
  };
}

function wholeRecords(tail: Buffer): Buffer {
  return tail.subarray(0, tail.lastIndexOf(NEWLINE) + 1);
}

/** Moves what follows `from` into a file beside it, there for good before it is cut off. */
async function setAside(path: string, from: number) {
  const file = `${path}.${from}.torn`;
  const rest = (await readFile(path)).subarray(from);
  const handle = await open(file, 'w', 0o600);
  try {
    await handle.writeFile(rest);
    await handle.sync();
  } finally {
    await handle.close();
  }
  await truncate(path, from);
  await syncDirectory(join(path, '..'));
  return { file, bytes: rest.length };
}
