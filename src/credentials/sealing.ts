import { access, type FileHandle, open, realpath, rename, rm, stat } from 'node:fs/promises';
import { dirname } from 'node:path';
import { createDurably, syncDirectory } from '../base/durable-file.ts';
import { errorCode, fileMessageOf } from '../base/error-code.ts';
import { ignoreSystemError } from '../base/expected-errors.ts';
import type { Secret } from '../base/secret.ts';
import {
  isForOthers,
  LARGEST,
  newIdentity,
  readIdentities,
  readSealed,
  type SealedEntries,
  type SealedEntry,
  type SealedSection,
  seal,
} from './sealed-file.ts';
import type { SourceReader } from './sources.ts';

/** The sealed file cannot be changed so, or not be written. The message contains the remedy. */
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

/** Replaces the entry by this value. A next value that waits would be lost. */
export function setTo(value: Secret, now: Date): EntryChange {
  return (entry, name) => {
    if (entry?.next !== undefined) {
      const remedy = `run credential rotate ${name} with --promote or --withdraw first`;
      throw new SealingError(`version ${entry.next.version} of ${name} waits, and would be lost: ${remedy}`);
    }
    return { value, version: highest(entry) + 1, sealedAt: now, next: undefined };
  };
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
  const { next } = waiting(entry, name, `nothing waits to be promoted: run credential rotate ${name} first`);
  return { ...next, next: undefined };
};

/** Removes the next value. */
export const withdraw: EntryChange = (entry, name) => {
  const without = `${name} has no next version, so there is nothing to withdraw`;
  const { next, ...current } = waiting(entry, name, without);
  return { ...current, next: undefined, withdrawn: next.version };
};

/** The entry with its next value. @throws SealingError with the reason `without`, if it has none */
function waiting(entry: SealedEntry | undefined, name: string, without: string) {
  if (entry === undefined) {
    throw new SealingError(`the sealed file has no entry ${name}: credential list shows its entries`);
  }
  if (entry.next === undefined) throw new SealingError(without);
  return { ...entry, next: entry.next };
}

/** Removes the entry with all its versions. */
export const remove: EntryChange<undefined> = (entry, name) => {
  if (entry === undefined) throw new SealingError(`there is no entry ${name}: credential list shows all`);
};

/**
 * Changes these entries of the sealed file in one step. The file is created if missing. Resolves to the new entries.
 * @throws SealedError, SealingError
 */
export async function changeEntries<T extends SealedEntry | undefined>(
  section: SealedSection,
  reader: SourceReader,
  names: readonly string[],
  change: EntryChange<T>,
): Promise<readonly T[]> {
  const changed: T[] = [];
  await replaceFile(section.file, async () => {
    const identities = await readIdentities(section.identity, (source) => reader.read(source));
    const entries = new Map(await entriesOf(section, reader, identities));
    for (const name of names) {
      const entry = change(entries.get(name), name);
      changed.push(entry);
      if (entry === undefined) entries.delete(name);
      else entries.set(name, entry);
    }
    const content = await seal(entries, identities);
    // Nothing reads a larger one: every entry would be lost.
    if (Buffer.byteLength(content) > LARGEST) {
      throw new SealingError(`${section.file} would be larger than ${LARGEST} bytes: remove entries first`);
    }
    return content;
  });
  return changed;
}

/**
 * Creates a new identity in a file with mode 600, and resolves to its name.
 * @throws SealingError if a file exists, the identity is not a file, or it cannot be written
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
  await createDurably(identity.file, text.reveal(), 0o600).catch((error: unknown) => {
    if (errorCode(error) === 'EEXIST') {
      throw new SealingError(`${identity.file} exists: seal without --new-identity to use it`);
    }
    throw new SealingError(whyNotMade(error, identity.file), { cause: error });
  });
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
  return Math.max(entry?.version ?? 0, entry?.next?.version ?? 0, entry?.withdrawn ?? 0);
}

async function exists(file: string): Promise<boolean> {
  return access(file).then(
    () => true,
    () => false,
  );
}

const READ_WRITE_BITS = 0o666;

/**
 * Replaces the content of a file atomically. Owner and mode are kept; a new file is readable by this user
 * only. While `make` runs, no other call replaces this file.
 * @throws SealingError, or an error of `make`
 */
export async function replaceFile(file: string, make: () => Promise<string>): Promise<void> {
  // A symbolic link is kept; its target is replaced.
  const target = await realpath(file).catch((error: unknown) => ignoreSystemError(error) ?? file);
  const beside = `${target}.new`;
  // Created before the old content is read: of two concurrent writers, the second one fails instead of
  // overwriting.
  const handle = await open(beside, 'wx', 0o600).catch((error: unknown) => {
    throw new SealingError(whyNotMade(error, beside), { cause: error });
  });
  try {
    try {
      await fill(handle, await make(), target);
    } finally {
      await handle.close();
    }
    await rename(beside, target);
  } catch (error) {
    await rm(beside, { force: true });
    throw error;
  }
  await syncDirectory(dirname(target));
}

async function fill(handle: FileHandle, content: string, target: string): Promise<void> {
  const failed = (error: unknown): never => {
    throw new SealingError(fileMessageOf(error, target), { cause: error });
  };
  await handle.writeFile(content).catch(failed);
  const old = await stat(target).catch(ignoreSystemError);
  if (old !== undefined) {
    const { uid, gid } = await handle.stat();
    // A sandbox, as the unit of systemd, can forbid the call, which is rarely needed.
    if (uid !== old.uid || gid !== old.gid) {
      await handle.chown(old.uid, old.gid).catch((error: unknown) => {
        const whose = `${target} belongs to another user, who could not read it afterwards`;
        throw new SealingError(`${whose}: run this as that user, or as root`, { cause: error });
      });
    }
    await handle.chmod(old.mode & READ_WRITE_BITS);
  }
  await handle.sync().catch(failed);
}

function whyNotMade(error: unknown, file: string): string {
  switch (errorCode(error)) {
    case 'EEXIST':
      return `${file} exists: another command writes at this moment; if none does, one was interrupted, and you may remove it`;
    case 'ENOENT':
      return `${dirname(file)} does not exist: create this folder`;
    case 'EACCES':
    case 'EROFS':
      return `${dirname(file)} may not be written by this user: give it write permission`;
    default:
      return fileMessageOf(error, file);
  }
}
