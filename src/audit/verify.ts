import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { type ChainState, ChainWalk } from './chain-walk.ts';
import type { AuditKeys } from './keys.ts';
import { GENESIS, type Head } from './seal.ts';
import { replicasIn, type Segment, segmentsIn } from './segment.ts';
import { readBlocks } from './segment-reader.ts';

/** Something that cannot be as the gateway wrote it. */
export interface Alteration {
  readonly replica: string;
  /** Name of the file; empty: it is about the replica's log as a whole. */
  readonly segment: string;
  /** From 1; 0: it is about the file as a whole. */
  readonly line: number;
  readonly message: string;
}

export interface Verified {
  readonly alterations: readonly Alteration[];
  /** What is no fault and should be known. */
  readonly notes: readonly string[];
  readonly segments: number;
  readonly records: number;
  readonly seals: number;
  /** The ends of the chains: what to give as `heads` next time. */
  readonly heads: readonly Head[];
}

export interface VerifyOptions {
  readonly directory: string;
  /** Every key that sealed something. */
  readonly keys: readonly AuditKeys[];
  /** Ends of chains that were kept elsewhere: a log that stops before one of them was cut. */
  readonly heads: readonly Head[];
  /** Told of the bytes that were looked at, uncompressed. */
  readonly onBytes: (count: number) => void;
}

/**
 * Follows the chain of every replica from end to end. Memory stays flat however large the log is.
 * @throws Error when a file cannot be read
 */
export async function verify(options: VerifyOptions): Promise<Verified> {
  const { directory, heads } = options;
  const replicas = await replicasIn(directory);
  const parts: Verified[] = [];
  for (const replica of replicas) parts.push(await new ReplicaCheck(options, replica).run());
  const absent = heads
    .filter(({ replica }) => !replicas.includes(replica))
    .map(({ replica }) => ({
      replica,
      segment: '',
      line: 0,
      message: 'the whole log of this replica is missing',
    }));
  const sum = (of: (part: Verified) => number): number => parts.reduce((total, part) => total + of(part), 0);
  return {
    alterations: [...parts.flatMap(({ alterations }) => alterations), ...absent],
    notes: parts.flatMap(({ notes }) => notes),
    segments: sum(({ segments }) => segments),
    records: sum(({ records }) => records),
    seals: sum(({ seals }) => seals),
    heads: parts.flatMap(({ heads: ends }) => ends),
  };
}

class ReplicaCheck {
  readonly #options: VerifyOptions;
  readonly #replica: string;
  readonly #alterations: Alteration[] = [];
  readonly #notes: string[] = [];
  readonly #heads: Head[];
  readonly #seen = new Set<string>();
  /** Ends of segments that were removed for their age, as `last:hmac`. */
  readonly #retired = new Set<string>();
  #state: ChainState | undefined;
  #end: Head | undefined;
  #start: ChainState = { previous: GENESIS, nextSeq: 1 };
  #records = 0;
  #seals = 0;

  constructor(options: VerifyOptions, replica: string) {
    this.#options = options;
    this.#replica = replica;
    this.#heads = options.heads.filter((head) => head.replica === replica);
  }

  async run(): Promise<Verified> {
    const folder = join(this.#options.directory, this.#replica);
    const segments = await segmentsIn(folder);
    for (const segment of segments) await this.#check(folder, segment, segment === segments.at(-1));
    this.#checkStart(segments[0]);
    this.#checkHeads();
    for (const name of await readdir(folder)) {
      if (name.endsWith('.torn')) this.#notes.push(`${this.#replica}/${name}: set aside after a crash`);
    }
    return {
      alterations: this.#alterations,
      notes: this.#notes,
      segments: segments.length,
      records: this.#records,
      seals: this.#seals,
      heads: this.#end === undefined ? [] : [this.#end],
    };
  }

  async #check(folder: string, { name }: Segment, newest: boolean): Promise<void> {
    const walk = new ChainWalk(this.#options.keys, this.#state, {
      onFault: ({ line, message }) => this.#alter(name, line, message),
      onSeal: ({ last, hmac }) => {
        this.#end = { replica: this.#replica, seq: last, hmac };
        if (this.#heads.some(({ seq }) => seq === last)) this.#seen.add(`${last}:${hmac}`);
      },
      onAdmin: (line) => this.#readAdmin(line),
    });
    let torn = 0;
    try {
      for await (const { bytes, whole } of readBlocks(join(folder, name))) {
        this.#options.onBytes(bytes.length);
        if (whole) walk.walk(bytes);
        else torn = bytes.length;
      }
    } catch (error) {
      const reason = error instanceof Object && 'message' in error ? error.message : error;
      this.#alter(name, walk.lines + 1, `cannot be read from here on: ${reason}`);
    }
    this.#checkEnd(name, walk, torn, newest);
    this.#records += walk.records;
    this.#seals += walk.seals;
    if (this.#state === undefined && walk.header !== undefined) {
      this.#start = { previous: walk.header.previous, nextSeq: walk.header.first };
    }
    if (walk.header !== undefined && walk.header.replica !== this.#replica) {
      this.#alter(name, 1, `is the log of another replica (${walk.header.replica})`);
    }
    this.#state = walk.state;
  }

  /** Of a gateway that is running, or was killed, the newest segment may end anywhere. */
  #checkEnd(name: string, walk: ChainWalk, torn: number, newest: boolean): void {
    const { unsealed, lines } = walk;
    if (newest) {
      if (unsealed > 0 || torn > 0) {
        this.#notes.push(
          `${this.#replica}/${name}: ends with ${unsealed} records under no seal and ${torn} bytes of a line: the gateway is writing, or was killed`,
        );
      }
      return;
    }
    if (unsealed > 0) this.#alter(name, lines, `ends with ${unsealed} records under no seal`);
    if (torn > 0) this.#alter(name, lines + 1, 'ends in the middle of a line');
  }

  #readAdmin(line: string): void {
    if (!line.includes('"event":"segment-retired"')) return;
    try {
      const { event, last, hmac } = JSON.parse(line) as Record<string, unknown>;
      if (event === 'segment-retired') this.#retired.add(`${last}:${hmac}`);
    } catch {
      // A line that was changed: its seal says so.
    }
  }

  #checkStart(first: Segment | undefined): void {
    const { previous, nextSeq } = this.#start;
    if (first === undefined || previous === GENESIS || this.#retired.has(`${nextSeq - 1}:${previous}`))
      return;
    this.#alter(
      first.name,
      1,
      `is not the first: the segments before it, up to record ${nextSeq - 1}, are missing`,
    );
  }

  #checkHeads(): void {
    for (const { seq, hmac } of this.#heads) {
      if (this.#seen.has(`${seq}:${hmac}`)) continue;
      const end = (this.#state?.nextSeq ?? 1) - 1;
      const { nextSeq } = this.#start;
      if (seq < nextSeq && this.#retired.size > 0) {
        this.#notes.push(`${this.#replica}: record ${seq} of --head was removed for its age`);
        continue;
      }
      const message =
        seq > end
          ? `the end is cut off: record ${seq} was there, and the log ends with ${end}`
          : `record ${seq} is sealed otherwise than --head says: the log was written anew`;
      this.#alterations.push({ replica: this.#replica, segment: '', line: 0, message });
    }
  }

  #alter(segment: string, line: number, message: string): void {
    this.#alterations.push({ replica: this.#replica, segment, line, message });
  }
}
