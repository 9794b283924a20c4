import { Decrypter, generateX25519Identity, identityToRecipient } from 'age-encryption';
import { Secret } from '../base/secret.ts';

/**
 * Parses an identity file, as `age-keygen` writes it; undefined if there is no identity, or an invalid one.
 */
export function parseIdentities(text: Secret): readonly Secret[] | undefined {
  const lines = text
    .reveal()
    .split(/\r?\n/)
    .map((line) => line.trim())
    .filter((line) => line !== '' && !line.startsWith('#'));
  return lines.length > 0 && lines.every(isIdentity) ? lines.map((line) => new Secret(line)) : undefined;
}

/** Creates the text of a new identity file, as `age-keygen` writes it. */
export async function newIdentity(now: Date): Promise<Secret> {
  const identity = await generateX25519Identity();
  const recipient = await identityToRecipient(identity);
  return new Secret(`# created: ${now.toISOString()}\n# public key: ${recipient}\n${identity}\n`);
}

function isIdentity(line: string): boolean {
  try {
    new Decrypter().addIdentity(line);
    return true;
  } catch {
    return false;
  }
}
