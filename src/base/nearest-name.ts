/** Shortest part of a name that can stand for the whole, such as `ca` for `caFile`. */
const SHORTEST_PART = 2;

/**
 * Returns the name that a wrong one most likely stands for: one with few other letters, else one that contains it or is
 * contained in it. Undefined if there is none.
 */
export function nearestName(name: string, known: readonly string[]): string | undefined {
  const lower = name.toLowerCase();
  const near = known.filter((each) => isNear(lower, each.toLowerCase()));
  const candidates = near.length > 0 ? near : known.filter((each) => isPart(lower, each.toLowerCase()));
  return candidates.toSorted((a, b) => distance(name, a) - distance(name, b))[0];
}

/** A third of the letters may differ, and one of a short name. */
function isNear(name: string, other: string): boolean {
  const most = Math.max(1, Math.floor(Math.min(name.length, other.length) / 3));
  return Math.abs(name.length - other.length) <= most && distance(name, other) <= most;
}

function isPart(name: string, other: string): boolean {
  const [short, long] = name.length < other.length ? [name, other] : [other, name];
  return short.length >= SHORTEST_PART && long.includes(short);
}

/** The Levenshtein distance: how many letters to insert, remove or replace. */
function distance(a: string, b: string): number {
  let row = Array.from({ length: b.length + 1 }, (_, at) => at);
  for (let i = 0; i < a.length; i += 1) {
    let last = i + 1;
    const next = [last];
    for (let j = 0; j < b.length; j += 1) {
      const replaced = (row[j] ?? 0) + (a[i] === b[j] ? 0 : 1);
      last = Math.min(last + 1, (row[j + 1] ?? 0) + 1, replaced);
      next.push(last);
    }
    row = next;
  }
  return row[b.length] ?? 0;
}
