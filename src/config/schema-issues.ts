import { closest } from 'fastest-levenshtein';
import type { z } from 'zod';
import { formatPath, type Issue, type Path } from './issues.ts';
import { knownKeys } from './schema-paths.ts';

/** Paths of keys that are reserved for later versions. */
const LATER: ReadonlySet<string> = new Set(['workers']);

/**
 * Turns the issues of zod into sentences with paths. `tree`: the input of the schema, from which the
 * sentences tell a missing value from an empty and a wrong one.
 */
export function schemaIssues(schema: unknown, tree: unknown, found: readonly z.core.$ZodIssue[]): Issue[] {
  return found.flatMap((issue): Issue[] => {
    const path = issue.path.map((segment) => (typeof segment === 'number' ? segment : String(segment)));
    switch (issue.code) {
      case 'unrecognized_keys': {
        const known = knownKeys(schema, path);
        return issue.keys.map((key) => unknownKey(path, key, known));
      }
      case 'invalid_key':
        return issue.issues.map(({ message }) => ({ path, key: path, message }));
      case 'custom':
        return [customIssue(tree, path, issue)];
      default:
        return [{ path, message: sentence(valueAt(tree, path), issue.message) }];
    }
  });
}

function customIssue(
  tree: unknown,
  path: Path,
  { message, params: { lacking, item, atKey } = {} }: z.core.$ZodIssueCustom,
): Issue {
  const value = valueAt(tree, path);
  if (atKey === true) return { path, key: path, message };
  if (lacking === true) {
    return { path, message: `${value === undefined ? 'is missing' : 'is empty'}, ${message}` };
  }
  return item !== undefined && Array.isArray(value)
    ? { path: [...path, value.indexOf(item)], message }
    : { path, message };
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

function sentence(value: unknown, expected: string): string {
  if (value === undefined) {
    return `is missing: give ${expected}`;
  }
  return value === null ? `is empty: give ${expected}` : `must be ${expected.replace(ZOD_PREFIX, '')}`;
}

function unknownKey(parent: Path, name: string, known: readonly string[]): Issue {
  const key = [...parent, name];
  if (LATER.has(formatPath(key))) {
    return { path: key, key, message: 'is not available in this version: leave it out' };
  }
  const nearest = `does not exist: the nearest key is ${closest(name, known)}`;
  // In a section for secrets, a misplaced key may be the secret itself: `password: { hunter2 }`.
  return holdsSecret(parent)
    ? { path: parent, key, message: `a key here ${nearest}` }
    : { path: key, key, message: nearest };
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
