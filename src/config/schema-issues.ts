import { closest } from 'fastest-levenshtein';
import type { z } from 'zod';
import type { Issue, Path } from './issues.ts';
import { valueAt } from './tree.ts';
import { knownKeys } from './value-schemas.ts';

/** Keys that are reserved for later versions. `*` matches any name. */
const LATER = ['workers'].map((path) => path.split('.'));

/** Turns the schema's issues into sentences with paths. */
export function schemaIssues(schema: unknown, tree: unknown, issues: readonly z.core.$ZodIssue[]): Issue[] {
  return issues.flatMap((issue): Issue[] => {
    const path = issue.path.map((segment) => (typeof segment === 'number' ? segment : String(segment)));
    if (issue.code === 'unrecognized_keys') {
      const known = knownKeys(schema, path);
      return issue.keys.map((key) => aboutKey(path, key, known));
    }
    return [
      {
        path,
        message: issue.code === 'custom' ? issue.message : sentence(valueAt(tree, path), issue.message),
      },
    ];
  });
}

/** Start of zod's own messages, which are used where a schema has no message. */
const ZOD_PREFIX = /^[A-Z][a-z ]*: expected /;

function sentence(value: unknown, expected: string): string {
  if (value === undefined) {
    return `is missing: give ${expected}`;
  }
  return value === null ? `is empty: give ${expected}` : `must be ${expected.replace(ZOD_PREFIX, '')}`;
}

function aboutKey(parent: Path, name: string, known: readonly string[]): Issue {
  const key = [...parent, name];
  if (LATER.some((pattern) => isAt(pattern, key))) {
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

function isAt(pattern: readonly string[], path: Path): boolean {
  return (
    pattern.length === path.length && pattern.every((segment, at) => segment === '*' || segment === path[at])
  );
}
