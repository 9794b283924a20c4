import type { Path } from './faults.ts';

/** The value at a path of a tree that nobody has checked yet; undefined where there is none. */
export function valueAt(tree: unknown, path: Path): unknown {
  let value = tree;
  for (const segment of path) {
    // `hasOwn`: a deployment may be called "constructor".
    if (typeof value !== 'object' || value === null || !Object.hasOwn(value, segment)) {
      return undefined;
    }
    value = Reflect.get(value, segment);
  }
  return value;
}

/** The text at a path; undefined where there is none, or something else. */
export function textAt(tree: unknown, path: Path): string | undefined {
  const value = valueAt(tree, path);
  return typeof value === 'string' ? value : undefined;
}

/** The keys of the mapping at a path, in the order of the file; none where there is no mapping. */
export function keysAt(tree: unknown, path: Path): string[] {
  const value = valueAt(tree, path);
  return typeof value === 'object' && value !== null && !Array.isArray(value) ? Object.keys(value) : [];
}

/** The items of the list at a path; none where there is no list. */
export function itemsAt(tree: unknown, path: Path): unknown[] {
  const value = valueAt(tree, path);
  return Array.isArray(value) ? value : [];
}
