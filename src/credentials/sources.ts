import { messageOf } from '../base/error-code.ts';
import { decodeUtf8, readGuardedFile } from '../base/guarded-file.ts';
import { Secret } from '../base/secret.ts';
import {
  type FileSource,
  type IdentitySource,
  readSealed,
  type SealedEntries,
  SealedError,
  type SealedSection,
} from './sealed-file.ts';

/** The largest secret in a file, or on stdin. */
export const MAX_SECRET_BYTES = 64 * 1024;

/**
 * Source of a secret: an environment variable, a file, an entry of the sealed file, or the configuration.
 */
export type Source = IdentitySource | { readonly sealed: string } | { readonly value: Secret };

/** The process environment that sources read from. */
export interface ProcessContext {
  readonly environment: Readonly<Record<string, string | undefined>>;
  /** The user of this process; undefined: owners of files are not checked. */
  readonly uid?: number;
}

export interface Found {
  readonly secret: Secret;
  /** Version of an entry of the sealed file. */
  readonly version?: number;
  /** Time of the last change; undefined if unknown. */
  readonly changedAt?: Date | undefined;
  /** The next version in the sealed file. */
  readonly next?: Found | undefined;
}

/** An issue with a part of the configuration; its message never contains a secret. */
export interface CredentialIssue {
  readonly path: readonly (string | number)[];
  readonly message: string;
}

/** Reads secrets. The sealed file is opened once, so that all its entries are from one moment. */
export class SourceReader {
  readonly #context: ProcessContext;
  readonly #section: SealedSection | undefined;
  #entries: Promise<SealedEntries> | undefined;

  constructor(context: ProcessContext, sealed: SealedSection | undefined) {
    this.#context = context;
    this.#section = sealed;
  }

  /**
   * Reads a secret.
   * @throws Error whose message names the source and never contains the secret
   */
  async read(source: Source): Promise<Found> {
    if ('value' in source) return { secret: filled(source.value.reveal(), 'the value') };
    if ('file' in source) return readFileSource(source, this.#context.uid);
    if ('sealed' in source) return this.#readEntry(source.sealed);
    return { secret: readVariable(source.env, this.#context) };
  }

  /**
   * Reads the entries of the sealed file; none if it is not configured.
   * @throws SealedError
   */
  sealed(): Promise<SealedEntries> {
    if (this.#section === undefined) return Promise.resolve(new Map());
    this.#entries ??= readSealed(this.#section, (identity) => this.read(identity));
    return this.#entries;
  }

  async #readEntry(name: string): Promise<Found> {
    if (this.#section === undefined) {
      throw new Error(
        'names an entry of the sealed file, but no sealed file is configured: give file and identity under sealed',
      );
    }
    const entry = (await this.sealed()).get(name);
    if (entry === undefined) {
      throw new Error(`${this.#section.file} has no entry ${name}: run credential seal ${name}`);
    }
    const { value, version, sealedAt, next } = entry;
    const waiting = next && { secret: next.value, version: next.version, changedAt: next.sealedAt };
    return { secret: value, version, changedAt: sealedAt, next: waiting };
  }
}

/** Converts an error at a path to an issue. Errors of the sealed file are reported at its own path. */
export function issueOf(path: CredentialIssue['path'], error: unknown): CredentialIssue {
  if (error instanceof SealedError) return { path: ['sealed', error.part], message: error.message };
  return { path, message: messageOf(error) };
}

/** Describes a source without its content. */
export function describeSource(source: Source): string {
  if ('env' in source) return `env ${source.env}`;
  if ('file' in source) return `file ${source.file}`;
  return 'sealed' in source ? `sealed ${source.sealed}` : 'configuration';
}

async function readFileSource({ file, readableByOthers = false }: FileSource, uid?: number): Promise<Found> {
  const { bytes, changedAt } = await readGuardedFile(file, {
    uid,
    readableByOthers,
    largest: MAX_SECRET_BYTES,
  });
  return { secret: filled(decodeUtf8(bytes, file).replace(/\r?\n$/, ''), file), changedAt };
}

function readVariable(name: string, { environment }: ProcessContext): Secret {
  const value = environment[name];
  if (value === undefined) {
    throw new Error(`the environment variable ${name} is not set: set it for this process`);
  }
  return filled(value, `the environment variable ${name}`);
}

function filled(value: string, place: string): Secret {
  if (value === '') {
    throw new Error(`${place} is empty: put the secret there`);
  }
  return new Secret(value);
}

/** Returns the files among these sources, without duplicates. */
export function filesOf(sources: readonly Source[]): string[] {
  return [...new Set(sources.flatMap((source) => ('file' in source ? source.file : [])))];
}
