import { isDeepStrictEqual } from 'node:util';
import type { Steps } from '../base/steps.ts';
import { formatPath, type Path } from '../config/issues.ts';
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
 * Lists the keys that differ and cannot change while the gateway runs, such as `listen.port`; never a value.
 */
export function keysThatNeedRestart(running: Config, next: Config): string[] {
  return [...differences(fixedPartOf(running), fixedPartOf(next), [])].map(formatPath);
}

function fixedPartOf({ listen, control, metrics, redis, audit, workers }: Config) {
  const { address, port, tls, limits } = listen;
  // A reload changes which fields are recorded, but not the log's files and key.
  const files = audit && { ...audit, parameters: undefined, pseudonymise: undefined };
  return { workers, listen: { address, port, tls, limits }, control, metrics, redis, audit: files };
}

/** Yields the paths at which two values differ; a list is one value. */
function* differences(a: unknown, b: unknown, path: Path): Generator<Path> {
  if (!isSection(a) || !isSection(b)) {
    if (!isDeepStrictEqual(a, b)) yield path;
    return;
  }
  const [left, right] = [new Map(Object.entries(a)), new Map(Object.entries(b))];
  for (const key of new Set([...left.keys(), ...right.keys()])) {
    yield* differences(left.get(key), right.get(key), [...path, key]);
  }
}

function isSection(value: unknown): value is object {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
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
