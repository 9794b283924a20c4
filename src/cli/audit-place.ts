import { resolve } from 'node:path';
import { isNativeError } from 'node:util/types';
import { type AuditKeys, auditKeys } from '../audit/keys.ts';
import { ConfigError, type Fault } from '../config/faults.ts';
import { loadLocated } from '../config/load.ts';
import type { Config } from '../config/schema.ts';
import { SourceReader } from '../credentials/sources.ts';
import { readAuditKey } from '../setup/audit.ts';
import { surroundings } from './surroundings.ts';

/** The audit section of a configuration, with its key read. */
export interface AuditPlace extends Omit<NonNullable<Config['audit']>, 'keyFile'> {
  /** The one in use; and others that sealed something. */
  readonly keys: readonly [AuditKeys, ...AuditKeys[]];
}

/** Reads where the audit log is, and its key; `more` are files of keys that sealed earlier parts of it. */
export async function placeOf(file: string, more: readonly string[] = []): Promise<AuditPlace> {
  const { config, faultAt } = await loadLocated(file);
  const fault = (message: string, path: readonly string[]): Fault => faultAt({ path, message });
  if (config.audit === undefined) {
    throw new ConfigError([fault('is missing: the configuration has no audit log', ['audit'])]);
  }
  const { keyFile, ...section } = config.audit;
  const reader = new SourceReader(surroundings(), config.sealed);
  const read = async (name: string): Promise<AuditKeys> => {
    try {
      return auditKeys(await readAuditKey(name, reader));
    } catch (error) {
      const message = isNativeError(error) ? error.message : 'cannot be read';
      throw new ConfigError([fault(message, ['audit', 'keyFile'])]);
    }
  };
  const key = await read(keyFile);
  const older = await Promise.all(more.map((path) => read(resolve(path))));
  return { ...section, keys: [key, ...older] };
}

/** Collects the files of an option that can be given again. */
export function gatherFiles(value: string, before: readonly string[]): string[] {
  return [...before, value];
}
