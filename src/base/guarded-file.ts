import { X509Certificate } from 'node:crypto';
import { accessSync, constants, existsSync, readlinkSync, type Stats } from 'node:fs';
import { type FileHandle, open } from 'node:fs/promises';
import { dirname, resolve } from 'node:path';
import { buffer } from 'node:stream/consumers';
import { errorCode } from './error-code.ts';
import { ignoreSystemError } from './expected-errors.ts';

/** Conditions for reading a file. */
interface Guard {
  /** The user of this process; undefined: the file's owner is not checked. */
  readonly uid?: number | undefined;
  /** `never`: the configuration has no form that permits it. */
  readonly readableByOthers: boolean | 'never';
  readonly writableByOthers?: boolean;
  /** Maximum size in bytes. */
  readonly largest: number;
}

interface GuardedBytes {
  readonly bytes: Buffer;
  readonly changedAt: Date;
}

/**
 * Reads a file that only this user and root can replace.
 * @throws Error with the reason; its message never contains text of the file
 */
export async function readGuardedFile(file: string, guard: Guard): Promise<GuardedBytes> {
  let handle: FileHandle;
  try {
    // Without O_NONBLOCK, opening a named pipe would block until a writer opens it.
    handle = await open(file, constants.O_RDONLY | constants.O_NONBLOCK);
  } catch (error) {
    throw new Error(`${file} ${whyClosed(error, file)}`, { cause: error });
  }
  try {
    // Stats of the open handle: the path could be replaced between check and read.
    const stats = await handle.stat();
    const issue = fileIssue(stats, guard);
    if (issue !== undefined) {
      throw new Error(`${file} ${issue}`);
    }
    return { bytes: await handle.readFile(), changedAt: stats.mtime };
  } finally {
    await handle.close();
  }
}

/**
 * Reads an open file to its end; undefined: it has more bytes than `largest`. The size of a pipe or a device says nothing,
 * and a device may never end.
 * @throws Error of the system
 */
export async function readUpTo(handle: FileHandle, largest: number): Promise<Buffer | undefined> {
  const bytes = await buffer(handle.createReadStream({ end: largest, autoClose: false }));
  return bytes.length > largest ? undefined : bytes;
}

function whyClosed(error: unknown, file: string): string {
  switch (errorCode(error)) {
    case 'ENOENT':
      return whyMissing(file);
    case 'ENOTDIR':
      return 'is not in a folder: a part of its name is a file; name another one';
    case 'EACCES':
      return (
        whyUnreached(file) ??
        'may not be read by this user: run this as the user of the service, make that user its owner, or give its group read permission'
      );
    default:
      return 'cannot be opened: name a readable file';
  }
}

/** Says which folder keeps this user from a file, or from what it links to; undefined: none does. */
export function whyUnreached(file: string): string | undefined {
  const folder = closedFolder(dirname(resolve(file))) ?? closedFolder(dirname(linkedFile(file)));
  if (folder === undefined) return undefined;
  return `is behind the folder ${folder}, which this user may not search: give this user the permission x on it`;
}

/** The first folder of a path that this user may not search. */
function closedFolder(folder: string): string | undefined {
  const parent = dirname(folder);
  const above = parent === folder ? undefined : closedFolder(parent);
  return above ?? (isClosed(folder) ? folder : undefined);
}

function isClosed(folder: string): boolean {
  try {
    accessSync(folder, constants.X_OK);
    return false;
  } catch (error) {
    return errorCode(error) === 'EACCES';
  }
}

function linkedFile(file: string): string {
  try {
    return resolve(dirname(file), readlinkSync(file));
  } catch (error) {
    ignoreSystemError(error);
    return resolve(file);
  }
}

/** Each unit of systemd with `LoadCredential` has a folder in this one while it runs. */
const UNIT_CREDENTIALS = '/run/credentials/';

function whyMissing(file: string): string {
  if (existsSync(dirname(file))) return 'does not exist: create it, or name another file';
  return file.startsWith(UNIT_CREDENTIALS)
    ? 'is in a folder that systemd makes for LoadCredential when it starts the unit: until then, use check --no-secrets'
    : 'is in a folder that does not exist: create the folder, or name another file';
}

function fileIssue(
  stats: Stats,
  { uid, readableByOthers, writableByOthers = false, largest }: Guard,
): string | undefined {
  if (!stats.isFile()) {
    return 'is not a regular file: name one';
  }
  // Group read permission is accepted, because orchestrators use it to give a root-owned file to a process.
  if (!writableByOthers && (stats.mode & 0o022) !== 0) {
    return `can be written by others: run chmod ${readableByOthers === true ? 'go-w' : '600'} on it`;
  }
  if (readableByOthers !== true && (stats.mode & 0o004) !== 0) {
    const permitted = readableByOthers === 'never' ? '' : ', or write { file: NAME, readableByOthers: true }';
    return `can be read by others: run chmod 600 on it${permitted}`;
  }
  if (uid !== undefined && stats.uid !== uid && stats.uid !== 0) {
    // "This user" may be root, who runs a command beside a service of the owner: that one must still be able to read it.
    return `belongs to another user (uid ${stats.uid}), who could exchange it: run this as the user of the service, or make that user or root its owner`;
  }
  return stats.size > largest ? `is larger than ${largest} bytes: name the right file` : undefined;
}

/**
 * Decodes UTF-8.
 * @throws Error that names the file
 */
export function decodeUtf8(bytes: Uint8Array, file: string): string {
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(bytes);
  } catch {
    throw new Error(`${file} is not UTF-8 text: save it as UTF-8`);
  }
}

/** The largest file that is read, in bytes; the bundle of a distribution has about 250 kB. */
const LARGEST = 4 * 2 ** 20;

/** Conditions for reading a PEM file. */
export interface PemGuard {
  /** The user of this process; undefined: the file's owner is not checked. */
  readonly uid: number | undefined;
  /** False for a private key. */
  readonly readableByOthers: boolean;
}

/** The content that a PEM file must have: its parser, which returns undefined for another one, and the message then. */
export type PemForm<T> = readonly [parse: (text: string) => T | undefined, wrong: string];

export interface PemFile<T> {
  readonly text: string;
  readonly value: T;
}

/**
 * Reads a file in PEM form.
 * @throws Error that names the file and what is wrong with it
 */
export async function readPem<T>(
  file: string,
  [parse, wrong]: PemForm<T>,
  guard: PemGuard,
): Promise<PemFile<T>> {
  const text = (await readGuardedFile(file, { ...guard, largest: LARGEST })).bytes.toString('latin1');
  const value = parse(text);
  if (value === undefined) throw new Error(`${file} ${wrong}: name a readable file in PEM form`);
  return { text, value };
}

/** Parses the certificates in a PEM text; undefined if there is none, or an invalid one. */
export function certificatesIn(pem: string): [X509Certificate, ...X509Certificate[]] | undefined {
  const blocks = pem.match(/-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----/g) ?? [];
  try {
    const [first, ...others] = blocks.map((block) => new X509Certificate(block));
    return first === undefined ? undefined : [first, ...others];
  } catch {
    return undefined;
  }
}

export const CERTIFICATES = [certificatesIn, 'holds no certificate'] as const;
