import { createPrivateKey, type KeyObject, type X509Certificate } from 'node:crypto';
import { createSecureContext } from 'node:tls';
import { isDeepStrictEqual } from 'node:util';
import { isNativeError } from 'node:util/types';
import { messageOf } from '../base/error-code.ts';
import { FileWatch } from '../base/file-watch.ts';
import { CERTIFICATES, type PemFile, type PemForm, type PemGuard, readPem } from '../base/guarded-file.ts';
import type { Log } from '../base/log.ts';
import { formatPath, type Issue, type Path } from '../config/issues.ts';
import { type Listen, listenerPath, writtenPath } from '../config/listen.ts';
import type { ListenTls } from '../gateway/listener.ts';
import { type RevocationList, readCertificate, readRevocationList } from '../identity/certificates.ts';

interface ListenTlsResult {
  /** Undefined without a section, or if there are issues. */
  readonly tls: ListenTls | undefined;
  readonly issues: readonly Issue[];
  /** Issues that do not prevent the use of the files. */
  readonly warnings: readonly Issue[];
}

type FileKey = 'certFile' | 'keyFile' | 'clientCaFile' | 'crlFile';

/** Returns the files that `tls` of a listener names. */
function listenTlsFiles(section: Listen['tls']): string[] {
  const { certFile, keyFile, clientCaFile, crlFile } = section ?? {};
  return [certFile, keyFile?.file, clientCaFile, crlFile].filter((file) => file !== undefined);
}

/**
 * Reads certificate, key, client authority and revocation lists of listener `index`, and checks that certificate and key
 * belong together, and that each authority has a list. `uid` is the user of this process; without one, owners of files
 * are not checked. Never rejects: what is wrong with a file is an issue.
 */
export async function readListenTls(
  section: Listen['tls'],
  index: number,
  uid: number | undefined,
): Promise<ListenTlsResult> {
  if (section === undefined) return { tls: undefined, issues: [], warnings: [] };
  const { certFile, keyFile, clientCaFile, crlFile } = section;
  const pathOf = (key: FileKey): Path => ['listen', index, 'tls', key];
  const issues: Issue[] = [];
  const readPart = async <T>(
    key: FileKey,
    form: PemForm<T>,
    file: string | undefined,
    guard: PemGuard = { uid, readableByOthers: true },
  ): Promise<PemFile<T> | undefined> => {
    if (file === undefined) return undefined;
    try {
      return await readPem(file, form, guard);
    } catch (error) {
      issues.push({ path: pathOf(key), message: messageOf(error) });
      return undefined;
    }
  };
  const [cert, key, clientCa, crl] = await Promise.all([
    readPart('certFile', CERTIFICATES, certFile),
    readPart('keyFile', PRIVATE_KEY, keyFile.file, { ...keyFile, uid }),
    readPart('clientCaFile', CERTIFICATES, clientCaFile),
    readPart('crlFile', REVOCATION_LISTS, crlFile),
  ]);
  if (cert === undefined || key === undefined || issues.length > 0) {
    return { tls: undefined, issues, warnings: [] };
  }
  const mismatch = pairIssue(cert.text, cert.value, key.text, key.value);
  if (mismatch !== undefined) {
    return { tls: undefined, issues: [{ path: pathOf('keyFile'), message: mismatch }], warnings: [] };
  }
  const lacking = crl === undefined ? undefined : unlistedAuthority(clientCa?.value ?? [], crl.value);
  if (lacking !== undefined) {
    const message = `has no list of ${lacking}, all of whose certificates would be refused: add it`;
    return { tls: undefined, issues: [{ path: pathOf('crlFile'), message }], warnings: [] };
  }
  const [{ validFromDate, validToDate }] = cert.value;
  const crlExpires = firstEnd(crl?.value ?? []);
  const tls = {
    cert: cert.text,
    key: key.text,
    clientCa: clientCa?.text,
    crl: crl?.value.map(({ pem }) => pem),
    crlExpires: crlExpires === undefined ? 0 : crlExpires / 1000,
    minVersion: section.minVersion,
    validFrom: validFromDate.getTime() / 1000,
    expires: validToDate.getTime() / 1000,
  };
  const warnings: Issue[] = [];
  if (validToDate.getTime() <= Date.now()) {
    const message = `expired at ${validToDate.toISOString()}: replace it`;
    warnings.push({ path: pathOf('certFile'), message });
  }
  if (validFromDate.getTime() > Date.now()) {
    const message = `is not valid before ${validFromDate.toISOString()}: replace it, or check the clock of this host`;
    warnings.push({ path: pathOf('certFile'), message });
  }
  if (crlExpires !== undefined && crlExpires <= Date.now()) {
    const message = `has a list that expired at ${new Date(crlExpires).toISOString()}, so that all certificates of its authority are refused: replace it`;
    warnings.push({ path: pathOf('crlFile'), message });
  }
  return { tls, issues, warnings };
}

const REVOCATION_LISTS = [listsIn, 'holds no list of revoked certificates'] as const;
const PRIVATE_KEY = [privateKeyIn, 'holds no private key without passphrase'] as const;

interface PemList extends RevocationList {
  readonly pem: string;
}

/** Parses the lists of revoked certificates in a PEM text; undefined if there is none, or an invalid one. */
function listsIn(text: string): [PemList, ...PemList[]] | undefined {
  const blocks = text.matchAll(/-----BEGIN X509 CRL-----([^-]+)-----END X509 CRL-----/g);
  try {
    const [first, ...others] = Array.from(blocks, ([pem, base64 = '']) => {
      // OpenSSL, which is to use the list, must be able to read it.
      createSecureContext({ crl: pem });
      return { pem, ...readRevocationList(Buffer.from(base64, 'base64')) };
    });
    return first === undefined ? undefined : [first, ...others];
  } catch {
    return undefined;
  }
}

/** Returns the first authority without a list: OpenSSL refuses all of its certificates. */
function unlistedAuthority(
  authorities: readonly X509Certificate[],
  lists: readonly PemList[],
): string | undefined {
  const issuers = new Set(lists.map(({ issuer }) => issuer));
  const isListed = (authority: X509Certificate): boolean => {
    const read = readCertificate(authority);
    return 'subject' in read && issuers.has(read.subject);
  };
  return authorities.find((authority) => !isListed(authority))?.subject.replaceAll('\n', ', ');
}

/** Returns when the first list expires, in Unix milliseconds; undefined: none does. */
function firstEnd(lists: readonly PemList[]): number | undefined {
  const ends = lists.flatMap(({ nextUpdate }) => nextUpdate ?? []);
  return ends.length === 0 ? undefined : Math.min(...ends);
}

function privateKeyIn(text: string): KeyObject | undefined {
  try {
    return createPrivateKey(text);
  } catch {
    return undefined;
  }
}

function pairIssue(
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
    // For example, a key that is too short for this OpenSSL.
    return `cannot be used: ${isNativeError(error) ? error.message : 'for an unknown reason'}; name another pair`;
  }
}

interface ListenTlsDeps {
  readonly log: Log;
  /** The user of this process; undefined: owners of files are not checked. */
  readonly uid: number | undefined;
  /** Replaces the certificate of a listener. */
  readonly renew: (listener: number, tls: ListenTls) => void;
}

/**
 * Replaces the certificate of a listener when its files change. `known`: the certificate that was read last.
 */
export function watchListenTls(
  listeners: readonly Pick<Listen, 'tls'>[],
  index: number,
  known: ListenTls | undefined,
  { log, uid, renew }: ListenTlsDeps,
): FileWatch {
  const section = listeners[index]?.tls;
  const name = formatPath([...listenerPath(listeners, index), 'tls']);
  let current = known;
  let lastReason = '';
  return new FileWatch(listenTlsFiles(section), async () => {
    const { tls, issues, warnings } = await readListenTls(section, index, uid);
    if (tls === undefined) {
      // Certificate and key are two files; between their changes they do not match.
      const reason = issues.map(({ message }) => message).join('; ');
      const msg = `changed files of ${name} cannot be used; keeping the current certificate`;
      if (reason !== lastReason) log.warn({ reason }, msg);
      lastReason = reason;
      return false;
    }
    lastReason = '';
    if (isDeepStrictEqual(tls, current)) return true;
    current = tls;
    renew(index, tls);
    const expires = new Date(tls.expires * 1000);
    log.info({ expires, files: name }, 'certificate of a listener replaced');
    for (const { path, message } of warnings) {
      log.warn(`${formatPath(writtenPath(path, listeners.length > 1))}: ${message}`);
    }
    return true;
  });
}
