import { access, writeFile } from 'node:fs/promises';
import { errorCode } from '../base/error-code.ts';
import type { Secret } from '../base/secret.ts';
import { newIdentity } from './identity.ts';
import { ReplaceError, replaceFile } from './replace-file.ts';
import { isForOthers, readIdentities, readSealed, type SealedSection, seal } from './sealed-file.ts';
import type { SealedEntries, SealedEntry } from './sealed-form.ts';
import type { SourceReader } from './sources.ts';

/** A command that does not fit the content of the sealed file. The message contains the remedy. */
export class SealingError extends Error {
  override readonly name = 'SealingError';
}

/**
 * A change of one entry, which is undefined if it does not exist. Returns undefined to remove it.
 * @throws SealingError
 */
export type EntryChange<T extends SealedEntry | undefined = SealedEntry> = (
  entry: SealedEntry | undefined,
  name: string,
) => T;

/** Replaces the entry by this value. */
export function setTo(value: Secret, now: Date): EntryChange {
  return (entry) => ({ value, version: highest(entry) + 1, sealedAt: now, next: undefined });
}

/** Adds this value as the next version. */
export function setNext(value: Secret, now: Date): EntryChange {
  return (entry, name) => {
    if (entry === undefined)
      throw new SealingError(`there is no entry ${name} to rotate: run credential seal ${name}`);
    return { ...entry, next: { value, version: highest(entry) + 1, sealedAt: now } };
  };
}

/** Replaces the current value by the next one. */
export const promote: EntryChange = (entry, name) => {
  if (entry?.next === undefined) {
    throw new SealingError(`nothing waits to be promoted: run credential rotate ${name} first`);
  }
  return { ...entry.next, next: undefined };
};

/** Removes the entry with all its versions. */
export const remove: EntryChange<undefined> = (entry, name) => {
  if (entry === undefined) throw new SealingError(`there is no entry ${name}: credential list shows all`);
};

/**
 * Changes one entry of the sealed file, which is created if missing. Resolves to the new entry.
 * @throws SealedError, ReplaceError, SealingError
 */
export async function changeEntry<T extends SealedEntry | undefined>(
  section: SealedSection,
  reader: SourceReader,
  name: string,
  change: EntryChange<T>,
): Promise<T> {
  const changed: T[] = [];
  await replaceFile(section.file, async () => {
    const identities = await readIdentities(section.identity, (source) => reader.read(source));
    const entries = new Map(await entriesOf(section, reader, identities));
    const entry = change(entries.get(name), name);
    changed.push(entry);
    if (entry === undefined) entries.delete(name);
    else entries.set(name, entry);
    return seal(entries, identities);
  });
  const [entry] = changed;
  if (changed.length === 0) throw new TypeError('the file was replaced without its content');
  return entry as T;
}

/**
 * Creates a new identity in a file with mode 600, and resolves to its name.
 * @throws SealingError if a file exists or the identity is not a file; ReplaceError if it cannot be written
 */
export async function makeIdentity({ file, identity }: SealedSection, now: Date): Promise<string> {
  if ('env' in identity) {
    throw new SealingError(
      `sealed.identity is the environment variable ${identity.env}: make an identity with age-keygen and put it there`,
    );
  }
  if (await exists(file)) {
    throw new SealingError(`${file} exists, and a new identity would not open it: give the one that does`);
  }
  const text = await newIdentity(now);
  await writeFile(identity.file, text.reveal(), { mode: 0o600, flag: 'wx', flush: true }).catch(
    (error: unknown) => {
      if (errorCode(error) === 'EEXIST') {
        throw new SealingError(`${identity.file} exists: seal without --new-identity to use it`);
      }
      throw new ReplaceError(
        `${identity.file} cannot be written: name a file in a folder that this user may write`,
        {
          cause: error,
        },
      );
    },
  );
  return identity.file;
}

async function entriesOf(
  section: SealedSection,
  reader: SourceReader,
  identities: readonly Secret[],
): Promise<SealedEntries> {
  if (!(await exists(section.file))) return new Map();
  const entries = await readSealed(section, (source) => reader.read(source));
  if (await isForOthers(section.file, identities)) {
    throw new SealingError(
      `${section.file} is sealed for others, too, who could not open it afterwards: change it with age, or put all identities in one file`,
    );
  }
  return entries;
}

function highest(entry: SealedEntry | undefined): number {
  return Math.max(entry?.version ?? 0, entry?.next?.version ?? 0);
}

async function exists(file: string): Promise<boolean> {
  return access(file).then(
    () => true,
    () => false,
  );
}
