import { generateKeyPairSync } from 'node:crypto';
import { type SigningKey, signingKey } from '../../src/audit/checkpoint.ts';
import { Secret } from '../../src/base/secret.ts';

/** A key of signed heads: its private half as a secret of the configuration, both halves in PEM, and as keys. */
export interface TestSigningKey extends SigningKey {
  readonly secret: Secret;
  readonly privatePem: string;
  readonly publicPem: string;
}

export function newSigningKey(): TestSigningKey {
  const { privateKey, publicKey } = generateKeyPairSync('ed25519');
  const privatePem = privateKey.export({ type: 'pkcs8', format: 'pem' }).toString();
  const publicPem = publicKey.export({ type: 'spki', format: 'pem' }).toString();
  const secret = new Secret(privatePem);
  return { ...signingKey(secret), secret, privatePem, publicPem };
}
