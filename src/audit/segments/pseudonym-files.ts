import { randomBytes } from 'node:crypto';
import { constants } from 'node:fs';
import { readdir, rename, rm, stat, unlink } from 'node:fs/promises';
import { join } from 'node:path';
import { z } from 'zod';
import { replaceDurably, syncDirectoryIfPossible } from '../../base/durable-file.ts';
import { messageOf } from '../../base/error-code.ts';
import { reportDefect } from '../../base/expected-errors.ts';
import { readGuardedFile } from '../../base/guarded-file.ts';
import { parseJson } from '../../base/json.ts';
import { Secret } from '../../base/secret.ts';
import { isKeyId, PseudonymKey } from '../pseudonym.ts';
import { foldersIn } from './segment.ts';
import { openRegular } from './segment-reader.ts';

/*
 * `pseudonyms.keysDirectory` has a folder for each process that writes, named as in the audit directory. `ID.key` is a
 * key, `ID.key.tmp` one that is being written. `ID.forgotten` says that a key was destroyed, and becomes `ID.recorded`
 * when the audit log says so, too.
 */

const KEY = '.key';
/** Of a key that is being written. */
const NEW = `${KEY}.tmp`;
const FORGOTTEN = '.forgotten';
const RECORDED = '.recorded';
/** The largest file that is read, in bytes. */
const LARGEST = 4096;
/** Files that are read or written at the same time. */
const AT_ONCE = 64;

const stored = z.strictObject({
  pseudonymKey: z.literal(1),
  scope: z.enum(['month', 'client', 'address']),
  subject: z.string().max(1024),
  made: z.iso.datetime(),
  key: z.string(),
});

/** A key with the folder that it is in. */
export interface PlacedKey {
  readonly key: PseudonymKey;
  /** Name of the process that made it. */
  readonly replica: string;
}

/** The state of a folder, as far as the names in it show it. */
export interface FolderState {
  /** Ids of keys. */
  readonly keys: ReadonlySet<string>;
  /** Ids of keys that were destroyed, or are about to be. */
  readonly destroyed: ReadonlySet<string>;
  /** Ids of keys that are destroyed, which the audit log does not say yet. */
  readonly unrecorded: readonly string[];
  /** Names of files that a writer which was killed has left. */
  readonly leftOver: readonly string[];
}

/**
 * Reads the names of a folder with keys.
 * @throws Error of the file system
 */
export async function folderState(folder: string): Promise<FolderState> {
  const names = await readdir(folder);
  const ids = (ending: string): string[] =>
    names
      .filter((name) => name.endsWith(ending))
      .map((name) => name.slice(0, -ending.length))
      .filter(isKeyId);
  const keys = new Set(ids(KEY));
  const forgotten = ids(FORGOTTEN);
  return {
    keys,
    destroyed: new Set([...forgotten, ...ids(RECORDED)]),
    unrecorded: forgotten.filter((id) => !keys.has(id)),
    leftOver: names.filter((name) => name.endsWith(NEW)),
  };
}

/** Reads keys of a folder. Those that cannot be used are named to `onIssue`, with the reason. */
export async function readKeys(
  folder: string,
  ids: Iterable<string>,
  onIssue: (issue: string) => void,
): Promise<PseudonymKey[]> {
  const read = await inParts([...ids], async (id) => {
    try {
      return await readKey(join(folder, id + KEY), id);
    } catch (error) {
      onIssue(messageOf(error));
      return undefined;
    }
  });
  return read.filter((key) => key !== undefined);
}

/**
 * Reads the keys of a folder that one process writes to, but for those that are destroyed.
 * @throws Error if the process cannot use the folder, or one of the keys
 */
export async function loadKeys(folder: string): Promise<PseudonymKey[]> {
  const { mode } = await stat(folder);
  if ((mode & 0o007) !== 0) throw new Error('other users may use it: run chmod 700 on it');
  const { keys, destroyed } = await folderState(folder);
  const ids = [...keys].filter((id) => !destroyed.has(id));
  return readKeys(folder, ids, (issue) => {
    throw new Error(issue);
  });
}

async function readKey(path: string, id: string): Promise<PseudonymKey> {
  const parsed = stored.safeParse(parseJson(await readText(path)));
  if (!parsed.success)
    throw new Error(`${path} holds no key of pseudonyms: restore it, or remove it if it is lost`);
  const { scope, subject, made, key } = parsed.data;
  try {
    return new PseudonymKey(id, { scope, subject, made: Date.parse(made), secret: new Secret(key) });
  } catch (error) {
    throw error instanceof RangeError ? new Error(`${path} ${error.message}`, { cause: error }) : error;
  }
}

async function readText(path: string): Promise<string> {
  const { bytes } = await readGuardedFile(path, { readableByOthers: 'never', largest: LARGEST });
  return bytes.toString('utf8');
}

/**
 * Stores new keys durably: when this resolves, they survive a crash of the machine. If one cannot be stored, others may be
 * there; none is being written any more.
 * @throws Error of the file system
 */
export async function storeKeys(folder: string, keys: readonly PseudonymKey[]): Promise<void> {
  const errors: unknown[] = [];
  await inParts(keys, (key) => storeKey(folder, key).catch((error: unknown) => errors.push(error)));
  if (errors.length > 0) throw errors[0];
  await syncDirectoryIfPossible(folder);
}

async function storeKey(folder: string, { id, scope, subject, made, secret }: PseudonymKey): Promise<void> {
  const content = {
    pseudonymKey: 1,
    scope,
    subject,
    made: new Date(made).toISOString(),
    key: secret.reveal(),
  };
  await replaceDurably(join(folder, id + KEY), `${JSON.stringify(content)}\n`);
}

/**
 * Destroys a key durably: says so in a file for the writer, overwrites the key, and removes it. A call that was
 * interrupted can be made again.
 * @throws Error of the file system
 */
export async function destroyKey(directory: string, { key, replica }: PlacedKey): Promise<void> {
  const folder = join(directory, replica);
  const { id, scope, subject } = key;
  const note = { scope, ...(scope === 'month' && { month: subject }), destroyed: new Date().toISOString() };
  await replaceDurably(join(folder, id + FORGOTTEN), `${JSON.stringify(note)}\n`);
  await syncDirectoryIfPossible(folder);
  await removeKey(folder, id);
}

/**
 * Destroys what is left of keys whose destruction was interrupted, which may be overwritten already; returns their ids.
 * @throws Error of the file system
 */
export async function endDestruction(directory: string): Promise<string[]> {
  const ended: string[] = [];
  for (const replica of await foldersIn(directory)) {
    const folder = join(directory, replica);
    const { keys, destroyed } = await folderState(folder);
    for (const id of [...keys].filter((key) => destroyed.has(key))) {
      await removeKey(folder, id);
      ended.push(id);
    }
  }
  return ended;
}

async function removeKey(folder: string, id: string): Promise<void> {
  const path = join(folder, id + KEY);
  await using handle = await openRegular(path, constants.O_WRONLY);
  // A larger file is no key, and may have terabytes.
  const size = Math.min((await handle.stat()).size, LARGEST);
  await handle.write(randomBytes(size), 0, size, 0);
  await handle.sync();
  await unlink(path);
  await syncDirectoryIfPossible(folder);
}

const note = z.object({
  scope: z.enum(['month', 'client', 'address']),
  month: z.string().max(7).exactOptional(),
  destroyed: z.iso.datetime(),
});

/** The record of a destroyed key. */
export type ForgottenKey = Partial<z.output<typeof note>> & { readonly key: string };

/** Reads what is to be recorded of a destroyed key: of a file that cannot be read, its name alone. */
export async function readForgotten(folder: string, id: string): Promise<ForgottenKey> {
  // The key is destroyed, whatever is in the file: an error here must not stop the gateway.
  const text = await readText(join(folder, id + FORGOTTEN)).catch(reportDefect);
  const { data } = note.safeParse(text && parseJson(text));
  return { key: id, ...data };
}

/** Remembers that the audit log says that a key was destroyed. @throws Error of the file system */
export async function markRecorded(folder: string, id: string): Promise<void> {
  await rename(join(folder, id + FORGOTTEN), join(folder, id + RECORDED));
  await syncDirectoryIfPossible(folder);
}

/** Removes what a writer that was killed has left. @throws Error of the file system */
export async function removeLeftOver(folder: string, { leftOver }: FolderState): Promise<void> {
  await Promise.all(leftOver.map((name) => rm(join(folder, name), { force: true })));
}

/**
 * Reads the keys of all processes. `onBroken`: called for each link that leads to no folder, which is then left out.
 * @throws BrokenLinkError without `onBroken`; Error if the directory cannot be read
 */
export async function allKeys(
  directory: string,
  onIssue: (issue: string) => void,
  onBroken?: (error: Error) => void,
): Promise<PlacedKey[]> {
  const found: PlacedKey[] = [];
  for (const replica of await foldersIn(directory, undefined, onBroken)) {
    const folder = join(directory, replica);
    const { keys } = await folderState(folder);
    for (const key of await readKeys(folder, keys, onIssue)) found.push({ key, replica });
  }
  return found;
}

async function inParts<From, To>(items: readonly From[], each: (item: From) => Promise<To>): Promise<To[]> {
  const results: To[] = [];
  for (let at = 0; at < items.length; at += AT_ONCE) {
    results.push(...(await Promise.all(items.slice(at, at + AT_ONCE).map(each))));
  }
  return results;
}
