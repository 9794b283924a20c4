import { capitalized } from '../../base/units.ts';
import { isPseudonym } from '../pseudonym.ts';
import type { AccessLine } from './results.ts';

const CAUSES = {
  cut: 'parameters were too long to be recorded whole',
  hidden: 'values are pseudonyms whose key is destroyed or not at hand',
  nameOnly: 'parameters have their names only, from before they were in audit.parameters',
} as const;

/** Why the log does not say whether a request matches. */
export type Undecided = keyof typeof CAUSES;

/** What a search for an identifier says then. */
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

  readonly add = (reason: Undecided): void => {
    this.#counts.set(reason, (this.#counts.get(reason) ?? 0) + 1);
  };

  /** Clauses about them. */
  get notes(): string[] {
    return Array.from(this.#counts, ([reason, requests]) => {
      const more = requests === 1 ? 'more request' : 'more requests';
      return `${requests} ${more} may match: ${CAUSES[reason]}`;
    });
  }

  get sentences(): string[] {
    return this.notes.map((note) => `${capitalized(note)}.`);
  }
}
