import type { KeyObject } from 'node:crypto';
import { type SigningKey, signCheckpoint } from '../../src/audit/checkpoint.ts';
import { inclusionProof, LeafRange, leafHash, MerkleTree } from '../../src/audit/merkle.ts';
import { checkProof, ProofError, proofText, type RequestProof } from '../../src/audit/proof.ts';

const LARGEST = 257;

/** A log in memory, in which request `qK` has record K + 1. Returns the proof of a request in the tree of that size. */
export function memoryLog(key: SigningKey, size: number): (index: number, upTo: number) => RequestProof {
  const lines = Array.from(
    { length: size },
    (_, index) =>
      `{"seq":${index + 1},"time":"2026-01-01T00:00:00.000Z","kind":"access","requestId":"q${index}","replica":"r1","status":200}`,
  );
  const leaves = lines.map((line) => leafHash(Buffer.from(line), 0, line.length));
  const trees = [MerkleTree.empty()];
  for (const leaf of leaves) {
    const tree = trees.at(-1)?.copy() ?? MerkleTree.empty();
    tree.add(leaf);
    trees.push(tree);
  }
  return (index, upTo) => {
    const root = trees[upTo]?.root ?? '';
    const note = signCheckpoint(key, { replica: 'r1', first: 1, size: upTo, root });
    const after = new LeafRange(index + 1);
    for (const leaf of leaves.slice(index + 1, upTo)) after.add(leaf);
    const path = inclusionProof(trees[index] ?? MerkleTree.empty(), after);
    const record = { record: lines[index] ?? '', proof: proofText(index, path, note) };
    return { requestId: `q${index}`, records: [record] };
  };
}

export function isRefused(proof: unknown, keys: readonly KeyObject[]): boolean {
  try {
    checkProof(typeof proof === 'string' ? proof : JSON.stringify(proof), keys);
    return false;
  } catch (error) {
    if (!(error instanceof ProofError)) throw error;
    return true;
  }
}

/**
 * Makes so many proofs, of all places in trees of all sizes up to 257, and changes one character in each field of each:
 * the request, the record, and every line of proof and checkpoint. The places of the changes move on with the runs.
 * @returns what was refused or accepted and should not have been
 */
export function checkProofs(key: SigningKey, runs: number): string[] {
  const proofFor = memoryLog(key, LARGEST);
  const wrong: string[] = [];
  for (let run = 0; run < runs; run += 1) {
    const size = 1 + ((run * 37) % LARGEST);
    const proof = proofFor((run * 101) % size, size);
    if (isRefused(proof, [key.publicKey])) wrong.push(`refused: ${JSON.stringify(proof)}`);
    for (const changed of changesOf(proof, run)) {
      if (!isRefused(changed, [key.publicKey])) wrong.push(`accepted: ${JSON.stringify(changed)}`);
    }
  }
  return wrong;
}

/** The proof with one character changed in each of its fields. */
function* changesOf({ requestId, records }: RequestProof, run: number): Generator<RequestProof> {
  const [{ record, proof } = { record: '', proof: '' }] = records;
  yield { requestId: changed(requestId, run), records };
  yield { requestId, records: [{ record: changed(record, run), proof }] };
  const lines = proof.split('\n');
  for (const [at, line] of lines.entries()) {
    if (line === '') continue;
    yield { requestId, records: [{ record, proof: lines.with(at, changed(line, run)).join('\n') }] };
  }
}

function changed(text: string, run: number): string {
  const at = (run * 7919) % text.length;
  const other = String.fromCharCode(text.charCodeAt(at) ^ (1 << (run % 7)));
  return `${text.slice(0, at)}${other}${text.slice(at + 1)}`;
}
