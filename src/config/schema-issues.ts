import type { z } from 'zod';
import { nearestName } from '../base/nearest-name.ts';
import { knownKeys, listNames, looksLikeAddress, schemasAt } from './cross-check.ts';
import type { Issue, Path } from './issues.ts';
import { SHARED_KEYS, writtenPath } from './listen.ts';
import { isSource } from './secret-source.ts';
import { SECTION } from './value-schemas.ts';

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
        return issue.keys.map((key) =>
          unknownKey(path, key, known, canBeSecret(schema, checked, key, known)),
        );
      }
      case 'invalid_key':
        return issue.issues.map(({ message }) =>
          looksLikeAddress(path.at(-1)) || (isSecret(schema, checked) && !PLAIN.test(String(path.at(-1))))
            ? { path: path.slice(0, -1), key: path, message: `a key here ${message}` }
            : { path, key: path, message },
        );
      case 'custom':
        return [customIssue(tree, path, issue)];
      case 'invalid_union': {
        const inner = sectionIssues(valueAt(tree, path), issue);
        if (inner.length > 0) return schemaIssues(schema, tree, inner);
        return [{ path, message: sentence(valueAt(tree, path), issue) }];
      }
      default:
        return [{ path, message: sentence(valueAt(tree, path), issue) }];
    }
  });
}

/** Returns what is wrong within a mapping where a section is one of two forms, such as `lock: false` and `lock: {…}`. */
function sectionIssues(
  value: unknown,
  { message, path, errors }: z.core.$ZodIssueInvalidUnion,
): z.core.$ZodIssue[] {
  // Other forms, such as { file: NAME }, are in the message, and a misplaced key of theirs may be a secret.
  if (!message.startsWith(SECTION) || typeof value !== 'object' || value === null) return [];
  const inner = errors.find((issues) =>
    issues.every(({ code, path: { length } }) => length > 0 || code === 'unrecognized_keys'),
  );
  return (inner ?? []).map((each) => ({ ...each, path: [...path, ...each.path] }));
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

/** Start and end of zod's own messages, which are used where a schema has no message. */
const ZOD_PREFIX = /^[A-Z][a-z ]*: expected /;
const ZOD_SUFFIX = /, received \w+$/;

/** Codes of numbers that are out of range. Other values may be secrets, which no message may quote. */
const RANGE: ReadonlySet<string> = new Set(['too_small', 'too_big', 'not_multiple_of']);

function sentence(value: unknown, { code, message }: z.core.$ZodIssue): string {
  const expected = message.replace(ZOD_PREFIX, '').replace(ZOD_SUFFIX, '');
  if (value === undefined) return `is missing: give ${expected}`;
  if (value === null) return `is empty: give ${expected}`;
  const found = RANGE.has(code) && typeof value === 'number' ? `, not ${value}` : '';
  return `must be ${expected}${found}`;
}

function unknownKey(parent: Path, name: string, known: readonly string[], mayBeSecret: boolean): Issue {
  const key = [...parent, name];
  const message = `does not exist: ${keyRemedy(name, known)}`;
  return mayBeSecret ? { path: parent, key, message: `a key here ${message}` } : { path: key, key, message };
}

function keyRemedy(name: string, known: readonly string[]): string {
  if (name === '<<') return 'merge keys are not read, so write the keys out';
  const nearest = nearestName(name, known);
  if (nearest !== undefined) return `the nearest key is ${nearest}`;
  return known.length === 1 ? `the only key here is ${known[0]}` : `there are ${listNames(known)}`;
}

/** A word that can be a mistyped key. Text with other characters may be a key and its secret: `{ password:hunter2 }`. */
const PLAIN = /^[\w-]{1,64}$/;

/** True if a misplaced key may be, or contain, the secret itself: `password: { hunter2 }`. */
function canBeSecret(schema: unknown, section: Path, name: string, known: readonly string[]): boolean {
  const isForSecrets =
    section[0] === 'redis' ||
    section[0] === 'sealed' ||
    (section[0] === 'clients' && section[2] === 'identify') ||
    (section[0] === 'credentials' && section.length > 1) ||
    looksLikeAddress(name) ||
    isSecret(schema, section);
  // Elsewhere a plain word is a mistyped key, which is easier to find by its name.
  return isForSecrets || (!PLAIN.test(name) && known.some((key) => isSecret(schema, [...section, key])));
}

/** True if the value at a path is the source of a secret. */
function isSecret(schema: unknown, path: Path): boolean {
  return schemasAt(schema, path).some((each) => isSource(each as z.ZodType));
}
