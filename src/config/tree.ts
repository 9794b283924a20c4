import type { Path } from './issues.ts';

/** Returns the value at a path of an unchecked tree; undefined if there is none. */
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

/** Returns the text at a path; undefined if there is none, or another type. */
export function textAt(tree: unknown, path: Path): string | undefined {
  const value = valueAt(tree, path);
  return typeof value === 'string' ? value : undefined;
}

/** Returns the keys of the mapping at a path, in the order of the file; none if it is not a mapping. */
export function keysAt(tree: unknown, path: Path): string[] {
  const value = valueAt(tree, path);
  return typeof value === 'object' && value !== null && !Array.isArray(value) ? Object.keys(value) : [];
}

/** True if the mapping at a path has the key. */
export function hasKeyAt(tree: unknown, path: Path, key: string): boolean {
  const value = valueAt(tree, path);
  return typeof value === 'object' && value !== null && !Array.isArray(value) && Object.hasOwn(value, key);
}

/** Maximum number of names in a message. */
const LISTED = 20;

/** Joins names for a message, with a count in place of those beyond `LISTED`. */
export function listNames(names: readonly string[]): string {
  const shown = names.slice(0, LISTED).join(', ');
  return names.length > LISTED ? `${shown} and ${names.length - LISTED} more` : shown;
}

/** Caches lists by mapping, because many messages may list the same keys. */
const LISTS = new WeakMap<object, string>();

/** Joins the keys of the mapping at a path for a message. */
export function listKeysAt(tree: unknown, path: Path): string {
  const value = valueAt(tree, path);
  if (typeof value !== 'object' || value === null) return '';
  const list = LISTS.get(value) ?? listNames(keysAt(tree, path));
  LISTS.set(value, list);
  return list;
}

/** Returns the items of the list at a path; none if it is not a list. */
export function itemsAt(tree: unknown, path: Path): unknown[] {
  const value = valueAt(tree, path);
  return Array.isArray(value) ? value : [];
}
