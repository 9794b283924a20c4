import { stateOf } from '../base/file-watch.ts';
import { slices } from '../base/steps.ts';
import type { Credential as DigestCredential } from '../digest/authorization.ts';
import {
  allOf,
  type CredentialSources,
  contentOf,
  joinParts,
  nextParts,
  type Parts,
  readParts,
  sourcesOf,
} from './parts.ts';
import { type CredentialIssue, filesOf, issueOf, type SourceReader } from './sources.ts';
import type { CredentialVersions } from './versions.ts';

/** Attempts to read a set of files that change in the meantime. */
const TRIES = 10;

/** A credential for Digest authentication. */
export type Credential = DigestCredential & {
  readonly name: string;
  /** An ordinal number; changes whenever the content changes, and reveals nothing about it. */
  readonly version: string;
  /** Time of the latest change of its parts; undefined if unknown. */
  readonly changedAt: Date | undefined;
};

export interface CredentialSet {
  readonly name: string;
  readonly current: Credential;
  /** The next version, which is tested before it replaces `current`. */
  readonly next: Credential | undefined;
  /** Versions in use that the sources do not hold any more. */
  readonly former?: readonly Credential[];
}

/** Credentials that cannot be used. The message contains every issue, one on each line. */
export class CredentialError extends Error {
  override readonly name = 'CredentialError';
  readonly issues: readonly CredentialIssue[];

  constructor(issues: readonly CredentialIssue[]) {
    super([...new Set(issues.map(({ path, message }) => `${path.join('.')}: ${message}`))].join('\n'));
    this.issues = issues;
  }
}

export interface Credentials {
  readonly byName: ReadonlyMap<string, CredentialSet>;
}

/**
 * Reads every credential.
 * @throws CredentialError with every issue
 */
export async function readCredentials(
  sources: Readonly<Record<string, CredentialSources>>,
  reader: SourceReader,
  versions: CredentialVersions,
): Promise<Credentials> {
  const byName = new Map<string, CredentialSet>();
  const issues: CredentialIssue[] = [];
  await reader.sealed().catch((error: unknown) => issues.push(issueOf(['sealed'], error)));

  const pause = slices();
  for (const [name, given] of Object.entries(sources)) {
    await pause();
    const { current, following, issues: own } = await readTogether(name, given, reader);
    issues.push(...own);
    if (current === undefined) continue;
    const versioned = (parts: Parts): Credential => withVersion(name, parts, versions);
    const set = { name, current: versioned(current), next: following && versioned(following) };
    byName.set(name, set.next?.version === set.current.version ? { ...set, next: undefined } : set);
  }

  if (issues.length > 0) {
    throw new CredentialError(issues);
  }
  return { byName };
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
