import { closest, distance } from 'fastest-levenshtein';

/** Shortest part of a name that can stand for the whole, such as `ca` for `caFile`. */
const SHORTEST_PART = 2;

/**
 * Returns the key that a wrong name most likely stands for: one with few other letters, else one that
 * contains the name or is contained in it. Undefined if there is none.
 */
export function nearestKey(name: string, known: readonly string[]): string | undefined {
  const lower = name.toLowerCase();
  const near = known.filter((key) => isNear(lower, key.toLowerCase()));
  const candidates = near.length > 0 ? near : known.filter((key) => isPart(lower, key.toLowerCase()));
  return candidates.length === 0 ? undefined : closest(name, candidates);
}

/** A third of the letters may differ, and one of a short name. */
function isNear(name: string, key: string): boolean {
  return distance(name, key) <= Math.max(1, Math.floor(Math.min(name.length, key.length) / 3));
}

function isPart(name: string, key: string): boolean {
  const [short, long] = name.length < key.length ? [name, key] : [key, name];
  return short.length >= SHORTEST_PART && long.includes(short);
}
