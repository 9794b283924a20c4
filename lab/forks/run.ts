import { cp, mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseCheckpoint, signCheckpoint, witnessKey } from '../../src/audit/checkpoint.ts';
import { openAudit } from '../../src/audit/journal/file-audit.ts';
import { auditKeys } from '../../src/audit/keys.ts';
import { consistencyProof, digestText, LeafRange, leafHash, MerkleTree } from '../../src/audit/merkle.ts';
import { verify } from '../../src/audit/reader/verify.ts';
import { checkpointsIn } from '../../src/audit/segments/head-files.ts';
import { SinkSet } from '../../src/audit/shipping/sink-set.ts';
import { Secret } from '../../src/base/secret.ts';
import { newSigningKey, type TestSigningKey } from '../../test/support/signing-key.ts';
import { until } from '../../test/support/until.ts';
import { startTestWitness, type TestWitness } from '../../test/support/witness.ts';
import { Random } from '../simulation/random.ts';
import { CHANGES, changed, forge, putBack, recordLines } from './forgery.ts';

const REPLICA = 'gateway-1';
const KEY = new Secret('0123456789abcdef'.repeat(4));
/** Attacks on one history. */
const TRIES_EACH = 25;
const SEGMENT = { size: 4000, age: 1e9, keep: 1e9 };
const quiet = { level: 'silent', debug() {}, info() {}, warn() {}, error() {} };

/** What somebody does with the machine of the gateway and all its keys. */
const ATTACKS = ['old copy', 'old copy continued', 'written from the beginning', ...CHANGES] as const;
type Attack = (typeof ATTACKS)[number];

export interface ForkOptions {
  readonly seed: number;
  readonly tries: number;
  readonly goesOn?: () => boolean;
  readonly progress?: (text: string) => void;
}

interface Count {
  tries: number;
  found: number;
}

export interface ForkReport {
  tries: number;
  /** Forged logs that `audit verify` found with the heads of the witness, and without a witness. */
  found: number;
  foundWithout: number;
  /** Forged heads that the witness cosigned. */
  cosigned: number;
  /** Honest logs, of which none may be blamed. */
  histories: number;
  readonly attacks: Record<string, Count>;
  readonly findings: { readonly seed: number; readonly what: string }[];
}

/** Attacks logs that a witness cosigned, with the keys of the gateway. */
export async function runForks({
  seed,
  tries,
  goesOn = () => true,
  progress = () => undefined,
}: ForkOptions): Promise<ForkReport> {
  const report: ForkReport = {
    tries: 0,
    found: 0,
    foundWithout: 0,
    cosigned: 0,
    histories: 0,
    attacks: {},
    findings: [],
  };
  for (let from = seed; from < seed + tries && goesOn(); from += TRIES_EACH) {
    const folder = await mkdtemp(join(tmpdir(), 'forks-'));
    const key = newSigningKey();
    try {
      await using witness = await startTestWitness({ [REPLICA]: key.publicPem });
      const history = new History(folder, key, witness, new Random(`forks ${from}`));
      await history.write();
      report.histories += 1;
      const blamed = await history.alterations(history.directory, true);
      if (blamed.length > 0)
        report.findings.push({ seed: from, what: `an honest log has ${blamed.join(', ')}` });
      for (let at = from; at < Math.min(from + TRIES_EACH, seed + tries); at += 1)
        await attack(history, at, report);
    } finally {
      await rm(folder, { recursive: true });
    }
    progress(`${report.tries} attacks, ${report.found} found`);
  }
  return report;
}

async function attack(history: History, seed: number, report: ForkReport): Promise<void> {
  const random = new Random(`fork ${seed}`);
  const kind = random.pick(ATTACKS);
  const forged = await history.forged(kind, random);
  const without = await history.alterations(forged, false);
  const alterations = await history.alterations(forged, true);
  const isCosigned = await history.isCosigned(forged);
  await rm(forged, { recursive: true });
  const isFound = alterations.length > 0;
  report.tries += 1;
  report.found += isFound ? 1 : 0;
  report.foundWithout += without.length > 0 ? 1 : 0;
  report.cosigned += isCosigned ? 1 : 0;
  const count = report.attacks[kind] ?? { tries: 0, found: 0 };
  report.attacks[kind] = { tries: count.tries + 1, found: count.found + (isFound ? 1 : 0) };
  if (!isFound) report.findings.push({ seed, what: `${kind}: not found` });
  if (isCosigned) report.findings.push({ seed, what: `${kind}: the witness cosigned the forged head` });
  // A forgery that the keys of the gateway do not make good shows nothing.
  if (without.length > 0)
    report.findings.push({ seed, what: `${kind}: found without a witness: ${without}` });
}

/** A log that was written in several runs of a gateway, with copies of it from after each. */
class History {
  readonly directory: string;
  readonly #folder: string;
  readonly #key: TestSigningKey;
  readonly #witness: TestWitness;
  readonly #random: Random;
  readonly #copies: string[] = [];
  #attacks = 0;

  constructor(folder: string, key: TestSigningKey, witness: TestWitness, random: Random) {
    this.#folder = folder;
    this.directory = join(folder, 'log');
    this.#key = key;
    this.#witness = witness;
    this.#random = random;
  }

  /** Writes the log; after each run a copy is made, and the newest head is cosigned before or after it. */
  async write(): Promise<void> {
    for (let run = 0; run < this.#random.whole(2, 5); run += 1) {
      await this.#run(this.directory, this.#random.whole(2, 30), `run ${run}`);
      const copy = join(this.#folder, `copy-${run}`);
      const isCopiedFirst = this.#random.chance(0.5);
      if (isCopiedFirst) await cp(this.directory, copy, { recursive: true });
      await this.#cosign();
      if (!isCopiedFirst) await cp(this.directory, copy, { recursive: true });
      this.#copies.push(copy);
    }
  }

  /** A folder with a forged log. */
  async forged(kind: Attack, random: Random): Promise<string> {
    this.#attacks += 1;
    const forged = join(this.#folder, `forged-${this.#attacks}`);
    const folder = join(forged, REPLICA);
    if (kind === 'old copy' || kind === 'old copy continued') {
      await putBack(random.pick(this.#copies.slice(0, -1)), forged);
      if (kind === 'old copy continued')
        await this.#run(forged, random.whole(1, 120), `fork ${this.#attacks}`);
    } else if (kind === 'written from the beginning') {
      await this.#run(forged, random.whole(1, 120), `fork ${this.#attacks}`);
    } else {
      await putBack(this.directory, forged);
      const lines = await recordLines(folder);
      const keys = { seal: auditKeys(KEY), signing: this.#key };
      await forge(folder, REPLICA, changed(lines, kind, lines.length, random), keys);
    }
    // Cosigned heads that do not fit can be left out, or left there.
    if (random.chance(0.5)) await removeCosigned(folder);
    return forged;
  }

  /** Kinds of the alterations that `audit verify` finds, with the public keys alone. */
  async alterations(directory: string, withWitness: boolean): Promise<string[]> {
    const heads = checkpointsIn(await this.#witness.checkpoints());
    const witnesses = [witnessKey(this.#witness.publicKey)];
    const { alterations } = await verify({
      directory,
      keys: 'unknown',
      publicKeys: [this.#key.publicKey],
      ...(withWitness && { witnesses, witnessHeads: heads }),
      heads: [],
      onBytes: () => undefined,
    });
    return alterations.map(({ kind }) => kind);
  }

  /** True if the witness cosigns any head of a forged log, whatever it is asked with. */
  async isCosigned(directory: string): Promise<boolean> {
    const lines = await recordLines(join(directory, REPLICA));
    const leaves = lines.map((line) => leafHash(Buffer.from(line), 0, Buffer.byteLength(line)));
    const [known] = checkpointsIn(await this.#witness.checkpoints());
    const theirs = known?.size ?? 0;
    const sizes = new Set([leaves.length, theirs, theirs + 1, theirs - 1]);
    for (const size of sizes) {
      if (size < 1 || size > leaves.length) continue;
      for (const old of new Set([0, theirs, size, size - 1])) {
        if (old <= size && (await this.#asks(leaves, old, size))) return true;
      }
    }
    return false;
  }

  /** True if the head of that size is cosigned, and is not the one that is already. */
  async #asks(leaves: readonly string[], old: number, size: number): Promise<boolean> {
    const before = treeOf(leaves.slice(0, old));
    const range = new LeafRange(old);
    for (const leaf of leaves.slice(old, size)) range.add(leaf);
    const { root } = treeOf(leaves.slice(0, size));
    const note = signCheckpoint(this.#key, { replica: REPLICA, first: 1, size, root });
    const [known] = checkpointsIn(await this.#witness.checkpoints());
    // A log that was cut has the same beginning; that is what it was.
    if (known?.text === parseCheckpoint(note)?.text) return false;
    const proof = consistencyProof(before, range).map(digestText);
    return (await this.#witness.add([`old ${old}`, ...proof, '', note].join('\n'))).status === 200;
  }

  async #run(directory: string, records: number, name: string): Promise<void> {
    const audit = await openAudit(
      {
        directory,
        replica: REPLICA,
        key: KEY,
        signingKey: this.#key.secret,
        durability: 'write',
        onFailure: 'refuse',
        parameters: [],
        segment: SEGMENT,
      },
      { log: quiet },
    );
    for (let index = 0; index < records; index += 1)
      await audit.adminWritten('reload', { result: `${name} ${index}` });
    await audit.close('stop');
  }

  async #cosign(): Promise<void> {
    const { url, publicKey } = this.#witness;
    const sink = {
      kind: 'witness',
      name: 'witness',
      timeout: 60_000,
      url,
      publicKey,
      every: 1,
      tls: undefined,
    } as const;
    const options = { directory: this.directory, replica: REPLICA, keys: auditKeys(KEY), sinks: [sink] };
    const set = new SinkSet(options, {
      log: { info() {}, warn() {}, error() {} },
      recordLoss: () => Promise.resolve(false),
    });
    await until(async () => {
      const { witness } = await set.status();
      return witness !== undefined && witness.delivered > 0 && witness.behind === 0;
    });
    await set.finish(AbortSignal.timeout(60_000));
  }
}

function treeOf(leaves: readonly string[]): MerkleTree {
  const tree = MerkleTree.empty();
  for (const leaf of leaves) tree.add(leaf);
  return tree;
}

async function removeCosigned(folder: string): Promise<void> {
  for (const name of await readdir(folder)) if (name.endsWith('.cosigned')) await rm(join(folder, name));
}
