import { KeyObject, webcrypto, X509Certificate } from 'node:crypto';
import { once } from 'node:events';
import { createServer, type Server } from 'node:https';
import type { AddressInfo } from 'node:net';
import { connect, type DetailedPeerCertificate } from 'node:tls';
import { afterEach, describe, expect, test } from '@jest/globals';
import { Cancellation } from '../../src/base/cancellation.ts';
import { monotonicClock } from '../../src/base/clock.ts';
import { Connections } from '../../src/transport/connections.ts';
import { pinOf, type TlsSeen } from '../../src/transport/upstream-tls.ts';
import { USUAL_TLS } from '../support/usual-tls.ts';

const algorithm = { name: 'ECDSA', namedCurve: 'P-256', hash: 'SHA-256' };

type Keys = webcrypto.CryptoKeyPair;

interface CertificateOrder {
  readonly subject: string;
  readonly publicKey: webcrypto.CryptoKey;
  /** The name and the key of who signs; they need not belong together. */
  readonly issuer: string;
  readonly signingKey: webcrypto.CryptoKey;
  /** It may vouch for others; else it is a server's, for 127.0.0.1. */
  readonly authority: boolean;
}

function makeKeys(): Promise<Keys> {
  return webcrypto.subtle.generateKey(algorithm, true, ['sign', 'verify']);
}

/** PEM. */
function keyText(key: webcrypto.CryptoKey): string {
  return KeyObject.from(key).export({ type: 'pkcs8', format: 'pem' }).toString();
}

/** PEM of a certificate that is as true as the order is. */
async function makeCertificate(order: CertificateOrder): Promise<string> {
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

let server: Server | undefined;
afterEach(async () => {
  server?.closeAllConnections();
  server?.close();
  server = undefined;
});

/** Serves with this chain, each request on a connection of its own; resolves to its origin. */
async function serve(keys: Keys, chain: readonly string[]): Promise<string> {
  const started = createServer(
    { key: keyText(keys.privateKey), cert: chain.join('\n') },
    (_request, response) => response.setHeader('connection', 'close').end(),
  ).listen(0, '127.0.0.1');
  server = started;
  await once(started, 'listening');
  return `https://127.0.0.1:${(started.address() as AddressInfo).port}`;
}

/** The statuses of requests one after the other, or what is said instead; and what the last handshake showed. */
async function ask(
  origin: string,
  ca: string,
  pins: readonly string[],
  times = 1,
): Promise<{ outcomes: unknown[]; seen: TlsSeen | undefined }> {
  const connections = new Connections(
    {
      origin,
      connections: 1,
      timeouts: { connect: 5000, response: 5000, idle: 5000 },
      tls: { ...USUAL_TLS, ca, pins },
      egress: { localAddress: undefined, proxy: undefined },
    },
    monotonicClock,
  );
  const outcomes: unknown[] = [];
  for (let index = 0; index < times; index += 1) {
    const request = { client: '', cancellation: new Cancellation() };
    const message = { request, method: 'GET', target: '/', headers: [], body: null };
    const result = await connections.exchange(message);
    if (result.kind === 'response') await result.skip();
    outcomes.push(result.kind === 'response' ? result.status : result.error.code);
  }
  connections.close();
  return { outcomes, seen: connections.tlsSeen };
}

const pin = (certificate: string): string => pinOf(new X509Certificate(certificate));

describe('a server with an authority between it and the root', () => {
  async function threeLevels() {
    const [rootKeys, middleKeys, serverKeys] = await Promise.all([makeKeys(), makeKeys(), makeKeys()]);
    const root = await makeCertificate({
      subject: 'CN=Root',
      publicKey: rootKeys.publicKey,
      issuer: 'CN=Root',
      signingKey: rootKeys.privateKey,
      authority: true,
    });
    const middle = await makeCertificate({
      subject: 'CN=Middle',
      publicKey: middleKeys.publicKey,
      issuer: 'CN=Root',
      signingKey: rootKeys.privateKey,
      authority: true,
    });
    const own = await makeCertificate({
      subject: 'CN=Server',
      publicKey: serverKeys.publicKey,
      issuer: 'CN=Middle',
      signingKey: middleKeys.privateKey,
      authority: false,
    });
    return { root, middle, own, origin: await serve(serverKeys, [own, middle]) };
  }

  test('is known by any of the three keys, on every connection', async () => {
    const { root, middle, own, origin } = await threeLevels();
    for (const certificate of [root, middle, own]) {
      // The second connection would resume the session of the first, which knows one certificate only.
      expect((await ask(origin, root, [pin(certificate)], 3)).outcomes).toEqual([200, 200, 200]);
    }
    expect((await ask(origin, root, [`${'B'.repeat(43)}=`])).outcomes).toEqual(['upstream-tls']);
  });

  test('shows its protocol, issuer and expiry, which connections that resume the session leave as they are', async () => {
    const { root, own, origin } = await threeLevels();
    const { seen } = await ask(origin, root, [], 3);
    const expiresAt = Date.parse(new X509Certificate(own).validTo);
    expect(seen?.protocol).toBe('TLSv1.3');
    expect(seen?.chain).toEqual([
      { subject: 'CN=Server', issuer: 'CN=Middle', validFrom: expect.any(Number), expiresAt },
      expect.objectContaining({ subject: 'CN=Middle', issuer: 'CN=Root' }),
    ]);
  });
});

test('a pinned certificate that did not sign what is below it does not count, however it is linked', async () => {
  const [rootKeys, pinnedKeys, serverKeys] = await Promise.all([makeKeys(), makeKeys(), makeKeys()]);
  const order = { subject: 'CN=Root', publicKey: rootKeys.publicKey, authority: true };
  const root = await makeCertificate({ ...order, issuer: 'CN=Root', signingKey: rootKeys.privateKey });
  // The trusted root, as if the pinned authority had signed it. Anybody can make that.
  const forged = await makeCertificate({ ...order, issuer: 'CN=Pinned', signingKey: serverKeys.privateKey });
  const pinned = await makeCertificate({
    subject: 'CN=Pinned',
    publicKey: pinnedKeys.publicKey,
    issuer: 'CN=Pinned',
    signingKey: pinnedKeys.privateKey,
    authority: true,
  });
  const own = await makeCertificate({
    subject: 'CN=Server',
    publicKey: serverKeys.publicKey,
    issuer: 'CN=Root',
    signingKey: rootKeys.privateKey,
    authority: false,
  });
  const origin = await serve(serverKeys, [own, forged, pinned]);
  expect(await linkedNames(origin, root)).toContain('Pinned');
  expect((await ask(origin, root, [])).outcomes).toEqual([200]);
  expect((await ask(origin, root, [pin(pinned)])).outcomes).toEqual(['upstream-tls']);
});

/** The names in the chain as Node links it. */
async function linkedNames(origin: string, ca: string): Promise<string[]> {
  const socket = connect({ host: '127.0.0.1', port: Number(new URL(origin).port), ca });
  await once(socket, 'secureConnect');
  const names: string[] = [];
  let next: DetailedPeerCertificate | undefined = socket.getPeerCertificate(true);
  while (next !== undefined) {
    names.push(`${next.subject.CN}`);
    next = next.issuerCertificate === next ? undefined : next.issuerCertificate;
  }
  socket.destroy();
  return names;
}
