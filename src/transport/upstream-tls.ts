import { hash, X509Certificate } from 'node:crypto';
import {
  checkServerIdentity,
  createSecureContext,
  type DetailedPeerCertificate,
  type PeerCertificate,
  type SecureContext,
  type TLSSocket,
} from 'node:tls';
import { GatewayError } from '../base/errors.ts';
import type { Secret } from '../base/secret.ts';

/** Client certificate for upstreams that request one. */
export interface ClientCertificate {
  /** PEM, the client's own first. */
  readonly chain: string;
  /** PEM, not encrypted. */
  readonly key: Secret;
}

/** TLS settings: how the upstream is verified, and the certificate that it gets. */
export interface UpstreamTls {
  /** PEM of the authorities to trust in place of the system's; undefined: the system's. */
  readonly ca: string | undefined;
  readonly minVersion: 'TLSv1.2' | 'TLSv1.3';
  /** The name that its certificate is for; undefined: the host of its origin. */
  readonly serverName: string | undefined;
  /** From `pinOf`; one of them must be in the certificate chain. Empty: any chain of the authorities will do. */
  readonly pins: readonly string[];
  readonly clientCertificate: ClientCertificate | undefined;
}

/** Observations of a full TLS handshake. */
export interface TlsSeen {
  /** For example `TLSv1.3`. */
  readonly protocol: string;
  /** The chain that was verified, as far as the upstream sent it, its own certificate first. */
  readonly chain: readonly [CertificateSeen, ...CertificateSeen[]];
}

export interface CertificateSeen {
  /** Distinguished names, one attribute a line. */
  readonly subject: string;
  readonly issuer: string;
  /** Unix milliseconds. */
  readonly validFrom: number;
  readonly expiresAt: number;
}

/** Maximum number of certificates that are kept of a chain, and of characters of a name. */
const LONGEST_CHAIN = 8;
const LONGEST_NAME = 500;

/** Names the rules by which an upstream is recognised: a nonce that came under others is not used under these. */
export function trustOf({ ca = '', minVersion, serverName = '', pins }: UpstreamTls): string {
  return hash('sha256', JSON.stringify([ca, minVersion, serverName, pins.toSorted()]));
}

/** Those without a key that are in use, by authorities and version. */
const contexts = new Map<string, WeakRef<SecureContext>>();

/**
 * Returns the context of the connections to an upstream. Each connection would parse the certificates again; upstreams
 * that are verified alike share one, since a file of all public authorities takes more than a MiB in each.
 */
export function secureContextFor({ ca, minVersion, clientCertificate }: UpstreamTls): SecureContext {
  const options = { minVersion, ...(ca !== undefined && { ca }) };
  if (clientCertificate !== undefined) {
    const { chain, key } = clientCertificate;
    return createSecureContext({ ...options, cert: chain, key: key.reveal() });
  }
  const name = `${minVersion} ${ca}`;
  const known = contexts.get(name)?.deref();
  if (known !== undefined) return known;
  for (const [other, context] of contexts) if (context.deref() === undefined) contexts.delete(other);
  const context = createSecureContext(options);
  contexts.set(name, new WeakRef(context));
  return context;
}

/**
 * Returns an error unless the alternative names of a certificate include the host. If a certificate has none, Node.js
 * takes the common name, which a client must not use (RFC 9110 §4.3.4).
 */
export function checkServerName(host: string, certificate: PeerCertificate): Error | undefined {
  return checkServerIdentity(host, { ...certificate, subject: { ...certificate.subject, CN: '' } });
}

/** Observations of a connection; undefined: it resumed the session of another one and showed no certificate. */
export function tlsSeenOn(socket: TLSSocket): TlsSeen | undefined {
  const certificate = socket.getPeerX509Certificate();
  const protocol = socket.getProtocol();
  if (certificate === undefined || protocol === null) return undefined;
  return { protocol, chain: chainFrom(certificate) };
}

/** The longest that sessions stand for a certificate, in milliseconds. */
export const MAX_SESSION_MS = 3_600_000;

/**
 * Milliseconds for which sessions may follow the full handshake of a connection. A server can renew a session without
 * end and without a certificate (RFC 8446 §4.6.1), so one that has expired, or was replaced, would never be noticed.
 */
export function sessionMs(socket: TLSSocket): number {
  const chain = tlsSeenOn(socket)?.chain ?? [];
  return Math.min(MAX_SESSION_MS, ...chain.map(({ expiresAt }) => expiresAt - Date.now()));
}

function chainFrom(certificate: X509Certificate): TlsSeen['chain'] {
  const chain: [CertificateSeen, ...CertificateSeen[]] = [seenOf(certificate)];
  let next = issuerOf(certificate);
  while (next !== undefined && chain.length < LONGEST_CHAIN) {
    chain.push(seenOf(next));
    next = issuerOf(next);
  }
  return chain;
}

function seenOf({ subject, issuer, validFromDate, validToDate }: X509Certificate): CertificateSeen {
  return {
    subject: subject.slice(0, LONGEST_NAME),
    issuer: issuer.slice(0, LONGEST_NAME),
    validFrom: validFromDate.getTime(),
    expiresAt: validToDate.getTime(),
  };
}

/** A root is its own issuer. */
function issuerOf({ subject, issuer, issuerCertificate }: X509Certificate): X509Certificate | undefined {
  return subject === issuer ? undefined : issuerCertificate;
}

/** Longer chains are rejected. */
const MAX_CHAIN = 16;

/** No key of the peer's chain is pinned. */
export class PinMissing extends GatewayError {
  constructor() {
    super(
      'upstream-tls',
      'The TLS connection to the upstream cannot be trusted: no key in its certificate chain is in tls.pinSha256. Ask its operator whether its key has changed and what the new pin is; if not, another server is answering in its place.',
      undefined,
      { proxyError: 'tls_certificate_error' },
    );
  }
}

/** Base64 of the SHA-256 of a certificate's SubjectPublicKeyInfo, as RFC 7469 §2.4 has it. */
export function pinOf(certificate: X509Certificate): string {
  return hash('sha256', certificate.publicKey.export({ type: 'spki', format: 'der' }), 'base64');
}

/** True if the certificate of the peer, or one that vouches for it, has one of these keys. */
export function showsPin(peer: DetailedPeerCertificate, pins: readonly string[]): boolean {
  try {
    return signedChain(peer).some((each) => pins.includes(pinOf(each)));
  } catch {
    // The peer sent a certificate with a kind of key that OpenSSL does not know.
    return false;
  }
}

/**
 * The certificates from the peer's own up, as far as each is signed by the next. Node links them by name only,
 * and the peer chooses what it sends: without the signatures anybody could append the pinned certificate.
 */
function signedChain(peer: DetailedPeerCertificate): X509Certificate[] {
  const chain: X509Certificate[] = [];
  let next: DetailedPeerCertificate | undefined = peer;
  while (next?.raw !== undefined && chain.length < MAX_CHAIN) {
    const certificate = new X509Certificate(next.raw);
    const below = chain.at(-1);
    if (below !== undefined && !below.verify(certificate.publicKey)) break;
    chain.push(certificate);
    // A root names itself as its issuer.
    next = next.issuerCertificate === next ? undefined : next.issuerCertificate;
  }
  return chain;
}

/** The name of the authority that a chain ends with; undefined: the only certificate issued itself. */
export function topAuthority(peer: DetailedPeerCertificate): string | undefined {
  const chain = signedChain(peer);
  const { subject = '', issuer = '' } = chain.at(-1) ?? {};
  const isAlone = chain.length === 1 && subject === issuer;
  return isAlone || issuer === '' ? undefined : nameOf(issuer);
}

/** A distinguished name on one line. */
export function nameOf(distinguished: string): string {
  return distinguished.slice(0, LONGEST_NAME).trimEnd().replaceAll('\n', ', ');
}

const DAY_MS = 86_400_000;
/** Remaining days of an upstream's certificate below which `doctor` and the console warn. */
const SOON_DAYS = 30;

export interface Expiry {
  /** Negative if it has expired. */
  readonly daysLeft: number;
  readonly isSoon: boolean;
  /** For example `expires 2026-12-01, 9 days left`. */
  readonly text: string;
}

/** Judges the expiry of a certificate; both times are Unix milliseconds. */
export function expiryOf(expiresAt: number, now: number): Expiry {
  const daysLeft = Math.floor((expiresAt - now) / DAY_MS);
  const date = new Date(expiresAt).toISOString().slice(0, 10);
  const left = `${daysLeft} day${daysLeft === 1 ? '' : 's'} left`;
  const text = daysLeft < 0 ? `expired on ${date}` : `expires ${date}, ${left}`;
  return { daysLeft, isSoon: daysLeft < SOON_DAYS, text };
}
