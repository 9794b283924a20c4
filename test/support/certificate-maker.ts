import { KeyObject, webcrypto } from 'node:crypto';

const algorithm = { name: 'ECDSA', namedCurve: 'P-256', hash: 'SHA-256' };

export type Keys = webcrypto.CryptoKeyPair;

export interface CertificateOrder {
  readonly subject: string;
  readonly publicKey: webcrypto.CryptoKey;
  /** The name and the key of who signs; they need not belong together. */
  readonly issuer: string;
  readonly signingKey: webcrypto.CryptoKey;
  /** It may vouch for others; else it is a server's, for 127.0.0.1. */
  readonly authority: boolean;
}

export function makeKeys(): Promise<Keys> {
  return webcrypto.subtle.generateKey(algorithm, true, ['sign', 'verify']);
}

/** PEM. */
export function keyText(key: webcrypto.CryptoKey): string {
  return KeyObject.from(key).export({ type: 'pkcs8', format: 'pem' }).toString();
}

/** PEM of a certificate that is as true as the order is. */
export async function makeCertificate(order: CertificateOrder): Promise<string> {
  await import('reflect-metadata');
  const x509 = await import('@peculiar/x509');
  const { subject, publicKey, issuer, signingKey, authority } = order;
  const certificate = await x509.X509CertificateGenerator.create({
    serialNumber: `01${Buffer.from(webcrypto.getRandomValues(new Uint8Array(8))).toString('hex')}`,
    subject,
    issuer,
    notBefore: new Date(Date.now() - 3_600_000),
    notAfter: new Date(Date.now() + 3_600_000),
    publicKey,
    signingKey,
    signingAlgorithm: algorithm,
    extensions: authority
      ? [new x509.BasicConstraintsExtension(true, undefined, true)]
      : [new x509.SubjectAlternativeNameExtension([{ type: 'ip', value: '127.0.0.1' }])],
  });
  return certificate.toString('pem');
}
