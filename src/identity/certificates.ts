import type { X509Certificate } from 'node:crypto';
import type { Socket } from 'node:net';
import { TLSSocket } from 'node:tls';
import { parseAddress } from '../base/network.ts';

/** What a client's certificate has to be; all that is given must hold. */
export interface CertificateRule {
  /** SHA-256 of the certificate, 64 hex digits in lower case; one of them. */
  readonly fingerprint256?: readonly string[] | undefined;
  /** Such as `CN=reporting, O=Example`, in any order; a comma within a value is written `\,`. */
  readonly subject?: string | undefined;
  /** One of its alternative names, such as `dns:reporting.internal`. */
  readonly san?: string | undefined;
}

/** A client's certificate, in the forms that rules are compared with. */
export interface ClientCertificate {
  readonly fingerprint256: string;
  readonly subject: string;
  readonly names: ReadonlySet<string>;
}

/** What a connection shows: nothing, a certificate that was not accepted and why, or one that was. */
export type Shown = ClientCertificate | { readonly refused: string } | undefined;

/** The certificate of a connection's other side. Only what an authority of listen.tls.clientCaFile signed counts. */
export function certificateOf(socket: Socket): Shown {
  if (!(socket instanceof TLSSocket)) return undefined;
  const certificate = socket.getPeerX509Certificate();
  if (certificate === undefined) return undefined;
  if (!socket.authorized) return { refused: String(socket.authorizationError) };
  return readCertificate(certificate);
}

export function readCertificate({
  fingerprint256,
  subject,
  subjectAltName,
}: Pick<X509Certificate, 'fingerprint256' | 'subject' | 'subjectAltName'>): ClientCertificate {
  return {
    fingerprint256: fingerprint256.replaceAll(':', '').toLowerCase(),
    // Absent when the certificate has names only.
    subject: sorted((subject ?? '').split('\n')),
    names: new Set(alternativeNames(subjectAltName ?? '')),
  };
}

/** @returns whether a certificate is what the rule says; made once, called for each connection */
export function certificateTest(rule: CertificateRule): (certificate: ClientCertificate) => boolean {
  const { fingerprint256 } = rule;
  const subject = rule.subject === undefined ? undefined : sorted(rule.subject.split(/(?<!\\),/));
  const san = rule.san === undefined ? undefined : normalName(...splitName(rule.san));
  return (certificate) =>
    (fingerprint256 === undefined || fingerprint256.includes(certificate.fingerprint256)) &&
    (subject === undefined || subject === certificate.subject) &&
    (san === undefined || certificate.names.has(san));
}

/** The marks of which a certificate has one if it may be what the rule says. */
export function marksOfRule({ fingerprint256, san, subject = '' }: CertificateRule): string[] {
  if (fingerprint256 !== undefined) return fingerprint256.map((fingerprint) => `fingerprint ${fingerprint}`);
  if (san !== undefined) return [`name ${normalName(...splitName(san))}`];
  return [`subject ${sorted(subject.split(/(?<!\\),/))}`];
}

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

/** Node puts a value in quotes if it holds what could be taken for the start of another name. */
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
