import type { X509Certificate } from 'node:crypto';
import type { Socket } from 'node:net';
import { TLSSocket } from 'node:tls';
import { parseAddress } from '../base/network.ts';

/** Conditions on a client's certificate; all that are given must hold. */
export interface CertificateRule {
  /** SHA-256 fingerprints, 64 hex digits in lower case; one of them must match. */
  readonly fingerprint256?: readonly string[] | undefined;
  /** Such as `CN=reporting, O=Example`, in any order; a comma within a value is written `\,`. */
  readonly subject?: string | undefined;
  /** One of its alternative names, such as `dns:reporting.internal`. */
  readonly san?: string | undefined;
}

/** A client's certificate, normalized for comparison with rules. */
export interface ClientCertificate {
  readonly fingerprint256: string;
  readonly subject: string;
  readonly names: ReadonlySet<string>;
}

/** The certificate of a connection: none, one that was not accepted with the reason, or an accepted one. */
export type Shown = ClientCertificate | { readonly refused: string } | undefined;

/**
 * Returns the peer's certificate. It is accepted only if an authority of listen.tls.clientCaFile signed it.
 */
export function certificateOf(socket: Socket): Shown {
  if (!(socket instanceof TLSSocket)) return undefined;
  const certificate = socket.getPeerX509Certificate();
  if (certificate === undefined) return undefined;
  if (!socket.authorized) return { refused: String(socket.authorizationError) };
  return readCertificate(certificate);
}

/** Normalizes a certificate of Node for comparison with rules. */
export function readCertificate({
  fingerprint256,
  subject,
  subjectAltName,
}: Pick<X509Certificate, 'fingerprint256' | 'subject' | 'subjectAltName'>): ClientCertificate {
  return {
    fingerprint256: fingerprint256.replaceAll(':', '').toLowerCase(),
    // Absent if the certificate has alternative names only.
    subject: sorted((subject ?? '').split('\n')),
    names: new Set(alternativeNames(subjectAltName ?? '')),
  };
}

/** Compiles a rule into a test, which is called for each connection. */
export function certificateTest(rule: CertificateRule): (certificate: ClientCertificate) => boolean {
  const { fingerprint256 } = rule;
  const subject = rule.subject === undefined ? undefined : sorted(rule.subject.split(/(?<!\\),/));
  const san = rule.san === undefined ? undefined : normalName(...splitName(rule.san));
  return (certificate) =>
    (fingerprint256 === undefined || fingerprint256.includes(certificate.fingerprint256)) &&
    (subject === undefined || subject === certificate.subject) &&
    (san === undefined || certificate.names.has(san));
}

/** Returns index keys for a rule. A certificate that matches the rule has at least one of them. */
export function marksOfRule({ fingerprint256, san, subject = '' }: CertificateRule): string[] {
  if (fingerprint256 !== undefined) return fingerprint256.map((fingerprint) => `fingerprint ${fingerprint}`);
  if (san !== undefined) return [`name ${normalName(...splitName(san))}`];
  return [`subject ${sorted(subject.split(/(?<!\\),/))}`];
}

/** Yields the index keys of a certificate; see `marksOfRule`. */
export function* marksOfCertificate({
  fingerprint256,
  subject,
  names,
}: ClientCertificate): Generator<string> {
  yield `fingerprint ${fingerprint256}`;
  yield `subject ${subject}`;
  for (const name of names) yield `name ${name}`;
}

function sorted(attributes: readonly string[]): string {
  return attributes
    .map((attribute) => attribute.trim())
    .toSorted()
    .join('\n');
}

/** Node quotes a value that contains characters which could start another name. */
const NAME = /(?:^|, )([A-Za-z ]+):("(?:[^"\\]|\\.)*"|[^",]*)/gy;

function* alternativeNames(text: string): Generator<string> {
  for (const [, kind = '', value = ''] of text.matchAll(NAME)) {
    yield normalName(kind, value.startsWith('"') ? String(JSON.parse(value)) : value);
  }
}

function splitName(name: string): [kind: string, value: string] {
  const colon = name.indexOf(':');
  return [name.slice(0, colon), name.slice(colon + 1)];
}

function normalName(kind: string, value: string): string {
  const lower = kind.toLowerCase();
  if (lower === 'ip' || lower === 'ip address') return `ip:${parseAddress(value)?.toString() ?? value}`;
  return `${lower}:${lower === 'dns' ? value.toLowerCase() : value}`;
}
