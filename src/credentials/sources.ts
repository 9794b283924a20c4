import { isNativeError } from 'node:util/types';
import { decodeUtf8, readGuardedFile } from '../base/guarded-file.ts';
import { Secret } from '../base/secret.ts';
import { readSealed, SealedError, type SealedSection } from './sealed-file.ts';
import type { SealedEntries } from './sealed-form.ts';

const LARGEST = 64 * 1024;

export interface FileSource {
  readonly file: string;
  /** Docker and Kubernetes give secrets modes that let others read them. */
  readonly readableByOthers?: boolean;
}

/** Where a secret comes from: an environment variable, a file, an entry of the sealed file, or the configuration. */
export type Source =
  | { readonly env: string }
  | FileSource
  | { readonly sealed: string }
  | { readonly value: Secret };

/** What the process offers to sources. */
export interface Surroundings {
  readonly environment: Readonly<Record<string, string | undefined>>;
  /** The user of this process; without one, owners of files are not checked. */
  readonly uid?: number;
}

export interface Found {
  readonly secret: Secret;
  /** Of an entry of the sealed file. */
  readonly version?: number;
  /** When it was put there; undefined where nobody knows. */
  readonly changedAt?: Date | undefined;
  /** What waits in the sealed file to take its place. */
  readonly next?: Found | undefined;
}

/** Something about a part of the configuration, never with a secret in it. */
export interface CredentialFinding {
  readonly path: readonly string[];
  readonly message: string;
}

/** Reads secrets. The sealed file is opened once, so all that one reader says of it is from one moment. */
export class SourceReader {
  readonly #surroundings: Surroundings;
  readonly #section: SealedSection | undefined;
  #entries: Promise<SealedEntries> | undefined;

  constructor(surroundings: Surroundings, sealed: SealedSection | undefined) {
    this.#surroundings = surroundings;
    this.#section = sealed;
  }

  /** Throws an Error whose message says where the secret was looked for, and never quotes it. */
  async read(source: Source): Promise<Found> {
    if ('value' in source) return { secret: filled(source.value.reveal(), 'the value') };
    if ('file' in source) return readFileSource(source, this.#surroundings.uid);
    if ('sealed' in source) return this.#readEntry(source.sealed);
    return { secret: readVariable(source.env, this.#surroundings) };
  }

  /** The entries of the sealed file; none where no such file is configured. Throws a SealedError. */
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

/** What went wrong with the source at a path. A sealed file that cannot be read is told at its own place. */
export function findingOf(path: readonly string[], error: unknown): CredentialFinding {
  if (error instanceof SealedError) return { path: ['sealed', error.part], message: error.message };
  return { path, message: isNativeError(error) ? error.message : 'cannot be read' };
}

/** A source in a few words, without what it holds. */
export function describeSource(source: Source): string {
  if ('env' in source) return `env ${source.env}`;
  if ('file' in source) return `file ${source.file}`;
  return 'sealed' in source ? `sealed ${source.sealed}` : 'configuration';
}

async function readFileSource({ file, readableByOthers = false }: FileSource, uid?: number): Promise<Found> {
  const { bytes, changedAt } = await readGuardedFile(file, { uid, readableByOthers, largest: LARGEST });
  return { secret: filled(decodeUtf8(bytes, file).replace(/\r?\n$/, ''), file), changedAt };
}

function readVariable(name: string, { environment }: Surroundings): Secret {
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

/** The files among these sources, each once. */
export function filesOf(sources: readonly Source[]): string[] {
  return [...new Set(sources.flatMap((source) => ('file' in source ? source.file : [])))];
}
