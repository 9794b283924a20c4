import { FileWatch } from '../base/file-watch.ts';
import type { CredentialVersions } from './credentials.ts';
import {
  CredentialError,
  type CredentialSources,
  type Credentials,
  readCredentials,
  sourcesOf,
} from './reading.ts';
import type { SealedSection } from './sealed-file.ts';
import { filesOf, type ProcessContext, SourceReader } from './sources.ts';

interface WatchOptions {
  readonly credentials: Readonly<Record<string, CredentialSources>>;
  readonly sealed: SealedSection | undefined;
  readonly context: ProcessContext;
  readonly versions: CredentialVersions;
  /** The credentials that were read last. */
  readonly known: Credentials['byName'];
  /** Called when the content has changed; false: it is not in use, and is passed again until it is. */
  readonly onChange: (credentials: Credentials) => Promise<boolean>;
  /** Called once for each reason why credentials cannot be used; reading is retried until it succeeds. */
  readonly onError: (error: CredentialError) => void;
  /** Polling interval in milliseconds; one second by default. */
  readonly intervalMs?: number;
}

export interface CredentialWatch {
  /** Resolves when the credentials were compared with the known ones, and a change is in use or refused. */
  readonly firstRead: Promise<void>;
  /** Resolves when no read and no change is pending; no callback comes after the call. */
  close(): Promise<void>;
}

/** Reads the credentials again when one of their files has changed. */
export function watchCredentials(options: WatchOptions): CredentialWatch {
  const { credentials, sealed, context, versions, onChange, onError, intervalMs } = options;
  let known = versionsIn(options.known);
  let lastError = '';
  const watch = new FileWatch(
    watchedFiles(options),
    async () => {
      try {
        const reader = new SourceReader(context, sealed);
        const found = await readCredentials(credentials, reader, versions);
        lastError = '';
        const now = versionsIn(found.byName);
        if (watch.closed || now === known) return true;
        if (!(await onChange(found))) return false;
        known = now;
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
