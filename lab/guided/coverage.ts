import { createRequire, registerHooks, stripTypeScriptTypes } from 'node:module';
import { fileURLToPath } from 'node:url';
import { repository } from '../../test/support/repository.ts';

interface Instrumenter {
  instrumentSync(code: string, file: string): string;
}

/** Counters of one file, as the instrumented code finds them. */
interface FileCounters {
  s: Record<string, number> | Uint32Array;
  f: Record<string, number> | Uint32Array;
  readonly b: Record<string, number[] | Uint32Array>;
}

const require = createRequire(import.meta.url);
const VARIABLE = '__lab_coverage__';
/** The least count of each class: more rounds of a loop are something new only if they are many more. */
const CLASSES = [1, 2, 3, 4, 8, 16, 32, 128];
const TEXTS = /'([^'\\\n]{1,40})'|"([^"\\\n]{1,40})"/g;

/** Counts which statements, functions and branches of some files are executed, and how often. */
export class Coverage {
  readonly #instrumenters: readonly Instrumenter[];
  readonly #folders: readonly string[];
  readonly #tokens = new Set<string>();
  #counters = new Uint32Array(0);
  /** For each counter the classes of counts that were seen, one bit each. */
  #seen = new Uint8Array(0);
  #features = 0;

  /**
   * Instruments files that are loaded from now on. `counted`: the beginnings of their paths, from the root of the
   * repository.
   */
  constructor(counted: readonly string[]) {
    const { createInstrumenter } = require('istanbul-lib-instrument');
    this.#instrumenters = [true, false].map((esModules) =>
      createInstrumenter({ esModules, coverageVariable: VARIABLE }),
    );
    this.#folders = counted.map((path) => `${repository}/${path}`);
    registerHooks({
      load: (url, context, next) => {
        const loaded = next(url, context);
        if (!url.startsWith('file:') || loaded.source == null) return loaded;
        const file = fileURLToPath(url);
        if (!this.#folders.some((folder) => file.startsWith(folder))) return loaded;
        const isModule = loaded.format !== 'commonjs';
        const text = String(loaded.source);
        return {
          ...loaded,
          format: isModule ? 'module' : 'commonjs',
          source: this.#instrument(isModule ? stripTypeScriptTypes(text) : text, file, isModule),
        };
      },
    });
  }

  /** Puts the counters of all that was loaded into one array. To be called before the first `clear`. */
  begin(): void {
    const files: FileCounters[] = Object.values(Reflect.get(globalThis, VARIABLE) ?? {});
    const size = (counts: object): number => Object.keys(counts).length;
    const total = files.reduce(
      (sum, { s, f, b }) =>
        sum + size(s) + size(f) + Object.values(b).reduce((all, each) => all + size(each), 0),
      0,
    );
    if (total === 0) throw new Error('nothing was instrumented');
    this.#counters = new Uint32Array(total);
    this.#seen = new Uint8Array(total);
    let used = 0;
    const take = (counts: object): Uint32Array => {
      used += size(counts);
      return this.#counters.subarray(used - size(counts), used);
    };
    for (const file of files) {
      file.s = take(file.s);
      file.f = take(file.f);
      for (const [name, counts] of Object.entries(file.b)) file.b[name] = take(counts);
    }
  }

  /** Texts in the code, from which inputs can be made. */
  get tokens(): readonly string[] {
    return [...this.#tokens];
  }

  /** Counters, and those that have counted something. */
  get reached(): { readonly counters: number; readonly reached: number; readonly features: number } {
    return {
      counters: this.#counters.length,
      reached: this.#seen.reduce((sum, classes) => sum + (classes === 0 ? 0 : 1), 0),
      features: this.#features,
    };
  }

  /** Sets all counters to 0. */
  clear(): void {
    this.#counters.fill(0);
  }

  /** Forgets what was seen. */
  forget(): void {
    this.#seen.fill(0);
    this.#features = 0;
  }

  /**
   * Returns how many counters have a count of a class that they did not have before, or, if not `byClass`, that count
   * for the first time.
   */
  takeNew(byClass = true): number {
    const counters = this.#counters;
    const seen = this.#seen;
    let found = 0;
    for (let at = 0; at < counters.length; at += 1) {
      const count = counters[at] ?? 0;
      if (count === 0) continue;
      const before = seen[at] ?? 0;
      const now = before | (1 << classOf(count));
      if (now === before) continue;
      if (byClass || before === 0) found += 1;
      seen[at] = now;
      this.#features += 1;
    }
    return found;
  }

  #instrument(code: string, file: string, isModule: boolean): string {
    for (const [, single, double] of code.matchAll(TEXTS)) this.#tokens.add(single ?? double ?? '');
    return this.#instrumenters[isModule ? 0 : 1]?.instrumentSync(code, file) ?? code;
  }
}

function classOf(count: number): number {
  let found = 0;
  while (found + 1 < CLASSES.length && count >= (CLASSES[found + 1] ?? 0)) found += 1;
  return found;
}
