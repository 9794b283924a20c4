import { hostname } from 'node:os';
import { join } from 'node:path';
import { isNativeError } from 'node:util/types';
import type { AuditOptions } from '../audit/audit.ts';
import { auditKeys } from '../audit/keys.ts';
import { folderIssue } from '../audit/segments/replica-folder.ts';
import { errorCode, messageOf } from '../base/error-code.ts';
import type { Secret } from '../base/secret.ts';
import type { Issue } from '../config/issues.ts';
import type { Config } from '../config/schema.ts';
import type { SourceReader } from '../credentials/sources.ts';

export interface AuditSetup {
  /** Undefined without an audit section, or if its key cannot be read. */
  readonly options: AuditOptions | undefined;
  readonly issues: readonly Issue[];
}

/** Makes the options of the audit log from its section, and checks that its folder can be used. */
export async function readAudit(section: Config['audit'], reader: SourceReader): Promise<AuditSetup> {
  if (section === undefined) return { options: undefined, issues: [] };
  const { keyFile, replica = replicaName(), sinks = [], ...options } = section;
  const issues: Issue[] = [];
  const folder = join(options.directory, replica);
  const issue = await folderIssue(folder);
  if (issue !== undefined) {
    issues.push({ path: ['audit', 'directory'], message: `${folder} ${issue}` });
  }
  try {
    const key = await readAuditKey(keyFile, reader);
    return { options: { ...options, replica, key, sinks: sinks.map(({ name }) => name) }, issues };
  } catch (error) {
    const message = isNativeError(error) ? error.message : 'cannot be read';
    issues.push({ path: ['audit', 'keyFile'], message });
    return { options: undefined, issues };
  }
}

/**
 * Reads the key of the seals.
 * @throws Error if it cannot be read or contains no key; the message never quotes it
 */
export async function readAuditKey(file: string, reader: SourceReader): Promise<Secret> {
  // For this user alone: a key that others can read is refused.
  const command = `(umask 077; openssl rand -hex 32 > ${file})`;
  const { secret } = await reader.read({ file, readableByOthers: 'never' }).catch((error) => {
    const isMissing = isNativeError(error) && errorCode(error.cause) === 'ENOENT';
    throw isMissing ? new Error(`${file} does not exist: make it with ${command}`, { cause: error }) : error;
  });
  try {
    auditKeys(secret);
  } catch (error) {
    throw new Error(`${file} ${messageOf(error)}: make one with ${command}`);
  }
  return secret;
}

/** The host name in the characters of a folder name: the name of a gateway without `audit.replica`. */
export function replicaName(): string {
  const name = hostname()
    .replace(/[^\w.-]/g, '-')
    .replace(/^[^A-Za-z0-9]+/, '')
    .slice(0, 64);
  return name === '' ? 'gateway' : name;
}
