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
import { type CredentialFinding, filesOf, findingOf, type SourceReader } from './sources.ts';
import type { CredentialVersions } from './versions.ts';

/** How often files are read that change meanwhile. */
const TRIES = 10;

/** What answers an upstream's challenges. */
export type Credential = DigestCredential & {
  readonly name: string;
  /** An ordinal number; another one whenever the content is another, and says nothing about it. */
  readonly version: string;
  /** When the youngest part of it was put where it is; undefined where nobody knows. */
  readonly changedAt: Date | undefined;
};

export interface CredentialSet {
  readonly name: string;
  readonly current: Credential;
  /** To be tried before it takes the place of `current`. */
  readonly next: Credential | undefined;
}

/** Credentials that cannot be used. The message holds every finding, one a line. */
export class CredentialError extends Error {
  override readonly name = 'CredentialError';
  readonly findings: readonly CredentialFinding[];

  constructor(findings: readonly CredentialFinding[]) {
    super([...new Set(findings.map(({ path, message }) => `${path.join('.')}: ${message}`))].join('\n'));
    this.findings = findings;
  }
}

export interface Credentials {
  readonly byName: ReadonlyMap<string, CredentialSet>;
  /** What works, and should not stay as it is. */
  readonly warnings: readonly CredentialFinding[];
}

/** Reads every credential. Throws a CredentialError with all that is wrong. */
export async function readCredentials(
  sources: Readonly<Record<string, CredentialSources>>,
  reader: SourceReader,
  versions: CredentialVersions,
): Promise<Credentials> {
  const byName = new Map<string, CredentialSet>();
  const warnings: CredentialFinding[] = [];
  const faults: CredentialFinding[] = [];
  await reader.sealed().catch((error: unknown) => faults.push(findingOf(['sealed'], error)));

  const pause = slices();
  for (const [name, given] of Object.entries(sources)) {
    await pause();
    const { current, following, ...report } = await readTogether(name, given, reader);
    faults.push(...report.faults);
    warnings.push(...report.warnings);
    if (current === undefined) continue;
    const versioned = (parts: Parts): Credential => withVersion(name, parts, versions);
    const set = { name, current: versioned(current), next: following && versioned(following) };
    byName.set(name, set.next?.version === set.current.version ? { ...set, next: undefined } : set);
  }

  if (faults.length > 0) {
    throw new CredentialError(faults);
  }
  return { byName, warnings };
}

interface PartsRead {
  /** Undefined: there are faults. */
  readonly current: Parts | undefined;
  readonly following: Parts | undefined;
  readonly faults: CredentialFinding[];
  readonly warnings: CredentialFinding[];
}

/**
 * Reads all that is said of one credential as it was at one moment: files that are exchanged together, as in a mounted
 * secret, would else give an old password with a new `next`, and the one in between would be lost.
 */
async function readTogether(
  name: string,
  given: CredentialSources,
  reader: SourceReader,
): Promise<PartsRead> {
  const files = filesOf(sourcesOf(given));
  for (let tries = 1; ; tries += 1) {
    const before = files.length > 1 ? await stateOf(files) : '';
    const report = { faults: [], warnings: [] };
    const path = ['credentials', name];
    const current = await readParts(given, { reader, path, ...report });
    const following = await nextParts(current, given.next, { reader, path: [...path, 'next'], ...report });
    const isWhole = files.length <= 1 || (await stateOf(files)) === before;
    if (isWhole || tries === TRIES) return { current, following, ...report };
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
