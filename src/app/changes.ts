import { isDeepStrictEqual } from 'node:util';
import type { Steps } from '../base/steps.ts';
import type { Config } from '../config/schema.ts';
import type { CredentialSet } from '../credentials/credentials.ts';

/** Sections whose changed entries are listed individually. */
const BY_ENTRY = ['deployments', 'credentials'];

interface InForce {
  readonly config: Config;
  readonly credentials: ReadonlyMap<string, CredentialSet>;
}

/** Lists the names of changes, including credentials whose secret changed in its source only. */
export function* changesOf(before: InForce, after: InForce): Steps<string[]> {
  const changed = yield* changesBetween(before.config, after.config);
  const told = new Set(changed);
  for (const [name, { current, next }] of after.credentials) {
    const old = before.credentials.get(name);
    const same = old?.current.version === current.version && old.next?.version === next?.version;
    if (!same && !told.has(`credentials.${name}`)) changed.push(`credentials.${name}`);
  }
  return changed;
}

/**
 * Lists the names of changed sections and entries, such as `deployments.submissions`, `anonymous`; never a
 * value.
 */
export function* changesBetween(before: Config, after: Config): Steps<string[]> {
  const changed: string[] = [];
  for (const section of new Set([...Object.keys(before), ...Object.keys(after)])) {
    const names = yield* namesOfChanges(entryOf(before, section), entryOf(after, section));
    if (BY_ENTRY.includes(section)) changed.push(...names.map((name) => `${section}.${name}`));
    else if (names.length > 0) changed.push(section);
  }
  return changed;
}

/** Yields the changed entries; for a value without entries, the empty name. */
function* namesOfChanges(before: unknown, after: unknown): Steps<string[]> {
  if (!isObject(before) || !isObject(after)) return before === after ? [] : [''];
  const changed: string[] = [];
  for (const name of new Set([...Object.keys(before), ...Object.keys(after)])) {
    if (!isDeepStrictEqual(entryOf(before, name), entryOf(after, name))) changed.push(name);
    yield;
  }
  return changed;
}

function isObject(value: unknown): value is object {
  return typeof value === 'object' && value !== null;
}

function entryOf(parent: unknown, key: string): unknown {
  return (parent as Record<string, unknown>)[key];
}
