import { KeyObject, randomBytes, webcrypto } from 'node:crypto';
import type { X509Certificate } from '@peculiar/x509';
import type { Behaviour } from './settings.ts';

const algorithm = { name: 'ECDSA', namedCurve: 'P-256', hash: 'SHA-256' };
const hourMs = 3_600_000;
const dayMs = 24 * hourMs;

/** A key and its certificate, both PEM. */
export interface KeyPair {
  readonly key: string;
  readonly cert: string;
}

export interface Certificates {
  /** Certificate of the authority for clients, PEM. */
  readonly ca: string;
  readonly server: Readonly<Record<Behaviour['tls'], KeyPair>>;
}

/** A certificate authority; its key exists in this process only. */
interface Authority {
  readonly certificate: X509Certificate;
  readonly keys: webcrypto.CryptoKeyPair;
}

export interface Order {
  readonly issuer: Authority;
  /** Subject in RFC 4514 form. */
  readonly subject: string;
  readonly names: readonly { type: 'dns' | 'ip' | 'url' | 'email'; value: string }[];
  readonly usage: 'serverAuth' | 'clientAuth';
  /** Both times in Unix milliseconds. */
  readonly notBefore: number;
  readonly notAfter: number;
}

/**
 * Creates an authority and one server certificate of each kind, for loopback and for `serverNames`. Keys
 * exist in this process only.
 */
export async function createCertificates(serverNames: readonly string[] = []): Promise<Certificates> {
  const now = Date.now();
  const [issuer, stranger] = await Promise.all([
    createAuthority('CN=Simulator CA', now),
    createAuthority('CN=Unknown CA', now),
  ]);
  const names = [
    { type: 'ip', value: '127.0.0.1' },
    { type: 'ip', value: '::1' },
    ...['localhost', ...serverNames].map((value) => ({ type: 'dns', value }) as const),
  ] as const;
  // An hour back, for clients with a slow clock.
  const server = { subject: 'CN=Simulator', names, usage: 'serverAuth' } as const;
  const good = { ...server, issuer, notBefore: now - hourMs, notAfter: now + 90 * dayMs };
  const [plain, expired, foreign, wrongHost] = await Promise.all([
    issue(good),
    issue({ ...good, notBefore: now - 2 * dayMs, notAfter: now - dayMs }),
    issue({ ...good, issuer: stranger }),
    issue({ ...good, names: [{ type: 'dns', value: 'other.example.org' }] }),
  ]);
  return {
    ca: issuer.certificate.toString('pem'),
    server: { good: plain, expired, foreign, 'wrong-host': wrongHost },
  };
}

/** tsyringe, the container of @peculiar/x509, requires reflect-metadata to be loaded first. */
export async function loadX509(): Promise<typeof import('@peculiar/x509')> {
  await import('reflect-metadata');
  return import('@peculiar/x509');
}

/** Creates a self-signed authority; `now` is Unix time in milliseconds. */
export async function createAuthority(name: string, now: number): Promise<Authority> {
  const x509 = await loadX509();
  const keys = await createKeys();
  const certificate = await x509.X509CertificateGenerator.createSelfSigned({
    serialNumber: createSerialNumber(),
    name,
    notBefore: new Date(now - 3 * dayMs),
    notAfter: new Date(now + 90 * dayMs),
    signingAlgorithm: algorithm,
    keys,
    extensions: [
      new x509.BasicConstraintsExtension(true, 0, true),
      new x509.KeyUsagesExtension(x509.KeyUsageFlags.keyCertSign | x509.KeyUsageFlags.cRLSign, true),
      await x509.SubjectKeyIdentifierExtension.create(keys.publicKey),
    ],
  });
  return { certificate, keys };
}

/** Creates a key and its certificate. */
export async function issue(order: Order): Promise<KeyPair> {
  const { issuer, subject, names, usage, notBefore, notAfter } = order;
  const x509 = await loadX509();
  const keys = await createKeys();
  const certificate = await x509.X509CertificateGenerator.create({
    serialNumber: createSerialNumber(),
    subject,
    issuer: issuer.certificate.subject,
    notBefore: new Date(notBefore),
    notAfter: new Date(notAfter),
    publicKey: keys.publicKey,
    signingKey: issuer.keys.privateKey,
    signingAlgorithm: algorithm,
    extensions: [
      new x509.BasicConstraintsExtension(false, undefined, true),
      new x509.KeyUsagesExtension(x509.KeyUsageFlags.digitalSignature, true),
      new x509.ExtendedKeyUsageExtension([x509.ExtendedKeyUsage[usage]]),
      ...(names.length > 0 ? [new x509.SubjectAlternativeNameExtension([...names])] : []),
      await x509.SubjectKeyIdentifierExtension.create(keys.publicKey),
      await x509.AuthorityKeyIdentifierExtension.create(issuer.keys.publicKey),
    ],
  });
  const key = KeyObject.from(keys.privateKey).export({ type: 'pkcs8', format: 'pem' });
  return { key: key.toString(), cert: certificate.toString('pem') };
}

function createKeys(): Promise<webcrypto.CryptoKeyPair> {
  return webcrypto.subtle.generateKey(algorithm, true, ['sign', 'verify']);
}

/** Always positive and non-empty in DER (RFC 5280 §4.1.2.2). */
function createSerialNumber(): string {
  return `01${randomBytes(15).toString('hex')}`;
}
