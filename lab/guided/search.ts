import { setImmediate as nextTurn } from 'node:timers/promises';
import type { Random } from '../simulation/random.ts';
import { InputChanges } from './changes.ts';
import type { Coverage } from './coverage.ts';
import { Violation } from './violation.ts';

/**
 * Checks the properties of a target with one input; throws if one does not hold. `folder`: where it may write. Its
 * content does not matter to the next check.
 */
export type Check = (input: Buffer, folder: string) => void | Promise<void>;

/** An input with which a property does not hold. */
export interface Failure {
  readonly input: Buffer;
  readonly what: string;
}

export interface SearchOptions {
  readonly check: Check;
  readonly coverage: Coverage;
  readonly folder: string;
  readonly random: Random;
  /** The most bytes of an input. */
  readonly longest: number;
  /** Called before an input is checked, so that it is known if the check does not return. */
  readonly onInput: (input: Buffer) => void;
}

/** Processor time that one input may take, in milliseconds; inputs have a few kilobytes. */
const MOST_CPU_MS = 1_000;
/** Inputs between two turns of the event loop, in which timers of the code under test run. */
const INPUTS_PER_TURN = 500;
/** Inputs that are tried to make one shorter. */
const MOST_CUTS = 2_000;

/** Looks for inputs that reach code, or rounds of loops, that no earlier one reached, and goes on from these. */
export class Search {
  readonly #options: SearchOptions;
  readonly #changes: InputChanges;
  readonly #kept: { readonly input: Buffer; chosen: number }[] = [];
  #executions = 0;

  constructor(options: SearchOptions) {
    this.#options = options;
    this.#changes = new InputChanges(options.random, options.coverage.tokens, options.longest);
  }

  get executions(): number {
    return this.#executions;
  }

  /** The inputs that reached something new, in their order. */
  get kept(): readonly Buffer[] {
    return this.#kept.map(({ input }) => input);
  }

  /** Checks an input, and keeps it if it reaches something new; undefined: all properties hold. */
  async tryInput(input: Buffer): Promise<Failure | undefined> {
    const failure = await this.#execute(input);
    this.#executions += 1;
    if (failure === undefined && this.#options.coverage.takeNew() > 0) this.#kept.push({ input, chosen: 0 });
    if (this.#executions % INPUTS_PER_TURN === 0) await nextTurn();
    return failure;
  }

  /** Checks an input that is made from those that were kept. */
  tryNext(): Promise<Failure | undefined> {
    return this.tryInput(this.#changes.of(this.#choose(), this.#anyKept()));
  }

  /** Cuts out what the failure does not need. */
  async shorten(failure: Failure): Promise<Failure> {
    let shortest = failure;
    let tried = 0;
    for (
      let size = Math.ceil(failure.input.length / 2);
      size >= 1;
      size = size === 1 ? 0 : Math.ceil(size / 2)
    ) {
      for (let at = 0; at < shortest.input.length && tried < MOST_CUTS; tried += 1) {
        const cut = Buffer.concat([shortest.input.subarray(0, at), shortest.input.subarray(at + size)]);
        const still = await this.#execute(cut);
        if (still?.what === failure.what) shortest = still;
        else at += size;
      }
    }
    return shortest;
  }

  /**
   * Of the inputs that were kept, those that together reach every counter, then those that reach other counts, the
   * shortest first, until they have `mostBytes`.
   */
  async smallest(mostBytes: number): Promise<Buffer[]> {
    const { coverage } = this.#options;
    const sorted = this.kept.toSorted((a, b) => a.length - b.length || Buffer.compare(a, b));
    const chosen = new Set<Buffer>();
    let bytes = 0;
    for (const byClass of [false, true]) {
      coverage.forget();
      for (const input of sorted) {
        await this.#execute(input);
        if (coverage.takeNew(byClass) === 0 || chosen.has(input) || bytes + input.length > mostBytes)
          continue;
        chosen.add(input);
        bytes += input.length;
      }
    }
    return [...chosen];
  }

  async #execute(input: Buffer): Promise<Failure | undefined> {
    const { check, coverage, folder, onInput } = this.#options;
    onInput(input);
    coverage.clear();
    const begun = performance.now();
    try {
      // Awaiting what is no promise would cost more than most checks.
      const pending = check(input, folder);
      if (pending !== undefined) await pending;
      if (performance.now() - begun > MOST_CPU_MS) await this.#measure(input);
    } catch (error) {
      return { input: Buffer.from(input), what: whatOf(error) };
    }
    return undefined;
  }

  /** The machine may have been busy, so only the time of the processor counts. */
  async #measure(input: Buffer): Promise<void> {
    const before = process.threadCpuUsage();
    const { check, coverage, folder } = this.#options;
    // The counts are those of one check.
    coverage.clear();
    await check(input, folder);
    const { user, system } = process.threadCpuUsage(before);
    if (user + system > MOST_CPU_MS * 1_000) throw new Violation('an input takes little time');
  }

  /** Of two the one that was chosen less often, so that new ones come first. */
  #choose(): Buffer {
    if (this.#kept.length === 0) return Buffer.alloc(0);
    const [one, other] = [this.#options.random.pick(this.#kept), this.#options.random.pick(this.#kept)];
    const chosen = one.chosen <= other.chosen ? one : other;
    chosen.chosen += 1;
    return chosen.input;
  }

  #anyKept(): Buffer {
    return this.#kept.length === 0 ? Buffer.alloc(0) : this.#options.random.pick(this.#kept).input;
  }
}

function whatOf(error: unknown): string {
  if (error instanceof Violation) return error.message;
  // The first line of its own code says where it was thrown.
  const [, place = ''] =
    /\n\s+at (?:async )?([^\n]*)/.exec(error instanceof Error ? (error.stack ?? '') : '') ?? [];
  return `throws ${String(error).slice(0, 200)} ${place.replace(/\(?file:\/\/\S*\/(?=src\/|test\/|node_modules\/)/, '(')}`;
}
