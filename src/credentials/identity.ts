import { Secret } from '../base/secret.ts';

type Age = typeof import('age-encryption');

/** Loads the library with the first sealed file, because few gateways need it. */
export function ageLibrary(): Promise<Age> {
  return import('age-encryption');
}

/**
 * Parses an identity file, as `age-keygen` writes it; undefined if there is no identity, or an invalid one.
 */
export async function parseIdentities(text: Secret): Promise<readonly Secret[] | undefined> {
  const { Decrypter } = await ageLibrary();
  const lines = text
    .reveal()
    .split(/\r?\n/)
    .map((line) => line.trim())
    .filter((line) => line !== '' && !line.startsWith('#'));
  const isIdentity = (line: string): boolean => {
    try {
      new Decrypter().addIdentity(line);
      return true;
    } catch {
      return false;
    }
  };
  return lines.length > 0 && lines.every(isIdentity) ? lines.map((line) => new Secret(line)) : undefined;
}

/** Creates the text of a new identity file, as `age-keygen` writes it. */
export async function newIdentity(now: Date): Promise<Secret> {
  const { generateX25519Identity, identityToRecipient } = await ageLibrary();
  const identity = await generateX25519Identity();
  const recipient = await identityToRecipient(identity);
  return new Secret(`# created: ${now.toISOString()}\n# public key: ${recipient}\n${identity}\n`);
}
