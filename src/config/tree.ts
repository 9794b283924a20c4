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

/** Whether the mapping at a path has a key. */
export function hasKeyAt(tree: unknown, path: Path, key: string): boolean {
  const value = valueAt(tree, path);
  return typeof value === 'object' && value !== null && !Array.isArray(value) && Object.hasOwn(value, key);
}

/** Names that a message lists. */
const LISTED = 20;

/** Names for a message: the first ones, if there are many. */
export function listNames(names: readonly string[]): string {
  const shown = names.slice(0, LISTED).join(', ');
  return names.length > LISTED ? `${shown} and ${names.length - LISTED} more` : shown;
}

/** Of the mappings whose keys were listed: many messages may list the same many keys. */
const LISTS = new WeakMap<object, string>();

/** The keys of the mapping at a path, for a message. */
export function listKeysAt(tree: unknown, path: Path): string {
  const value = valueAt(tree, path);
  if (typeof value !== 'object' || value === null) return '';
  const list = LISTS.get(value) ?? listNames(keysAt(tree, path));
  LISTS.set(value, list);
  return list;
}

/** The items of the list at a path; none where there is no list. */
export function itemsAt(tree: unknown, path: Path): unknown[] {
  const value = valueAt(tree, path);
  return Array.isArray(value) ? value : [];
}
