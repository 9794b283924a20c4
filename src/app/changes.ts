import { isDeepStrictEqual } from 'node:util';
import type { Steps } from '../base/steps.ts';
import { ConfigError, formatPath, type LocatedIssue, type Path } from '../config/issues.ts';
import type { Config } from '../config/schema.ts';
import { sectionIssues } from '../config/section-issues.ts';
import { withSections } from '../config/transfer.ts';
import type { CredentialSet } from '../credentials/credentials.ts';
import type { AppSetup } from '../setup/setup.ts';

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

/** Sections that only a restart changes, each with the keys in it that a reload changes. */
const RESTART_ONLY = {
  listen: ['hosts', 'trustedProxies', 'forwardedHeader'],
  workers: [],
  control: [],
  redis: [],
  audit: ['parameters', 'pseudonymise'],
} as const satisfies { [Section in keyof Config]?: readonly string[] };

type Sections = Readonly<Record<string, unknown>>;

export interface Pinned {
  /** The setup to use: what only a restart changes is as it was. */
  readonly setup: AppSetup;
  /** The keys that differ in `next`, such as `listen.port`; never a value. */
  readonly needsRestart: readonly string[];
}

/**
 * Returns `next` with the running values of all keys that only a restart changes, and of what was read for them.
 * @throws ConfigError if `next` does not fit these values
 */
export function pin(running: AppSetup, next: AppSetup): Pinned {
  const kept: Sections = running.config;
  const config = pinConfig(running.config, next.config);
  const needsRestart = keysThatNeedRestart(running.config, next.config);
  if (needsRestart.length > 0) checkFit(config, needsRestart, next.source.file);
  const { parameters, pseudonymise } = config.audit ?? running.audit ?? {};
  const setup = {
    ...next,
    config,
    redis: running.redis,
    // Of another section, the content is that of other files.
    listenTls: isDeepStrictEqual(next.config.listen.tls, config.listen.tls)
      ? next.listenTls
      : running.listenTls,
    audit: running.audit && {
      ...running.audit,
      ...(parameters && { parameters }),
      ...(pseudonymise && { pseudonymise }),
    },
    auditSinks: running.auditSinks,
    source: {
      file: next.source.file,
      config: withSections(running.source.config, next.source.config, (before, after) =>
        pinned(before, after, kept),
      ),
    },
  };
  return { setup, needsRestart };
}

/** Lists the keys that differ and cannot change while the gateway runs, such as `listen.port`; never a value. */
export function keysThatNeedRestart(running: Config, next: Config): string[] {
  const config = pinConfig(running, next);
  return Object.keys(RESTART_ONLY).flatMap((section) =>
    [...differences(entryOf(config, section), entryOf(next, section), [section])].map(formatPath),
  );
}

function pinConfig(running: Config, next: Config): Config {
  return pinned(running, next, running) as Config;
}

/** `kept`: the checked configuration that runs; a section that it does not have stays away. */
function pinned(running: Sections, next: Sections, kept: Sections): Sections {
  const result: Record<string, unknown> = { ...next };
  for (const [section, changeable] of Object.entries(RESTART_ONLY)) {
    delete result[section];
    if (kept[section] === undefined) continue;
    const [before, after] = [running[section], next[section]];
    const value = changeable.length === 0 ? before : withKeys(before, after, changeable);
    if (value !== undefined) result[section] = value;
  }
  return result;
}

/** Returns `before` with these keys of `after`; without `after`, nothing says that they are to change. */
function withKeys(before: unknown, after: unknown, keys: readonly string[]): unknown {
  if (!isSection(after)) return before;
  const isKept = ([key]: readonly [string, unknown]): boolean => !keys.includes(key);
  const others = Object.entries(isSection(before) ? before : {}).filter(isKept);
  return Object.fromEntries([...others, ...Object.entries(after).filter((entry) => !isKept(entry))]);
}

/** Running values can make unsafe what the file allows with others, such as `anonymous` on an address for all. */
function checkFit(config: Config, needsRestart: readonly string[], file: string): void {
  const issues: LocatedIssue[] = Array.from(sectionIssues(config), ({ path, message }) => ({
    file,
    line: 1,
    column: 1,
    path: formatPath(path),
    message: `does not fit the running values of ${needsRestart.join(', ')}, which need a restart: ${message}`,
  }));
  if (issues.length > 0) throw new ConfigError(issues);
}

/** Yields the paths at which two values differ; a list is one value. */
function* differences(a: unknown, b: unknown, path: Path): Generator<Path> {
  if (!isSection(a) || !isSection(b)) {
    if (!isDeepStrictEqual(a, b)) yield path;
    return;
  }
  for (const key of new Set([...Object.keys(a), ...Object.keys(b)])) {
    yield* differences(entryOf(a, key), entryOf(b, key), [...path, key]);
  }
}

function isSection(value: unknown): value is object {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function entryOf(parent: unknown, key: string): unknown {
  return (parent as Sections)[key];
}
