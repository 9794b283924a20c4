import { reportError } from '../base/report-error.ts';
import { CredentialError, type Credentials, readCredentials } from './credentials.ts';
import { filesOf, stateOf } from './file-state.ts';
import { type CredentialSources, sourcesOf } from './parts.ts';
import type { SealedSection } from './sealed-file.ts';
import { SourceReader, type Surroundings } from './sources.ts';
import type { CredentialVersions } from './versions.ts';

/** Between two looks at the files, in milliseconds. */
const INTERVAL_MS = 1000;

/** How long a changed file has to stay as it is before it is read, in milliseconds: it may be half-written. */
const SETTLED_MS = 100;

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

/**
 * Notices when a file that holds credentials changes. It asks for the state of each file, since events miss
 * what matters: links that are exchanged on the way to a file, and what others write to a network mount.
 */
export function watchCredentials(options: WatchOptions): CredentialWatch {
  const watch = new Watch(options);
  watch.plan(0);
  return watch;
}

class Watch implements CredentialWatch {
  readonly #options: WatchOptions;
  readonly #files: readonly string[];
  /** The state of the files when they were last looked at, and when they were last read. */
  #seen: string | undefined;
  #read: string | undefined;
  #known: string;
  #complaint = '';
  #timer: NodeJS.Timeout | undefined;
  #looking: Promise<void> = Promise.resolve();
  #closed = false;

  constructor(options: WatchOptions) {
    this.#options = options;
    this.#files = watchedFiles(options);
    this.#known = versionsIn(options.known);
  }

  plan(ms: number): void {
    if (this.#closed || this.#files.length === 0) return;
    this.#timer = setTimeout(() => {
      this.#looking = this.#look()
        .catch((error) => {
          reportError(error);
          return this.#options.intervalMs ?? INTERVAL_MS;
        })
        .then((next) => this.plan(next));
    }, ms);
  }

  close(): Promise<void> {
    this.#closed = true;
    clearTimeout(this.#timer);
    return this.#looking;
  }

  /** Resolves to the milliseconds until the next look. */
  async #look(): Promise<number> {
    const { intervalMs = INTERVAL_MS } = this.#options;
    const state = await stateOf(this.#files);
    const settled = state === this.#seen;
    this.#seen = state;
    if (state === this.#read) return intervalMs;
    if (!settled) return Math.min(SETTLED_MS, intervalMs);
    // What changes while it is read has another state at the next look.
    if (await this.#reread()) this.#read = state;
    return intervalMs;
  }

  /** Whether everything could be read. */
  async #reread(): Promise<boolean> {
    const { credentials, sealed, surroundings, versions, onChange, onError } = this.#options;
    try {
      const reader = new SourceReader(surroundings, sealed);
      const found = await readCredentials(credentials, reader, versions);
      this.#complaint = '';
      const now = versionsIn(found.byName);
      if (this.#closed || now === this.#known) return true;
      this.#known = now;
      onChange(found);
      return true;
    } catch (error) {
      if (!(error instanceof CredentialError)) throw error;
      if (!this.#closed && error.message !== this.#complaint) onError(error);
      this.#complaint = error.message;
      return false;
    }
  }
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
