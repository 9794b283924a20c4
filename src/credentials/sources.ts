import { Secret } from '../base/secret.ts';
import { readSecretFile } from './secret-file.ts';

/** Where a secret comes from: an environment variable, a file, or the configuration itself. */
export type Source = { env: string } | { file: string } | { value: Secret };

/** What the process offers to sources. */
export interface Surroundings {
  environment: Readonly<Record<string, string | undefined>>;
  /** The user of this process; without one, owners of files are not checked. */
  uid?: number;
}

/** Reads a secret. Throws an Error whose message says where it was looked for, and never quotes it. */
export async function readSource(source: Source, surroundings: Surroundings): Promise<Secret> {
  if ('value' in source) {
    return filled(source.value.reveal(), 'the value');
  }
  if ('file' in source) {
    return filled(await readSecretFile(source.file, surroundings.uid), source.file);
  }
  const value = surroundings.environment[source.env];
  if (value === undefined) {
    throw new Error(`the environment variable ${source.env} is not set: set it for this process`);
  }
  return filled(value, `the environment variable ${source.env}`);
}

function filled(value: string, place: string): Secret {
  if (value === '') {
    throw new Error(`${place} is empty: put the secret there`);
  }
  return new Secret(value);
}
