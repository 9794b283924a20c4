import { readFileSync } from 'node:fs';
import { type Debugger, type Profiler, Session } from 'node:inspector';
import { repository } from '../../test/support/repository.ts';
import type { Observer } from './walks.ts';

/** A function of the gateway that was entered. */
export interface EnteredFunction {
  /** From `src/`. */
  readonly file: string;
  readonly name: string;
  readonly start: Debugger.Location;
  readonly end: Debugger.Location;
  readonly isAsync: boolean;
}

const SOURCES = `file://${repository}/src/`;

/** V8's precise coverage: which functions of the gateway are entered between `begin` and `end`. */
export class Coverage implements Observer {
  readonly #session = new Session();
  #entered = new Map<string, EnteredFunction>();

  begin(): void {
    this.#session.connect();
    this.#session.post('Profiler.enable');
    this.#session.post('Profiler.startPreciseCoverage', { callCount: true, detailed: true });
  }

  end(): void {
    // Calls back before it returns, since the session is one with this thread.
    this.#session.post('Profiler.takePreciseCoverage', (_error, { result }) => {
      this.#entered = new Map(result.flatMap(enteredIn).map((each) => [placeOf(each), each]));
    });
    this.#session.disconnect();
  }

  /** The functions that were entered, by their places. */
  get entered(): ReadonlyMap<string, EnteredFunction> {
    return this.#entered;
  }
}

export function placeOf({ file, start }: EnteredFunction): string {
  return `${file}:${start.lineNumber}:${start.columnNumber}`;
}

function enteredIn({ scriptId, url, functions }: Profiler.ScriptCoverage): EnteredFunction[] {
  if (!url.startsWith(SOURCES)) return [];
  const text = readFileSync(new URL(url), 'utf8');
  const locate = (offset: number): Debugger.Location => {
    const lines = text.slice(0, offset).split('\n');
    return { scriptId, lineNumber: lines.length - 1, columnNumber: lines.at(-1)?.length ?? 0 };
  };
  return functions.flatMap(({ functionName, ranges: [range] }) => {
    // Initialisers of fields are no functions to a reader.
    if (range === undefined || range.count === 0 || functionName.startsWith('<')) return [];
    const { startOffset, endOffset } = range;
    return {
      file: url.slice(SOURCES.length),
      name: functionName || '(anonymous)',
      start: locate(startOffset),
      end: locate(endOffset),
      // The range of a function begins with its modifiers.
      isAsync: /^async\b/.test(text.slice(startOffset, endOffset)),
    };
  });
}
