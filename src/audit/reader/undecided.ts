import { capitalized, count } from '../../base/units.ts';
import { isPseudonym } from '../pseudonym.ts';
import type { AccessLine } from './results.ts';

const mayMatch =
  (cause: string) =>
  (requests: number): string =>
    `${count(requests, 'more request')} may match: ${cause}`;

const CLAUSES = {
  cut: mayMatch('parameters were too long to be recorded whole'),
  hidden: mayMatch('values are pseudonyms whose key is destroyed or not at hand'),
  nameOnly: mayMatch('parameters have their names only, from before they were in audit.parameters'),
  leftOut: (requests: number): string =>
    `the log leaves out ${count(requests, 'refusal')} of the gateway: too many came at once for a record of each`,
} as const;

/** Why the log does not say whether a request matches. */
export type Undecided = keyof typeof CLAUSES;

/** Clause of a search for an identifier while none is recorded. */
export const NOT_RECORDED = 'no identifier is recorded now: audit.parameters is empty';

/** Why a value may be among the parameters that cannot be read; undefined: all can. `byValue`: `audit.parameters`. */
export function unreadParameters(
  { parameters, cut }: Pick<AccessLine, 'parameters' | 'cut'>,
  byValue: readonly string[],
): Undecided | undefined {
  if (cut === true) return 'cut';
  const isHidden = (value: string | null): boolean => value !== null && isPseudonym(value);
  if (Object.values(parameters).flat().some(isHidden)) return 'hidden';
  // Others were never recorded, which the configuration says.
  return byValue.some((name) => parameters[name] === null) ? 'nameOnly' : undefined;
}

/** Counts requests that may match. */
export class UndecidedRequests {
  readonly #counts = new Map<Undecided, number>();

  readonly add = (reason: Undecided, requests: number): void => {
    this.#counts.set(reason, (this.#counts.get(reason) ?? 0) + requests);
  };

  /** Clauses about them. */
  get notes(): string[] {
    return Array.from(this.#counts, ([reason, requests]) => CLAUSES[reason](requests));
  }

  /** `where`: the part of the log in which they were counted, if that is not all of it. */
  sentences(where = ''): string[] {
    return this.notes.map((note) => `${capitalized(where + note)}.`);
  }
}
