import { Secret } from '../../src/base/secret.ts';
import { type Credential, type CredentialSet, readCredentials } from '../../src/credentials/credentials.ts';
import { SourceReader } from '../../src/credentials/sources.ts';
import type { RunningGateway } from './gateway.ts';

/** A credential set of the simulator's user, with the versions that the gateway sees. */
export async function credentialSet(
  { versions }: RunningGateway,
  name: string,
  password: string,
  next?: string,
): Promise<CredentialSet> {
  const source = (text: string) => ({ value: new Secret(text) });
  const reader = new SourceReader({ environment: {} }, undefined);
  const read = async (text: string): Promise<Credential> => {
    const sources = { [name]: { username: source('demo-user'), password: source(text) } };
    const set = (await readCredentials(sources, reader, versions)).byName.get(name);
    if (set === undefined) throw new Error('not read');
    return set.current;
  };
  return { name, current: await read(password), next: next === undefined ? undefined : await read(next) };
}
