import type { z } from 'zod';
import { knownKeys, listNames } from './cross-check.ts';
import type { Issue, Path } from './issues.ts';
import { SHARED_KEYS, writtenPath } from './listen.ts';

/** Shortest part of a name that can stand for the whole, such as `ca` for `caFile`. */
const SHORTEST_PART = 2;

/**
 * Turns the issues of zod into sentences with paths. `tree`: the input of the schema, from which the
 * sentences distinguish a missing value from an empty and a wrong one.
 */
export function schemaIssues(schema: unknown, tree: unknown, found: readonly z.core.$ZodIssue[]): Issue[] {
  const isList = Array.isArray(valueAt(tree, ['listen']));
  return found.flatMap((issue): Issue[] => {
    const checked = issue.path.map((segment) => (typeof segment === 'number' ? segment : String(segment)));
    const path = writtenPath(checked, isList);
    if (isList && isShared(tree, path)) return [];
    switch (issue.code) {
      case 'unrecognized_keys': {
        const known = knownKeys(schema, checked);
        return issue.keys.map((key) => unknownKey(path, key, known));
      }
      case 'invalid_key':
        return issue.issues.map(({ message }) => ({ path, key: path, message }));
      case 'custom':
        return [customIssue(tree, path, issue)];
      default:
        return [{ path, message: sentence(valueAt(tree, path), issue) }];
    }
  });
}

/** True if the value is that of another listener, which has the issue, too. */
function isShared(tree: unknown, [section, index, key]: Path): boolean {
  if (section !== 'listen' || index === undefined || key === undefined) return false;
  return (
    SHARED_KEYS.some((each) => each === key) && !Object.hasOwn(Object(valueAt(tree, [section, index])), key)
  );
}

function customIssue(
  tree: unknown,
  path: Path,
  { message, params: { lacking, item, atKey, other } = {} }: z.core.$ZodIssueCustom,
): Issue {
  const value = valueAt(tree, path);
  if (atKey === true) return { path, key: path, message };
  if (lacking === true) {
    return { path, message: `${value === undefined ? 'is missing' : 'is empty'}, ${message}` };
  }
  return item !== undefined && Array.isArray(value)
    ? { path: [...path, value.indexOf(item)], message }
    : { path, message, ...(other !== undefined && { other }) };
}

function valueAt(tree: unknown, path: Path): unknown {
  let value = tree;
  for (const segment of path) {
    // `hasOwn`: a deployment may be called "constructor".
    if (typeof value !== 'object' || value === null || !Object.hasOwn(value, segment)) return undefined;
    value = Reflect.get(value, segment);
  }
  return value;
}

/** Start of zod's own messages, which are used where a schema has no message. */
const ZOD_PREFIX = /^[A-Z][a-z ]*: expected /;

/** Codes of numbers that are out of range. Other values may be secrets, which no message may quote. */
const RANGE: ReadonlySet<string> = new Set(['too_small', 'too_big', 'not_multiple_of']);

function sentence(value: unknown, { code, message: expected }: z.core.$ZodIssue): string {
  if (value === undefined) return `is missing: give ${expected}`;
  if (value === null) return `is empty: give ${expected}`;
  const found = RANGE.has(code) && typeof value === 'number' ? `, not ${value}` : '';
  return `must be ${expected.replace(ZOD_PREFIX, '')}${found}`;
}

function unknownKey(parent: Path, name: string, known: readonly string[]): Issue {
  const key = [...parent, name];
  const message = `does not exist: ${keyRemedy(name, known)}`;
  // In a section for secrets, a misplaced key may be the secret itself: `password: { hunter2 }`.
  return holdsSecret(parent)
    ? { path: parent, key, message: `a key here ${message}` }
    : { path: key, key, message };
}

function keyRemedy(name: string, known: readonly string[]): string {
  const nearest = nearestKey(name, known);
  if (nearest !== undefined) return `the nearest key is ${nearest}`;
  return known.length === 1 ? `the only key here is ${known[0]}` : `there are ${listNames(known)}`;
}

function holdsSecret(section: Path): boolean {
  return (
    section[0] === 'redis' ||
    section[0] === 'sealed' ||
    (section[0] === 'clients' && section[2] === 'identify') ||
    (section[0] === 'credentials' && section.length > 1) ||
    section.at(-1) === 'keyPassphrase'
  );
}

/**
 * Returns the key that a wrong name most likely stands for: one with few other letters, else one that
 * contains the name or is contained in it. Undefined if there is none.
 */
function nearestKey(name: string, known: readonly string[]): string | undefined {
  const lower = name.toLowerCase();
  const near = known.filter((key) => isNear(lower, key.toLowerCase()));
  const candidates = near.length > 0 ? near : known.filter((key) => isPart(lower, key.toLowerCase()));
  return candidates.toSorted((a, b) => distance(name, a) - distance(name, b))[0];
}

/** A third of the letters may differ, and one of a short name. */
function isNear(name: string, key: string): boolean {
  const most = Math.max(1, Math.floor(Math.min(name.length, key.length) / 3));
  return Math.abs(name.length - key.length) <= most && distance(name, key) <= most;
}

function isPart(name: string, key: string): boolean {
  const [short, long] = name.length < key.length ? [name, key] : [key, name];
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
