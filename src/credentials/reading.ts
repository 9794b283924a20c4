import { FileWatch, stateOf } from '../base/file-watch.ts';
import { Secret } from '../base/secret.ts';
import { slices } from '../base/steps.ts';
import type { AlgorithmName } from '../digest/algorithms.ts';
import type { Credential as DigestCredential } from '../digest/authorization.ts';
import type { Credential, CredentialSet, CredentialVersions } from './credentials.ts';
import type { SealedSection } from './sealed-file.ts';
import {
  type CredentialIssue,
  type Found,
  filesOf,
  issueOf,
  type ProcessContext,
  type Source,
  SourceReader,
} from './sources.ts';

/** Attempts to read a set of files that change in the meantime. */
const TRIES = 10;

/** Credentials that cannot be used. The message contains every issue, one on each line. */
export class CredentialError extends Error {
  override readonly name = 'CredentialError';
  readonly issues: readonly CredentialIssue[];

  constructor(issues: readonly CredentialIssue[]) {
    super(linesOf(issues).join('\n'));
    this.issues = issues;
  }
}

/** Each issue once: one of the sealed file is met at each credential in it. */
function linesOf(issues: readonly CredentialIssue[]): string[] {
  return [...new Set(issues.map(({ path, message }) => `${path.join('.')}: ${message}`))];
}

/** By name. */
export type Credentials = ReadonlyMap<string, CredentialSet>;

/**
 * Reads every credential.
 * @throws CredentialError with every issue
 */
export async function readCredentials(
  sources: Readonly<Record<string, CredentialSources>>,
  reader: SourceReader,
  versions: CredentialVersions,
): Promise<Credentials> {
  const { byName, issues } = await readEach(sources, reader, versions);
  if (issues.length > 0) throw new CredentialError(issues);
  return byName;
}

interface EachRead {
  /** Without those that have an issue. */
  readonly byName: Credentials;
  readonly issues: readonly CredentialIssue[];
}

/** Reads every credential. */
async function readEach(
  sources: Readonly<Record<string, CredentialSources>>,
  reader: SourceReader,
  versions: CredentialVersions,
): Promise<EachRead> {
  const byName = new Map<string, CredentialSet>();
  const issues: CredentialIssue[] = [];
  await reader.sealed().catch((error: unknown) => issues.push(issueOf(['sealed'], error)));

  const pause = slices();
  for (const [name, given] of Object.entries(sources)) {
    await pause();
    const { current, following, issues: own } = await readTogether(name, given, reader);
    issues.push(...own);
    if (current === undefined || own.length > 0) continue;
    const versioned = (parts: Parts): Credential => withVersion(name, parts, versions);
    const set = { name, current: versioned(current), next: following && versioned(following) };
    byName.set(name, set.next?.version === set.current.version ? { ...set, next: undefined } : set);
  }
  return { byName, issues };
}

interface PartsRead {
  /** Undefined if there are issues. */
  readonly current: Parts | undefined;
  readonly following: Parts | undefined;
  readonly issues: CredentialIssue[];
}

/**
 * Reads a consistent snapshot of one credential. In a mounted secret several files are replaced together;
 * without the check, an old password could be combined with a new `next`, and the version between them
 * would be lost.
 */
async function readTogether(
  name: string,
  given: CredentialSources,
  reader: SourceReader,
): Promise<PartsRead> {
  const files = filesOf(sourcesOf(given));
  for (let tries = 1; ; tries += 1) {
    const before = files.length > 1 ? await stateOf(files) : '';
    const issues: CredentialIssue[] = [];
    const path = ['credentials', name];
    const current = await readParts(given, { reader, path, issues });
    const following = await nextParts(current, given.next, { reader, path: [...path, 'next'], issues });
    const isWhole = files.length <= 1 || (await stateOf(files)) === before;
    if (isWhole || tries === TRIES) return { current, following, issues };
  }
}

function withVersion(name: string, parts: Parts, versions: CredentialVersions): Credential {
  const found = allOf(parts);
  const sealed = found.flatMap(({ version }) => version ?? []);
  const times = found.flatMap(({ changedAt }) => changedAt?.getTime() ?? []);
  return {
    ...joinParts(parts),
    name,
    version: versions.versionOf(name, contentOf(parts), sealed.length > 0 ? Math.max(...sealed) : undefined),
    changedAt: times.length > 0 ? new Date(Math.max(...times)) : undefined,
  };
}

/** Names of algorithms in the configuration, and the length of their hashes in hex digits. */
const HASHES = {
  md5: { algorithm: 'MD5', digits: 32 },
  sha256: { algorithm: 'SHA-256', digits: 64 },
  'sha512-256': { algorithm: 'SHA-512-256', digits: 64 },
} as const satisfies Record<string, { algorithm: AlgorithmName; digits: number }>;

type HashSources = { readonly realm: string } & { readonly [name in keyof typeof HASHES]?: Source };

/** Sources of the parts of a credential; at most one of password and ha1. */
export interface PartSources {
  readonly username?: Source;
  readonly password?: Source;
  readonly ha1?: HashSources;
}

/** `next`: the parts that differ in the next version. */
export interface CredentialSources extends PartSources {
  readonly username: Source;
  readonly next?: PartSources;
}

/** The parts of a credential, as read from their sources. */
interface Parts {
  readonly username: Found;
  readonly proof: Proof;
}

type Proof =
  | { readonly password: Found }
  | { readonly realm: string; readonly hashes: readonly (readonly [AlgorithmName, Found])[] };

interface PartContext {
  readonly reader: SourceReader;
  /** Path in the configuration. */
  readonly path: readonly string[];
  readonly issues: CredentialIssue[];
}

/** Reads the parts; undefined if one cannot be read, which is then added to the issues. */
async function readParts(given: CredentialSources, context: PartContext): Promise<Parts | undefined> {
  const [username, proof] = await readGiven(given, context);
  return username && proof && { username, proof };
}

/**
 * Reads the parts of the next version: from `next`, else from the next value in the sealed file, else the
 * current part. Undefined if there is no next version.
 */
async function nextParts(
  current: Parts | undefined,
  given: PartSources | undefined,
  context: PartContext,
): Promise<Parts | undefined> {
  const [username, proof] = given === undefined ? [] : await readGiven(given, context);
  if (current === undefined || (given === undefined && !allOf(current).some(({ next }) => next)))
    return undefined;
  return { username: username ?? following(current.username), proof: proof ?? followingProof(current.proof) };
}

/** Converts the parts to the credential of digest/. */
function joinParts({ username, proof }: Parts): DigestCredential {
  const name = username.secret.reveal();
  if ('password' in proof) return { username: name, password: proof.password.secret };
  const hashes = proof.hashes.map(([algorithm, { secret }]) => [algorithm, secret] as const);
  return { username: name, ha1: { realm: proof.realm, hashes: Object.fromEntries(hashes) } };
}

/** Returns every text whose change makes a new version of the credential. */
function contentOf({ username, proof }: Parts): string[] {
  const name = username.secret.reveal();
  if ('password' in proof) return [name, 'password', proof.password.secret.reveal()];
  const hashes = proof.hashes.flatMap(([algorithm, { secret }]) => [algorithm, secret.reveal()]);
  return [name, 'ha1', proof.realm, ...hashes];
}

/** Returns the user name and every password or hash. */
function allOf({ username, proof }: Parts): Found[] {
  const secrets = 'password' in proof ? [proof.password] : proof.hashes.map(([, found]) => found);
  return [username, ...secrets];
}

/** Returns every source of a credential, including `next`. */
function sourcesOf({ next = {}, ...current }: CredentialSources): Source[] {
  return [current, next].flatMap((given: PartSources) => [given.username ?? [], proofSources(given)].flat());
}

/** Returns the entries of the sealed file from which the current version of a credential comes. */
export function sealedEntriesOf({ next: _, ...current }: CredentialSources): string[] {
  return sourcesOf(current).flatMap((source) => ('sealed' in source ? source.sealed : []));
}

/** Returns the sources of the password or of its hashes. */
export function proofSources({ password, ha1 }: PartSources): Source[] {
  return [password, ha1?.md5, ha1?.sha256, ha1?.['sha512-256']].filter((source) => source !== undefined);
}

async function readGiven(
  { username, password, ha1 }: PartSources,
  context: PartContext,
): Promise<[username: Found | undefined, proof: Proof | undefined]> {
  const name = username && (await readPart(['username'], username, context, usernameIssue));
  if (password === undefined) return [name, ha1 && (await readHashes(ha1, context))];
  const found = await readPart(['password'], password, context);
  return [name, found && { password: found }];
}

async function readHashes({ realm, ...sources }: HashSources, context: PartContext): Promise<Proof> {
  const hashes: [AlgorithmName, Found][] = [];
  for (const [name, { algorithm, digits }] of Object.entries(HASHES)) {
    const source = sources[name as keyof typeof HASHES];
    if (source === undefined) continue;
    const found = await readPart(['ha1', name], source, context, (text) => hashIssue(text, digits));
    if (found !== undefined) hashes.push([algorithm, inLowerCase(found)]);
  }
  return { realm, hashes };
}

async function readPart(
  part: readonly string[],
  source: Source,
  { reader, path, issues }: PartContext,
  issueWith: (text: string) => string | undefined = () => undefined,
): Promise<Found | undefined> {
  try {
    const found = await reader.read(source);
    const issue = [found, found.next].map((one) => one && issueWith(one.secret.reveal())).find(Boolean);
    if (issue === undefined) return found;
    issues.push({ path: [...path, ...part], message: issue });
  } catch (error) {
    issues.push(issueOf([...path, ...part], error));
  }
  return undefined;
}

/** RFC 7616 §3.4: the user name goes into a quoted string of a header, which cannot contain controls. */
function usernameIssue(name: string): string | undefined {
  return /\p{Cc}/u.test(name) ? 'holds a control character, such as a line break: remove it' : undefined;
}

function hashIssue(text: string, digits: number): string | undefined {
  const right = text.length === digits && /^[0-9a-f]+$/i.test(text);
  return right ? undefined : `is not a hash: give H(username:realm:password) in ${digits} hex digits`;
}

function inLowerCase({ secret, next, ...rest }: Found): Found {
  return { ...rest, secret: new Secret(secret.reveal().toLowerCase()), next: next && inLowerCase(next) };
}

function following(found: Found): Found {
  return found.next ?? found;
}

function followingProof(proof: Proof): Proof {
  if ('password' in proof) return { password: following(proof.password) };
  return { ...proof, hashes: proof.hashes.map(([algorithm, found]) => [algorithm, following(found)]) };
}

/**
 * Returns what was read, and those in use in the place of what could not be. The latter may have changed since: a kept
 * credential must not go back to the version before.
 */
export function withKept(
  sources: Readonly<Record<string, CredentialSources>>,
  read: Credentials,
  inUse: Credentials,
): Credentials {
  const byName = new Map<string, CredentialSet>();
  for (const name of Object.keys(sources)) {
    const set = read.get(name) ?? inUse.get(name);
    if (set !== undefined) byName.set(name, set);
  }
  return byName;
}

interface WatchOptions {
  readonly credentials: Readonly<Record<string, CredentialSources>>;
  readonly sealed: SealedSection | undefined;
  readonly context: ProcessContext;
  readonly versions: CredentialVersions;
  readonly inUse: () => Credentials;
  /**
   * Called when the content has changed, with what could be read: `withKept` adds the others. False: it is not in use, and
   * what is there is passed again until it is.
   */
  readonly onChange: (read: Credentials) => Promise<boolean>;
  /** Called after each reading with what cannot be read, which is retried. */
  readonly onRead: (issues: readonly string[]) => void;
  /** Polling interval in milliseconds; one second by default. */
  readonly intervalMs?: number;
}

/**
 * Reads the credentials again when one of their files has changed. No callback comes after `close` of the watch was called;
 * its first read includes that a change is in use or refused.
 */
export function watchCredentials(options: WatchOptions): FileWatch {
  const { credentials, sealed, context, versions, inUse, onChange, onRead, intervalMs } = options;
  let known: string | undefined = versionsIn(inUse());
  const watch = new FileWatch(
    watchedFiles(options),
    async () => {
      const reader = new SourceReader(context, sealed);
      const { byName, issues } = await readEach(credentials, reader, versions);
      if (watch.closed) return true;
      onRead(linesOf(issues));
      const now = (): string => versionsIn(withKept(credentials, byName, inUse()));
      if (now() !== known) {
        // After a failure, content that is put back is passed as well: that ends the failure.
        known = undefined;
        if (!(await onChange(byName))) return false;
        known = now();
      }
      return issues.length === 0;
    },
    intervalMs,
  );
  return watch;
}

function watchedFiles({ credentials, sealed }: WatchOptions): string[] {
  const files = filesOf(Object.values(credentials).flatMap(sourcesOf));
  if (sealed !== undefined)
    files.push(sealed.file, ...('file' in sealed.identity ? [sealed.identity.file] : []));
  return [...new Set(files)];
}

function versionsIn(credentials: Credentials): string {
  return JSON.stringify(
    [...credentials].map(([name, { current, next }]) => [name, current.version, next?.version]),
  );
}
