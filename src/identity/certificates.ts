import type { X509Certificate } from 'node:crypto';
import { createRequire } from 'node:module';
import type { Socket } from 'node:net';
import { type DetailedPeerCertificate, type PeerCertificate, TLSSocket } from 'node:tls';
import type { GeneralName, Name } from '@peculiar/asn1-x509';
import { type Attribute, keyOf, parseName } from '../base/distinguished-name.ts';
import { parseAddress } from '../base/network.ts';

const require = createRequire(import.meta.url);

/** Conditions on a client's certificate; all that are given must hold. */
export interface CertificateRule {
  /** SHA-256 fingerprints, 64 hex digits in lower case; one of them must match. */
  readonly fingerprint256?: readonly string[] | undefined;
  /** Such as `CN=reporting, O=Example`, in any order; a comma within a value is written `\,`. */
  readonly subject?: string | undefined;
  /** One of its alternative names, such as `dns:reporting.internal`. */
  readonly san?: string | undefined;
}

/** A client's certificate, in a form that is compared with rules. */
export interface ClientCertificate {
  /** 64 hex digits in lower case. */
  readonly fingerprint256: string;
  /** The `nameKey` of the subject. */
  readonly subject: string;
  /** Alternative names of the kinds that a rule can have, such as `dns:reporting.internal`. */
  readonly names: ReadonlySet<string>;
}

/** The certificate of a connection: none, one that was not accepted with the reason, or an accepted one. */
export type PresentedCertificate = ClientCertificate | { readonly refused: string } | undefined;

/**
 * Returns the peer's certificate. It is accepted only if an authority of listen.tls.clientCaFile signed it, it has not
 * ended at `now` (Unix milliseconds), and its names can be read.
 */
export function presentedCertificate(socket: Socket, now: number): PresentedCertificate {
  if (!(socket instanceof TLSSocket)) return undefined;
  if (!socket.authorized) {
    // A stranger's chain of hundreds of certificates would take 30 ms to read.
    const isPresented = socket.getPeerX509Certificate() !== undefined;
    return isPresented ? { refused: String(socket.authorizationError) } : undefined;
  }
  // Read first: in Node.js 24 the chain is empty after getPeerX509Certificate.
  const ends = certificateEnd(socket);
  const certificate = socket.getPeerX509Certificate();
  if (certificate === undefined) return undefined;
  // TLS verifies a certificate only when its connection opens.
  if (ends <= now) return { refused: 'CERT_HAS_EXPIRED' };
  return readCertificate(certificate);
}

/**
 * Returns when the first certificate of the peer's chain ends, that of the authority among them, in Unix milliseconds;
 * infinity without a certificate.
 */
export function certificateEnd(socket: Socket): number {
  let ends = Number.POSITIVE_INFINITY;
  if (!(socket instanceof TLSSocket)) return ends;
  for (const { valid_to } of chainOf(socket)) ends = Math.min(ends, Date.parse(valid_to));
  return ends;
}

function* chainOf(socket: TLSSocket): Generator<PeerCertificate> {
  let certificate: DetailedPeerCertificate | undefined = socket.getPeerCertificate(true);
  // Without a certificate the object is empty.
  while (certificate?.valid_to !== undefined) {
    yield certificate;
    const issuer: DetailedPeerCertificate = certificate.issuerCertificate;
    // A root is its own issuer.
    certificate = issuer === certificate ? undefined : issuer;
  }
}

/** Reads subject and alternative names from the DER of a certificate. Never throws. */
export function readCertificate({
  fingerprint256,
  raw,
}: Pick<X509Certificate, 'fingerprint256' | 'raw'>): ClientCertificate | { readonly refused: string } {
  try {
    return { fingerprint256: fingerprint256.replaceAll(':', '').toLowerCase(), ...namesIn(raw) };
  } catch {
    return { refused: 'its names cannot be read' };
  }
}

function namesIn(raw: Buffer): Pick<ClientCertificate, 'subject' | 'names'> {
  const { AsnConvert, Certificate, SubjectAlternativeName, id_ce_subjectAltName } = library();
  const { subject, extensions = [] } = AsnConvert.parse(raw, Certificate).tbsCertificate;
  const found = extensions.filter(({ extnID }) => extnID === id_ce_subjectAltName);
  // One at most (RFC 5280 §4.2). Readers disagree about which of several counts.
  if (found.length > 1) throw new RangeError('several extensions with alternative names');
  const names = found.flatMap(({ extnValue }) => [...AsnConvert.parse(extnValue, SubjectAlternativeName)]);
  return {
    subject: nameKey(subject),
    names: new Set(names.map(textOf).filter((name) => name !== undefined)),
  };
}

function textOf(name: GeneralName): string | undefined {
  const { dNSName, uniformResourceIdentifier, rfc822Name, iPAddress } = name;
  if (dNSName !== undefined) return normalName('dns', dNSName);
  if (uniformResourceIdentifier !== undefined) return normalName('uri', uniformResourceIdentifier);
  if (rfc822Name !== undefined) return normalName('email', rfc822Name);
  return iPAddress === undefined ? undefined : normalName('ip', iPAddress);
}

/**
 * Loads the reader of certificates with the first rule, because few gateways need its 16 MB of memory. It is
 * the lower layer of `@peculiar/x509`, which itself rejects a certificate with an alternative name of a kind
 * that it does not know, such as a Kerberos name.
 */
function library() {
  const { AsnConvert }: typeof import('@peculiar/asn1-schema') = require('@peculiar/asn1-schema');
  const x509: typeof import('@peculiar/asn1-x509') = require('@peculiar/asn1-x509');
  const { Certificate, CertificateList, SubjectAlternativeName, id_ce_subjectAltName } = x509;
  return { AsnConvert, Certificate, CertificateList, SubjectAlternativeName, id_ce_subjectAltName };
}

/** A list of revoked certificates (RFC 5280 §5). */
export interface RevocationList {
  /** The `nameKey` of the authority. */
  readonly issuer: string;
  /** When the next list is due, in Unix milliseconds; undefined: the list never expires. */
  readonly nextUpdate: number | undefined;
}

/** Reads a list of revoked certificates from its DER. @throws Error if it is none */
export function readRevocationList(der: Buffer): RevocationList {
  const { AsnConvert, CertificateList } = library();
  const { issuer, nextUpdate } = AsnConvert.parse(der, CertificateList).tbsCertList;
  return { issuer: nameKey(issuer), nextUpdate: nextUpdate?.getTime().getTime() };
}

/** Compiles a rule into a test, which is called for each connection. */
export function certificateTest(rule: CertificateRule): (certificate: ClientCertificate) => boolean {
  // Loads it now, so that no request waits for it.
  library();
  const { fingerprint256 } = rule;
  const subject = rule.subject === undefined ? undefined : subjectKey(rule.subject);
  const san = rule.san === undefined ? undefined : ruleName(rule.san);
  return (certificate) =>
    (fingerprint256 === undefined || fingerprint256.includes(certificate.fingerprint256)) &&
    (subject === undefined || subject === certificate.subject) &&
    (san === undefined || certificate.names.has(san));
}

/** Returns index keys for a rule. A certificate that matches the rule has at least one of them. */
export function indexKeysOfRule({ fingerprint256, san, subject = '' }: CertificateRule): string[] {
  if (fingerprint256 !== undefined) return fingerprint256.map((fingerprint) => `fingerprint ${fingerprint}`);
  return [san === undefined ? `subject ${subjectKey(subject)}` : `name ${ruleName(san)}`];
}

/** Yields the index keys of a certificate; see `indexKeysOfRule`. */
export function* indexKeysOfCertificate({
  fingerprint256,
  subject,
  names,
}: ClientCertificate): Generator<string> {
  yield `fingerprint ${fingerprint256}`;
  yield `subject ${subject}`;
  for (const name of names) yield `name ${name}`;
}

/** A subject that is not a name matches no certificate: a key of a certificate is never empty. */
function subjectKey(subject: string): string {
  return parseName(subject) ?? '';
}

function ruleName(name: string): string {
  const colon = name.indexOf(':');
  return normalName(name.slice(0, colon).toLowerCase(), name.slice(colon + 1));
}

function normalName(kind: string, value: string): string {
  if (kind === 'ip') return `ip:${parseAddress(value)?.toString() ?? value}`;
  return `${kind}:${kind === 'dns' ? value.toLowerCase() : value}`;
}

/** Returns the `keyOf` the attributes of a name, in whatever order and string type. */
function nameKey(name: Name): string {
  return keyOf(
    name.map((rdn) =>
      rdn.map(({ type, value }): Attribute => {
        const { anyValue } = value;
        return [type, anyValue === undefined ? `=${value}` : `#${Buffer.from(anyValue).toString('hex')}`];
      }),
    ),
  );
}
