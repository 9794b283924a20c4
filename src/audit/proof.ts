import type { KeyObject } from 'node:crypto';
import { z } from 'zod';
import { parseJson } from '../base/json.ts';
import {
  type Checkpoint,
  type Cosignature,
  cosignatureOf,
  isSignedBy,
  originOf,
  parseCheckpoint,
  type WitnessKey,
} from './checkpoint.ts';
import { type Digest, digestText, leafHash, parseDigests, rootFromProof } from './merkle.ts';

/** Characters of a proof that are read at most. */
export const LARGEST_PROOF = 4 * 1024 * 1024;
const FORMAT = 'c2sp.org/tlog-proof@v1';

/** A line of the log without its line end, and the proof that its log has it: C2SP's tlog-proof. */
const provenRecord = z.strictObject({ record: z.string(), proof: z.string() });

export type ProvenRecord = z.infer<typeof provenRecord>;

const requestProof = z.strictObject({
  requestId: z.string(),
  records: z.array(provenRecord).min(1).max(100),
});

/** The output of `audit prove`: the records of one request. */
export type RequestProof = z.infer<typeof requestProof>;

const requestRecord = z.looseObject({
  seq: z.int(),
  requestId: z.string(),
  replica: z.string(),
  kind: z.enum(['access', 'outcome']),
  /** Of an outcome: the number of its access record. */
  access: z.int().optional(),
});

type RequestRecord = z.infer<typeof requestRecord>;

/** Why a proof is refused; the message says it. */
export class ProofError extends Error {
  override readonly name = 'ProofError';
}

/** Makes the proof of the leaf at `index`. `note`: a checkpoint of a tree that has it. */
export function proofText(index: number, path: readonly Digest[], note: string): string {
  return [FORMAT, `index ${index}`, ...path.map(digestText), '', note].join('\n');
}

const PROOF = /^c2sp\.org\/tlog-proof@v1\nindex (0|[1-9]\d{0,14})\n((?:[A-Za-z0-9+/]{43}=\n)*)\n([\s\S]+)$/;

interface Proof {
  readonly index: number;
  readonly path: readonly Digest[];
  readonly checkpoint: Checkpoint;
}

function parseProof(text: string): Proof | undefined {
  const [, index = '', lines = '', note = ''] = PROOF.exec(text) ?? [];
  const path = parseDigests(lines);
  const checkpoint = parseCheckpoint(note);
  return checkpoint && path && { index: Number(index), path, checkpoint };
}

/** The records that a proof shows to be in a log. */
interface Proven {
  readonly requestId: string;
  /** The name of the tree, with replica and first record. */
  readonly origin: string;
  readonly records: readonly string[];
  /** The cosignatures, one for each record; none: they were not to be checked. */
  readonly cosignatures: readonly Cosignature[];
}

/**
 * Checks a proof. `witnesses`: one of them must have cosigned each head; empty: that is not checked. It needs nothing
 * but the public keys, and says nothing of records that are not in it.
 * @throws ProofError
 */
export function checkProof(
  text: string,
  keys: readonly KeyObject[],
  witnesses: readonly WitnessKey[] = [],
): Proven {
  const { requestId, records } = parseRequestProof(text);
  const checked = records.map((each) => checkRecord(each, requestId, keys));
  const checkpoints = checked.map(({ checkpoint }) => checkpoint);
  const cosignatures =
    witnesses.length === 0 ? [] : checkpoints.map((each) => cosignatureFor(each, witnesses));
  const [first] = checked;
  for (const { kind, access } of checked.slice(1)) {
    const belongs = kind === 'outcome' && first?.kind === 'access' && access === first.seq;
    if (!belongs) throw new ProofError('its records are not those of one request');
  }
  if (checked.some(({ replica }) => replica !== first?.replica)) {
    throw new ProofError('its records are of several logs');
  }
  const [origin = ''] = checkpoints.map(originOf);
  return { requestId, origin, records: records.map(({ record }) => record), cosignatures };
}

function parseRequestProof(text: string): RequestProof {
  const { data } = requestProof.safeParse(parseJson(text));
  if (data === undefined) throw new ProofError('is not a proof of audit prove');
  return data;
}

function cosignatureFor(checkpoint: Checkpoint, witnesses: readonly WitnessKey[]): Cosignature {
  const found = cosignatureOf(checkpoint, witnesses);
  if (found === undefined) {
    throw new ProofError(`has a checkpoint of ${originOf(checkpoint)} that no given witness has cosigned`);
  }
  return found;
}

/** Returns the content of the record, and the checkpoint that it is under. */
function checkRecord(
  { record, proof: text }: ProvenRecord,
  requestId: string,
  keys: readonly KeyObject[],
): RequestRecord & { readonly checkpoint: Checkpoint } {
  const proof = parseProof(text);
  if (proof === undefined) throw new ProofError('has a proof or checkpoint of another form');
  const { index, path, checkpoint } = proof;
  const origin = originOf(checkpoint);
  if (!isSignedBy(checkpoint, keys)) {
    throw new ProofError(`has a checkpoint of ${origin} that the key did not sign`);
  }
  const line = Buffer.from(record);
  if (!record.isWellFormed()) throw new ProofError('has a line that is not a record of a request');
  const root = rootFromProof(leafHash(line, 0, line.length), { index, size: checkpoint.size }, path);
  if (root !== checkpoint.root)
    throw new ProofError(`has a record that is not in ${origin} as its proof says`);
  const facts = parseRequestRecord(record);
  if (facts === undefined) throw new ProofError('has a line that is not a record of a request');
  if (facts.seq !== checkpoint.first + index || facts.replica !== checkpoint.replica) {
    throw new ProofError(`has record ${facts.seq} of ${facts.replica} at another place of ${origin}`);
  }
  if (facts.requestId !== requestId) throw new ProofError('has a record of another request');
  return { ...facts, checkpoint };
}

/** Reads a line of the log; undefined: it is not a record of a request. */
export function parseRequestRecord(line: string): RequestRecord | undefined {
  return requestRecord.safeParse(parseJson(line)).data;
}
