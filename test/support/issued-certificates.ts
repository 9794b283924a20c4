import { execFileSync } from 'node:child_process';
import { X509Certificate } from 'node:crypto';
import { mkdtemp, rename, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import {
  createAuthority,
  issue,
  type KeyPair,
  loadX509,
  type Order,
} from '../../src/simulator/certificates.ts';
import { needPackages } from './system-packages.ts';

const HOUR_MS = 3_600_000;

/** An authority of a test, and what it signs. */
export interface TestAuthority {
  /** PEM. */
  readonly ca: string;
  /** For 127.0.0.1 and localhost. */
  server(order?: Partial<Order>): Promise<KeyPair>;
  client(order?: Partial<Order>): Promise<KeyPair>;
  /** PEM of its list of revoked certificates. `nextUpdate`: in Unix milliseconds; left out: in an hour. */
  revoke(pairs: readonly KeyPair[], nextUpdate?: number): Promise<string>;
}

export async function createTestAuthority(name = 'CN=Test CA'): Promise<TestAuthority> {
  const x509 = await loadX509();
  const now = Date.now();
  const issuer = await createAuthority(name, now);
  const validity = { notBefore: now - HOUR_MS, notAfter: now + HOUR_MS };
  const local = [
    { type: 'ip', value: '127.0.0.1' },
    { type: 'dns', value: 'localhost' },
  ] as const;
  return {
    ca: issuer.certificate.toString('pem'),
    server: (order) =>
      issue({
        issuer,
        subject: 'CN=gateway',
        names: local,
        usage: 'serverAuth',
        ...validity,
        ...order,
      }),
    client: (order) =>
      issue({
        issuer,
        subject: 'CN=reporting, O=Example',
        names: [{ type: 'dns', value: 'reporting.internal' }],
        usage: 'clientAuth',
        ...validity,
        ...order,
      }),
    revoke: async (pairs, nextUpdate = now + HOUR_MS) => {
      const list = await x509.X509CrlGenerator.create({
        issuer: issuer.certificate.subject,
        thisUpdate: new Date(now - 2 * HOUR_MS),
        nextUpdate: new Date(nextUpdate),
        entries: pairs.map(({ cert }) => ({ serialNumber: new X509Certificate(cert).serialNumber })),
        signingAlgorithm: { name: 'ECDSA', hash: 'SHA-256' },
        signingKey: issuer.keys.privateKey,
      });
      // The library has a label of its own, which OpenSSL does not read.
      return list.toString('pem').replaceAll(' CRL-----', ' X509 CRL-----');
    },
  };
}

/** A certificate for 127.0.0.1, the intermediate authority that issued it, and the root above that one, all PEM. */
export async function createTestChain(): Promise<{ root: string; intermediate: string; server: KeyPair }> {
  const x509 = await loadX509();
  const now = Date.now();
  const validity = { notBefore: new Date(now - HOUR_MS), notAfter: new Date(now + HOUR_MS) };
  const [root, { keys }] = await Promise.all([
    createAuthority('CN=Test Root', now),
    createAuthority('CN=Test Intermediate', now),
  ]);
  const certificate = await x509.X509CertificateGenerator.create({
    serialNumber: '02',
    subject: 'CN=Test Intermediate',
    issuer: root.certificate.subject,
    ...validity,
    publicKey: keys.publicKey,
    signingKey: root.keys.privateKey,
    signingAlgorithm: { name: 'ECDSA', hash: 'SHA-256' },
    extensions: [new x509.BasicConstraintsExtension(true, 0, true)],
  });
  const server = await issue({
    issuer: { certificate, keys },
    subject: 'CN=upstream',
    names: [{ type: 'ip', value: '127.0.0.1' }],
    usage: 'serverAuth',
    notBefore: now - HOUR_MS,
    notAfter: now + HOUR_MS,
  });
  return { root: root.certificate.toString('pem'), intermediate: certificate.toString('pem'), server };
}

/** The files of a gateway's TLS, in a folder of their own. */
export interface TlsFiles {
  /** For `listen.tls`. */
  readonly section: { readonly certFile: string; readonly keyFile: string; readonly clientCaFile: string };
  /** Puts another pair in their place, each file at once. */
  replace(pair: KeyPair, keyMode?: number): Promise<void>;
  remove(): Promise<void>;
}

export async function writeTlsFiles(pair: KeyPair, clientCa: string): Promise<TlsFiles> {
  const folder = await mkdtemp(join(tmpdir(), 'tls-'));
  const section = {
    certFile: join(folder, 'cert.pem'),
    keyFile: join(folder, 'key.pem'),
    clientCaFile: join(folder, 'clients.pem'),
  };
  const replace = async ({ cert, key }: KeyPair, keyMode = 0o600): Promise<void> => {
    const fresh = join(folder, 'fresh');
    for (const [file, content] of [
      [section.certFile, cert],
      [section.keyFile, key],
    ] as const) {
      await writeFile(fresh, content, { mode: file === section.keyFile ? keyMode : 0o644 });
      await rename(fresh, file);
    }
  };
  await replace(pair);
  await writeFile(section.clientCaFile, clientCa);
  return { section, replace, remove: () => rm(folder, { recursive: true }) };
}

/** A key and a certificate of itself, PEM, as openssl makes them. `passphrase`: the key is encrypted. */
export function makeClientCertificate(passphrase?: string): { key: string; certificate: string } {
  needPackages('openssl');
  const guard = passphrase === undefined ? ['-nodes'] : ['-passout', `pass:${passphrase}`];
  const curve = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256'];
  const text = execFileSync(
    'openssl',
    ['req', '-x509', ...curve, ...guard, '-subj', '/CN=digest-gateway', '-days', '1', '-keyout', '-'],
    { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] },
  );
  const start = text.indexOf('-----BEGIN CERTIFICATE-----');
  return { key: text.slice(0, start), certificate: text.slice(start) };
}
