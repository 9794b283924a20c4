import { FileWatch } from '../base/file-watch.ts';
import { CredentialError, type Credentials, readCredentials } from './credentials.ts';
import { type CredentialSources, sourcesOf } from './parts.ts';
import type { SealedSection } from './sealed-file.ts';
import { filesOf, SourceReader, type Surroundings } from './sources.ts';
import type { CredentialVersions } from './versions.ts';

export interface WatchOptions {
  readonly credentials: Readonly<Record<string, CredentialSources>>;
  readonly sealed: SealedSection | undefined;
  readonly surroundings: Surroundings;
  readonly versions: CredentialVersions;
  /** What was read last. */
  readonly known: Credentials['byName'];
  /** Another content was read. */
  readonly onChange: (credentials: Credentials) => void;
  /** What is there now cannot be used; told once for each reason, and tried again until it can. */
  readonly onError: (error: CredentialError) => void;
  /** In milliseconds; by default a second. */
  readonly intervalMs?: number;
}

export interface CredentialWatch {
  /** Resolves when nothing is read any more; no callback comes after the call. */
  close(): Promise<void>;
}

/** Reads credentials again when one of their files changed. */
export function watchCredentials(options: WatchOptions): CredentialWatch {
  const { credentials, sealed, surroundings, versions, onChange, onError, intervalMs } = options;
  let known = versionsIn(options.known);
  let lastError = '';
  const watch = new FileWatch(
    watchedFiles(options),
    async () => {
      try {
        const reader = new SourceReader(surroundings, sealed);
        const found = await readCredentials(credentials, reader, versions);
        lastError = '';
        const now = versionsIn(found.byName);
        if (watch.closed || now === known) return true;
        known = now;
        onChange(found);
        return true;
      } catch (error) {
        if (!(error instanceof CredentialError)) throw error;
        if (!watch.closed && error.message !== lastError) onError(error);
        lastError = error.message;
        return false;
      }
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

function versionsIn(byName: Credentials['byName']): string {
  return JSON.stringify(
    [...byName].map(([name, { current, next }]) => [name, current.version, next?.version]),
  );
}
