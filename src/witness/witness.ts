import type { KeyObject } from 'node:crypto';
import {
  type Checkpoint,
  cosign,
  isSignedBy,
  originOf,
  parseCheckpoint,
  type SigningKey,
  signatureLine,
} from '../audit/checkpoint.ts';
import {
  type Digest,
  isConsistent,
  MAX_CONSISTENCY_PROOF,
  MerkleTree,
  parseDigests,
} from '../audit/merkle.ts';
import { processOf } from '../audit/replica-name.ts';
import type { HeadStore } from './head-store.ts';

/** Signatures of a request at most: each may cost a verification. */
const MAX_SIGNATURES = 16;
/** Trees of one log that are cosigned at most: a log begins another one when it was altered. */
const MAX_TREES = 1000;

/** Why a head is not cosigned. */
export const REFUSAL_REASONS = [
  'malformed',
  'unknown-log',
  'not-signed',
  'old-too-large',
  'other-size',
  'other-root',
  'inconsistent',
  'too-many-trees',
] as const;

export type RefusalReason = (typeof REFUSAL_REASONS)[number];

/** `size`: that of the last head that was cosigned. */
export interface Refusal {
  readonly kind: 'refused';
  readonly reason: RefusalReason;
  readonly size: number;
}

/** The response of a witness to a request. */
export type WitnessResult =
  /** `lines`: the cosignature, as the line of a note. `log`: the replica. */
  { readonly kind: 'cosigned'; readonly lines: string; readonly log: string } | Refusal;

interface Submission {
  readonly old: number;
  readonly proof: readonly Digest[];
  readonly checkpoint: Checkpoint;
}

interface WitnessOptions {
  readonly name: string;
  readonly key: SigningKey;
  /** The public key of each log, by its replica. */
  readonly logs: ReadonlyMap<string, KeyObject>;
}

/** Cosigns heads of logs that it knows, as C2SP's tlog-witness describes: only heads that continue the last one. */
export class Witness {
  readonly #options: WitnessOptions;
  readonly #store: HeadStore;
  /** Settles when the last request has: a head is compared and stored in one step. */
  #last: Promise<unknown> = Promise.resolve();

  constructor(options: WitnessOptions, store: HeadStore) {
    this.#options = options;
    this.#store = store;
  }

  /**
   * Takes the body of an `add-checkpoint` request.
   * @throws Error if the state cannot be stored; the head is not cosigned then
   */
  async add(body: string): Promise<WitnessResult> {
    const submission = parseSubmission(body);
    if (submission === undefined) return { kind: 'refused', reason: 'malformed', size: 0 };
    const { old, checkpoint } = submission;
    const key = this.#options.logs.get(processOf(checkpoint.replica).replica);
    if (key === undefined) return { kind: 'refused', reason: 'unknown-log', size: 0 };
    if (!isSignedBy(checkpoint, [key])) return { kind: 'refused', reason: 'not-signed', size: 0 };
    if (old > checkpoint.size) return { kind: 'refused', reason: 'old-too-large', size: 0 };
    const result = this.#last.then(() => this.#compare(submission, key));
    // The caller of this request has its error; the next one only waits.
    this.#last = result.catch(() => undefined);
    return result;
  }

  async #compare({ old, proof, checkpoint }: Submission, key: KeyObject): Promise<WitnessResult> {
    const before = this.#store.of(originOf(checkpoint))?.checkpoint ?? MerkleTree.empty();
    const refused = (reason: RefusalReason): Refusal => ({
      kind: 'refused',
      reason,
      size: before.size,
    });
    if (old !== before.size) return refused('other-size');
    if (old === checkpoint.size && before.root !== checkpoint.root) return refused('other-root');
    if (!isConsistent(before, checkpoint, proof)) return refused('inconsistent');
    if (before instanceof MerkleTree && this.#isFull(checkpoint)) return refused('too-many-trees');
    const { name, key: own } = this.#options;
    const time = Date.now();
    const lines = cosign(own, name, checkpoint.text, time);
    const cosigned = { kind: 'cosigned', lines, log: processOf(checkpoint.replica).replica } as const;
    // It is stored. Heads are public, and who sends copies must not make the disk a queue.
    if (old === checkpoint.size && !(before instanceof MerkleTree)) return cosigned;
    // Of the signatures that came along, others would only take room.
    const signed = checkpoint.signatures.filter((each) =>
      isSignedBy({ ...checkpoint, signatures: [each] }, [key]),
    );
    const note = `${checkpoint.text}\n${signed.slice(0, 1).map(signatureLine).join('')}${lines}`;
    await this.#store.write({ checkpoint, note, time });
    return cosigned;
  }

  /** True if that log has as many trees as are cosigned. */
  #isFull({ replica }: Checkpoint): boolean {
    const of = processOf(replica).replica;
    const trees = this.#store.all.filter(({ checkpoint }) => processOf(checkpoint.replica).replica === of);
    return trees.length >= MAX_TREES;
  }
}

const BODY = /^old (0|[1-9]\d{0,14})\n((?:[A-Za-z0-9+/]{43}=\n)*)\n([\s\S]+)$/;

/** Undefined: the body has another form. */
function parseSubmission(body: string): Submission | undefined {
  const [, old = '', lines = '', note = ''] = BODY.exec(body) ?? [];
  const proof = parseDigests(lines);
  const checkpoint = parseCheckpoint(note);
  if (checkpoint === undefined || checkpoint.signatures.length > MAX_SIGNATURES) return undefined;
  if (proof === undefined || proof.length > MAX_CONSISTENCY_PROOF) return undefined;
  return { old: Number(old), proof, checkpoint };
}
