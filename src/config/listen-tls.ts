import { createPrivateKey, type KeyObject, type X509Certificate } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { createSecureContext } from 'node:tls';
import { isNativeError } from 'node:util/types';
import { certificatesIn } from './authorities.ts';
import type { Finding } from './faults.ts';
import type { Listen } from './listen.ts';

/** What the data plane needs for TLS; texts are PEM. */
export interface ListenTls {
  readonly cert: string;
  readonly key: string;
  /** Who signs the certificates of clients; undefined: they are not asked for any. */
  readonly clientCa: string | undefined;
  readonly minVersion: 'TLSv1.2' | 'TLSv1.3';
  /** When the certificate expires, in seconds of Unix time. */
  readonly expires: number;
}

export interface ReadListenTls {
  /** undefined: without TLS, or there are findings. */
  readonly tls: ListenTls | undefined;
  readonly findings: readonly Finding[];
  /** What works, and should not stay as it is. */
  readonly warnings: readonly Finding[];
}

type Section = NonNullable<Listen['tls']>;
type FileKey = 'certFile' | 'keyFile' | 'clientCaFile';

/** The files that `listen.tls` names. */
export function listenTlsFiles(section: Listen['tls']): string[] {
  const { certFile, keyFile, clientCaFile } = section ?? {};
  return [certFile, keyFile, clientCaFile].filter((file) => file !== undefined);
}

/** Reads certificate, key and authority of the data plane, and sees whether they fit. */
export async function readListenTls(section: Listen['tls']): Promise<ReadListenTls> {
  if (section === undefined) return { tls: undefined, findings: [], warnings: [] };
  const findings: Finding[] = [];
  const [cert, key, clientCa] = await Promise.all([
    readPart(section, 'certFile', certificatesIn, 'holds no certificate', findings),
    readPart(section, 'keyFile', privateKeyIn, 'holds no private key without passphrase', findings),
    readPart(section, 'clientCaFile', certificatesIn, 'holds no certificate', findings),
  ]);
  if (cert === undefined || key === undefined || findings.length > 0) {
    return { tls: undefined, findings, warnings: [] };
  }
  const wrong = misfit(cert.text, cert.value, key.text, key.value);
  if (wrong !== undefined) {
    return { tls: undefined, findings: [{ path: placeOf('keyFile'), message: wrong }], warnings: [] };
  }
  const [{ validToDate }] = cert.value;
  const tls = {
    cert: cert.text,
    key: key.text,
    clientCa: clientCa?.text,
    minVersion: section.minVersion,
    expires: validToDate.getTime() / 1000,
  };
  return { tls, findings, warnings: expiry(validToDate) };
}

/** Whether somebody whose connection stands under `before` might not get one under `after`. */
export function trustsLess(before: ListenTls, after: ListenTls): boolean {
  if (before.minVersion < after.minVersion) return true;
  const kept = new Set(fingerprintsIn(after.clientCa));
  return fingerprintsIn(before.clientCa).some((fingerprint) => !kept.has(fingerprint));
}

function fingerprintsIn(pem: string | undefined): string[] {
  return (certificatesIn(pem ?? '') ?? []).map(({ fingerprint256 }) => fingerprint256);
}

interface Part<T> {
  readonly text: string;
  readonly value: T;
}

async function readPart<T>(
  section: Section,
  key: FileKey,
  parse: (text: string) => T | undefined,
  wrong: string,
  findings: Finding[],
): Promise<Part<T> | undefined> {
  const file = section[key];
  if (file === undefined) return undefined;
  const text = await readFile(file, 'latin1').catch(() => undefined);
  const value = text === undefined ? undefined : parse(text);
  if (text !== undefined && value !== undefined) return { text, value };
  const found = text === undefined ? 'cannot be read' : wrong;
  findings.push({ path: placeOf(key), message: `${file} ${found}: name a readable file in PEM form` });
  return undefined;
}

function placeOf(key: FileKey): string[] {
  return ['listen', 'tls', key];
}

function privateKeyIn(text: string): KeyObject | undefined {
  try {
    return createPrivateKey(text);
  } catch {
    return undefined;
  }
}

function misfit(
  cert: string,
  [leaf]: readonly [X509Certificate, ...X509Certificate[]],
  key: string,
  privateKey: KeyObject,
): string | undefined {
  if (!leaf.checkPrivateKey(privateKey)) {
    return 'is not the key of the first certificate in certFile: name a pair';
  }
  try {
    createSecureContext({ cert, key });
    return undefined;
  } catch (error) {
    // Such as a key that is too short for this OpenSSL.
    return `cannot be used: ${isNativeError(error) ? error.message : 'for an unknown reason'}; name another pair`;
  }
}

function expiry(validTo: Date): Finding[] {
  if (validTo.getTime() > Date.now()) return [];
  return [{ path: placeOf('certFile'), message: `expired at ${validTo.toISOString()}: replace it` }];
}
