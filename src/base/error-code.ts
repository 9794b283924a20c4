import { constants } from 'node:os';
import { isNativeError } from 'node:util/types';

/** Names of system errors by their numbers. */
const SYSTEM_ERRORS: ReadonlyMap<string, string> = new Map(
  Object.entries(constants.errno).map(([name, number]) => [String(number), name]),
);

/** Node.js has no name for some system errors, such as EDQUOT and ESTALE: their code and message have the number. */
function withNames(text: string): string {
  return text.replaceAll(
    /Unknown system error -(\d+)/g,
    (found, number) => SYSTEM_ERRORS.get(number) ?? found,
  );
}

/** Returns the code of an error of Node, undici or OpenSSL, such as ENOENT; empty if it has none. */
export function errorCode(error: unknown): string {
  if (!isNativeError(error) || !('code' in error) || typeof error.code !== 'string') return '';
  // A failed TLS handshake that meets a write has the code EPROTO; its usual code is made of this reason.
  const [, reason] = (error.code === 'EPROTO' && /:SSL routines:[^:]*:([^:]+):/.exec(error.message)) || [];
  return reason === undefined
    ? withNames(error.code)
    : `ERR_SSL_${reason.replaceAll(' ', '_').toUpperCase()}`;
}

/** Returns the message of an error, or the text of anything else that was thrown. */
export function messageOf(error: unknown): string {
  return isNativeError(error) ? withNames(error.message) : String(error);
}

/** The cause of an error of the file system and its remedy, by the code of the error. */
const FILE_ERRORS: Readonly<Record<string, string>> = {
  EACCES: 'may not be used by this user: give it the permission, or name another one',
  EPERM: 'may not be used by this user: give it the permission, or name another one',
  EROFS: 'is on a file system that is read-only: name another one',
  ENOSPC: 'cannot be written: the disk is full; make room on it',
  EDQUOT: 'cannot be written: the quota of this user is used up; make room on the disk',
  EIO: 'cannot be read or written: the disk fails; look at the log of the system',
  ENOENT: 'does not exist: create it, or name another one',
  EEXIST: 'exists: name another file',
  ENOTDIR: 'is not a folder, or leads through a file: name another one',
  EISDIR: 'is a folder: name a file',
  EMFILE: 'cannot be opened: this process has too many open files; raise its limit (ulimit -n)',
  ENFILE: 'cannot be opened: this machine has too many open files; raise its limit (fs.file-max)',
};

/**
 * Describes an error of the file system with the file and what to do; undefined: it is another error, or nobody knows of
 * which file. `file`: the name if the error has none, as those of an open file.
 */
export function fileErrorText(error: unknown, file = pathOf(error)): string | undefined {
  const text = FILE_ERRORS[errorCode(error)];
  return text === undefined || file === undefined ? undefined : `${pathOf(error) ?? file} ${text}`;
}

function pathOf(error: unknown): string | undefined {
  if (!isNativeError(error) || !('path' in error && 'syscall' in error)) return undefined;
  // The path of a program says nothing of a file that the user named.
  return String(error.syscall).startsWith('spawn') ? undefined : String(error.path);
}

/** Returns the message of an error; one of the file system as people can act on it. */
export function fileMessageOf(error: unknown, file?: string): string {
  return fileErrorText(error, file) ?? messageOf(error);
}
