import { isDeepStrictEqual } from 'node:util';
import type { SinkOptions } from '../audit/shipping/sink-set.ts';
import { isMapping } from '../base/json.ts';
import { toPlain } from '../base/plain-form.ts';
import { Secret } from '../base/secret.ts';
import type { Steps } from '../base/steps.ts';
import { ConfigError, formatPath, type LocatedIssue, type Path } from '../config/issues.ts';
import { type Listen, listenerPath, withSharedKeys, writtenPath } from '../config/listen.ts';
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
    if (!isSame(entryOf(before, name), entryOf(after, name))) changed.push(name);
    yield;
  }
  return changed;
}

function isObject(value: unknown): value is object {
  return typeof value === 'object' && value !== null;
}

/** Keys of a listener that a reload changes; only a restart changes the others, and how many listeners there are. */
const LISTENER_KEYS = ['hosts', 'trustedProxies', 'forwardedHeader'];
/** Those of them that hold for the whole gateway. */
const SHARED_LISTENER_KEYS = ['trustedProxies', 'forwardedHeader'];

/** Further sections that only a restart changes, each with the keys in it that a reload changes, `section.key` among them. */
const RESTART_ONLY = {
  workers: [],
  control: [],
  redis: [],
  audit: ['parameters', 'pseudonyms.fields'],
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
  const partners = partnersOf(running.config.listen, next.config.listen);
  const config = pinConfig(running.config, next.config);
  const keys = keysThatNeedRestart(running.config, next.config);
  const needsRestart = [...keys, ...contentsThatNeedRestart(running, next, keys)];
  if (keys.length > 0) checkFit(config, keys, next.source.file);
  const recorded = config.audit ?? running.audit;
  const setup = {
    ...next,
    config,
    redis: running.redis,
    listenTls: running.listenTls.map((tls, index) => {
      const partner = partners[index] ?? Number.NaN;
      // Of another section, the content is that of other files.
      const isSame = isDeepStrictEqual(next.config.listen[partner]?.tls, config.listen[index]?.tls);
      return isSame ? next.listenTls[partner] : tls;
    }),
    audit: running.audit &&
      recorded && { ...running.audit, parameters: recorded.parameters, pseudonyms: recorded.pseudonyms },
    auditSinks: running.auditSinks,
    oidc: running.oidc,
    source: {
      file: next.source.file,
      config: withSections(running.source.config, next.source.config, (before, after) =>
        pinned(before, after, kept, partners),
      ),
    },
  };
  return { setup, needsRestart };
}

/** Lists the keys that differ and cannot change while the gateway runs, such as `listen.port`; never a value. */
export function keysThatNeedRestart(running: Config, next: Config): string[] {
  const config = pinConfig(running, next);
  const others = Object.keys(RESTART_ONLY).flatMap((section) => [
    ...differences(entryOf(config, section), entryOf(next, section), [section]),
  ]);
  const paths = [...listenerDifferences(config.listen, next.listen), ...others.flatMap(asWritten)];
  return [...new Set(paths.map(formatPath))];
}

/** Lists the keys that name the same files as before, whose content differs; `named`: keys that are listed already. */
function contentsThatNeedRestart(running: AppSetup, next: AppSetup, named: readonly string[]): string[] {
  const [before, after] = [contentsOf(running), contentsOf(next)];
  return Object.keys(before).filter((key) => {
    const isNamed = named.some((name) => name.startsWith(key) || key.startsWith(name));
    return !isNamed && !isDeepStrictEqual(toPlain(entryOf(before, key)), toPlain(entryOf(after, key)));
  });
}

/** Content of files and secrets that is read at a start only, by the configuration key that names the source. */
function contentsOf({ redis, oidc, audit, auditSinks }: AppSetup): Sections {
  const sinksOf = (...kinds: readonly SinkOptions['kind'][]): readonly SinkOptions[] =>
    auditSinks.filter(({ kind }) => kinds.includes(kind));
  return {
    'control.oidc.clientSecret': oidc?.clientSecret,
    'control.oidc.caFile': oidc?.ca,
    'redis.password': redis?.password,
    'redis.sentinelPassword': redis?.sentinelPassword,
    'redis.keyFile': redis?.keys,
    'redis.tls.caFile': redis?.tls?.ca,
    'audit.keyFile': audit?.key,
    'audit.signingKeyFile': audit?.signingKey,
    'audit.witness': sinksOf('witness'),
    'audit.timestamps': sinksOf('timestamps'),
    // The one to Redis has nothing of its own.
    'audit.sinks': sinksOf('syslog', 's3', 'otlp'),
  };
}

function pinConfig(running: Config, next: Config): Config {
  return pinned(running, next, running, partnersOf(running.listen, next.listen)) as Config;
}

/**
 * Returns for each running listener the number of the next one that is the same: at its address and port; of those left
 * over, at its number, if there are as many as before. undefined: there is none.
 */
function partnersOf(running: readonly Listen[], next: readonly Listen[]): readonly (number | undefined)[] {
  const partners = new Map<number, number>();
  const pair = (isSame: (one: Listen, at: number, other: Listen, index: number) => boolean): void => {
    for (const [at, one] of running.entries()) {
      const taken = new Set(partners.values());
      const found = next.findIndex((other, index) => !taken.has(index) && isSame(one, at, other, index));
      if (!partners.has(at) && found >= 0) partners.set(at, found);
    }
  };
  const isSamePlace = (one: Listen, other: Listen): boolean =>
    one.address === other.address && one.port === other.port;
  pair((one, at, other, index) => at === index && isSamePlace(one, other));
  pair((one, _at, other) => isSamePlace(one, other));
  if (running.length === next.length) pair((_one, at, _other, index) => at === index);
  return running.map((_, at) => partners.get(at));
}

/** Yields the paths at which pinned listeners differ from the next ones, and those that were added or removed. */
function* listenerDifferences(pinned: readonly Listen[], next: readonly Listen[]): Generator<Path> {
  const partners = partnersOf(pinned, next);
  const longer = pinned.length > next.length ? pinned : next;
  for (const [at, partner] of partners.entries()) {
    if (partner === undefined) yield listenerPath(longer, at);
    else yield* differences(pinned[at], next[partner], listenerPath(longer, at));
  }
  for (const index of next.keys()) if (!partners.includes(index)) yield listenerPath(longer, index);
}

/**
 * `kept`: the checked configuration that runs; a section that it does not have stays away. `partners`: those of its
 * listeners.
 */
function pinned(
  running: Sections,
  next: Sections,
  kept: Sections,
  partners: readonly (number | undefined)[],
): Sections {
  const result: Record<string, unknown> = { ...next };
  const listen = pinnedListeners(running['listen'], next['listen'], partners);
  delete result['listen'];
  if (listen !== undefined) result['listen'] = listen;
  for (const [section, changeable] of Object.entries(RESTART_ONLY)) {
    delete result[section];
    if (kept[section] === undefined) continue;
    const [before, after] = [running[section], next[section]];
    const value = changeable.length === 0 ? before : withKeys(before, after, changeable);
    if (value !== undefined) result[section] = value;
  }
  return result;
}

/** Returns running listeners, checked or as they are written, with what a reload changes of their partners. */
function pinnedListeners(
  running: unknown,
  next: unknown,
  partners: readonly (number | undefined)[],
): unknown {
  const [before, after] = [running, next].map((written) => {
    const shared = withSharedKeys(written);
    return Array.isArray(shared) ? shared : [shared];
  });
  const pinned = partners.map((partner, at) =>
    partner === undefined
      ? withKeys(before?.[at], after?.[0], SHARED_LISTENER_KEYS)
      : withKeys(before?.[at], after?.[partner], LISTENER_KEYS),
  );
  return Array.isArray(running) ? pinned : pinned[0];
}

/**
 * Returns `before` with these keys of `after`; without `after`, nothing says that they are to change. A section that
 * `before` does not have stays away.
 */
function withKeys(before: unknown, after: unknown, keys: readonly string[]): unknown {
  if (!isMapping(after)) return before;
  const result: Record<string, unknown> = isMapping(before) ? { ...before } : {};
  for (const key of keys) {
    const [name = '', inner] = key.split('.');
    const next = entryOf(after, name);
    const value = inner === undefined ? next : result[name] && withKeys(result[name], next, [inner]);
    delete result[name];
    if (value !== undefined) result[name] = value;
  }
  return result;
}

/** Running values can make unsafe what the file allows with others, such as `anonymous` on an address for all. */
function checkFit(config: Config, needsRestart: readonly string[], file: string): void {
  const issues: LocatedIssue[] = Array.from(sectionIssues(config), ({ path, message }) => ({
    file,
    line: 1,
    column: 1,
    path: formatPath(writtenPath(path, config.listen.length > 1)),
    message: `does not fit the running values of ${needsRestart.join(', ')}, which need a restart: ${message}`,
  }));
  if (issues.length > 0) throw new ConfigError(issues);
}

/** The keys that the schema makes `redis.servers` of; its `kind` differs only with another one of these. */
const REDIS_SERVERS: Readonly<Record<string, string>> = {
  address: 'url',
  database: 'url',
  sentinels: 'sentinels',
  name: 'name',
  nodes: 'cluster',
};

/** Returns the path that a user writes for a path in the checked configuration. */
function asWritten(path: Path): Path[] {
  const [section, key, inner] = path;
  if (section !== 'redis' || key !== 'servers' || inner === undefined) return [path];
  const written = REDIS_SERVERS[inner];
  return written === undefined ? [] : [[section, written]];
}

/** Yields the paths at which two values differ; a list is one value. */
function* differences(a: unknown, b: unknown, path: Path): Generator<Path> {
  if (!isMapping(a) || !isMapping(b) || a instanceof Secret) {
    if (!isSame(a, b)) yield path;
    return;
  }
  for (const key of new Set([...Object.keys(a), ...Object.keys(b)])) {
    yield* differences(entryOf(a, key), entryOf(b, key), [...path, key]);
  }
}

function isSame(a: unknown, b: unknown): boolean {
  return isDeepStrictEqual(a, b) && haveSameSecrets(a, b);
}

/** Compares what `isDeepStrictEqual` does not see in two values that are the same to it. */
function haveSameSecrets(a: unknown, b: unknown): boolean {
  if (a instanceof Secret && b instanceof Secret) return a.reveal() === b.reveal();
  if (!isObject(a) || !isObject(b)) return true;
  return Object.keys(a).every((key) => haveSameSecrets(entryOf(a, key), entryOf(b, key)));
}

function entryOf(parent: unknown, key: string): unknown {
  return (parent as Sections)[key];
}
