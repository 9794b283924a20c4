import { Secret } from '../../src/base/secret.ts';
import { type CredentialSet, readCredentials } from '../../src/credentials/credentials.ts';

/** What the sources of a credential of the simulator's user would hold, with the versions that they would have. */
export async function credentialSet(name: string, password: string, next?: string): Promise<CredentialSet> {
  const read = async (text: string): Promise<CredentialSet['current']> => {
    const sources = {
      [name]: { username: { value: new Secret('demo-user') }, password: { value: new Secret(text) } },
    };
    const set = (await readCredentials(sources, { environment: {} })).byName.get(name);
    if (set === undefined) throw new Error('not read');
    return set.current;
  };
  return { name, current: await read(password), next: next === undefined ? undefined : await read(next) };
}
