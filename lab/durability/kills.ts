import { randomBytes } from 'node:crypto';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { findingText } from '../../src/audit/findings.ts';
import { auditKeys } from '../../src/audit/keys.ts';
import { verify } from '../../src/audit/reader/verify.ts';
import { type Head, parseHead } from '../../src/audit/seal.ts';
import { Secret } from '../../src/base/secret.ts';
import { readRecorded } from '../../test/support/recorded-requests.ts';
import { newSigningKey } from '../../test/support/signing-key.ts';
import { Random } from '../simulation/random.ts';
import { killUnderLoad, startBefore, startUpstream, type Upstream } from './loaded-gateway.ts';

/** Kinds of gateways that are killed. */
const KINDS = [
  { durability: 'fsync', workers: 1 },
  { durability: 'write', workers: 1 },
  { durability: 'fsync', workers: 2 },
  { durability: 'write', workers: 2 },
] as const;
type Kind = (typeof KINDS)[number];

/** Kills of gateways with the same log: the whole log is read after each. */
const KILLS_OF_LOG = 10;
/** The most milliseconds from the first response to the kill. */
const LONGEST_MS = 400;

export interface KillOptions {
  readonly seed: number;
  readonly kills: number;
  /** False: no further kill. */
  readonly goesOn?: () => boolean;
  readonly progress?: (text: string) => void;
}

/** The figures of a row: one kind of gateway, or of power losses. */
export interface LossCount {
  times: number;
  responses: number;
  /** Requests that were under way, or came before the load ended. */
  failed: number;
  recoveries: number;
}

export interface KillReport {
  /** By durability and number of workers. */
  readonly counts: ReadonlyMap<string, LossCount>;
  readonly findings: readonly string[];
}

/** Kills gateways under load; after each kill, the log is checked with all heads, and each response has its record. */
export async function runKills(options: KillOptions): Promise<KillReport> {
  const { seed, kills, goesOn = () => true, progress = () => undefined } = options;
  const random = new Random(`kills ${seed}`);
  const counts = new Map<string, LossCount>();
  const findings: string[] = [];
  const simulator = await startUpstream();
  try {
    let killed = 0;
    while (killed < kills && goesOn()) {
      const kind = KINDS[Math.floor(killed / KILLS_OF_LOG) % KINDS.length] ?? KINDS[0];
      const name = `${kind.durability}, ${kind.workers === 1 ? 'one process' : `${kind.workers} workers`}`;
      const count = counts.get(name) ?? { times: 0, responses: 0, failed: 0, recoveries: 0 };
      counts.set(name, count);
      await using log = await KilledLog.create(simulator, kind);
      for (let of = Math.min(KILLS_OF_LOG, kills - killed); of > 0 && goesOn(); of -= 1) {
        killed += 1;
        const wrong = await log.kill(`k${seed}-${killed}`, random.between(0, LONGEST_MS), count);
        findings.push(...wrong.map((each) => `kill ${killed} (${name}): ${each}`));
        progress(`${killed} kills, ${findings.length} findings`);
      }
      count.recoveries += log.recoveries;
    }
  } finally {
    await simulator.close();
  }
  return { counts, findings };
}

/** One audit log, and the gateways that write to it one after the other. */
class KilledLog implements AsyncDisposable {
  readonly #simulator: Upstream;
  readonly #kind: Kind;
  readonly #folder: string;
  readonly #key = randomBytes(32).toString('hex');
  readonly #signingKey = newSigningKey();
  /** Ids of the complete responses whose record was there so far. */
  #responded: string[] = [];
  readonly #heads: Head[] = [];
  recoveries = 0;

  private constructor(simulator: Upstream, kind: Kind, folder: string) {
    this.#simulator = simulator;
    this.#kind = kind;
    this.#folder = folder;
  }

  static async create(simulator: Upstream, kind: Kind): Promise<KilledLog> {
    const log = new KilledLog(simulator, kind, await mkdtemp(join(tmpdir(), 'killed-')));
    await writeFile(join(log.#folder, 'key'), log.#key, { mode: 0o600 });
    await writeFile(join(log.#folder, 'signing-key'), log.#signingKey.privatePem, { mode: 0o600 });
    await mkdir(log.#directory);
    return log;
  }

  get #directory(): string {
    return join(this.#folder, 'log');
  }

  /** Starts a gateway and kills it under load; resolves to what is wrong then. */
  async kill(prefix: string, afterMs: number, count: LossCount): Promise<string[]> {
    const { durability, workers } = this.#kind;
    const keyFile = join(this.#folder, 'key');
    const signingKeyFile = join(this.#folder, 'signing-key');
    const audit = { directory: this.#directory, keyFile, signingKeyFile, replica: 'r', durability };
    const gateway = await startBefore(this.#simulator, { workers, audit });
    const { ids, failed, foreign } = await killUnderLoad(gateway, prefix, afterMs);
    this.#responded.push(...ids);
    count.times += 1;
    count.responses += ids.length;
    count.failed += failed;
    for (const { head } of gateway.logged) {
      const parsed = typeof head === 'string' ? parseHead(head) : undefined;
      if (parsed !== undefined) this.#heads.push(parsed);
    }
    return [...foreign.map((each) => `a response of another request: ${each}`), ...(await this.#check())];
  }

  async #check(): Promise<string[]> {
    const { requests, recoveries } = await readRecorded(this.#directory);
    this.recoveries = recoveries;
    const missing = this.#responded.filter((id) => !requests.has(id));
    this.#responded = this.#responded.filter((id) => requests.has(id));
    const keys = [auditKeys(new Secret(this.#key))];
    const options = { directory: this.#directory, keys, heads: this.#heads, onBytes: () => undefined };
    const { alterations } = await verify(options);
    const publicKeys = [this.#signingKey.publicKey];
    const signed = await verify({ ...options, keys: 'unknown', publicKeys });
    return [
      ...missing.map((id) => `the response ${id} has no record`),
      ...alterations.map(findingText),
      ...signed.alterations.map((each) => `by the signed heads: ${findingText(each)}`),
    ];
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await rm(this.#folder, { recursive: true });
  }
}
