import { createPrivateKey, type KeyObject, type X509Certificate } from 'node:crypto';
import { createSecureContext } from 'node:tls';
import { isDeepStrictEqual } from 'node:util';
import { isNativeError } from 'node:util/types';
import { FileWatch } from '../base/file-watch.ts';
import { certificatesIn, type PemGuard, readPem } from '../base/guarded-file.ts';
import type { Log } from '../base/log.ts';
import type { Issue } from '../config/issues.ts';
import type { Listen } from '../config/listen.ts';
import type { ListenTls } from '../gateway/listener.ts';

interface ListenTlsResult {
  /** Undefined without a section, or if there are issues. */
  readonly tls: ListenTls | undefined;
  readonly issues: readonly Issue[];
  /** Issues that do not prevent the use of the files. */
  readonly warnings: readonly Issue[];
}

type FileKey = 'certFile' | 'keyFile' | 'clientCaFile';

/** Returns the files that `listen.tls` names. */
function listenTlsFiles(section: Listen['tls']): string[] {
  const { certFile, keyFile, clientCaFile } = section ?? {};
  return [certFile, keyFile?.file, clientCaFile].filter((file) => file !== undefined);
}

/**
 * Reads certificate, key and client authority of the data plane, and checks that certificate and key belong
 * together. `uid` is the user of this process; without one, owners of files are not checked. Never rejects:
 * what is wrong with a file is an issue.
 */
export async function readListenTls(
  section: Listen['tls'],
  uid: number | undefined,
): Promise<ListenTlsResult> {
  if (section === undefined) return { tls: undefined, issues: [], warnings: [] };
  const { certFile, keyFile, clientCaFile } = section;
  const issues: Issue[] = [];
  const [cert, key, clientCa] = await Promise.all([
    readPart('certFile', { file: certFile, uid, readableByOthers: true, ...CERTIFICATES }, issues),
    readPart('keyFile', { ...keyFile, uid, ...PRIVATE_KEY }, issues),
    clientCaFile === undefined
      ? undefined
      : readPart(
          'clientCaFile',
          { file: clientCaFile, uid, readableByOthers: true, ...CERTIFICATES },
          issues,
        ),
  ]);
  if (cert === undefined || key === undefined || issues.length > 0) {
    return { tls: undefined, issues, warnings: [] };
  }
  const mismatch = pairIssue(cert.text, cert.value, key.text, key.value);
  if (mismatch !== undefined) {
    return { tls: undefined, issues: [{ path: pathOf('keyFile'), message: mismatch }], warnings: [] };
  }
  const [{ validToDate }] = cert.value;
  const tls = {
    cert: cert.text,
    key: key.text,
    clientCa: clientCa?.text,
    minVersion: section.minVersion,
    expires: validToDate.getTime() / 1000,
  };
  return { tls, issues, warnings: expiryWarnings(validToDate) };
}

interface Part<T> {
  readonly text: string;
  readonly value: T;
}

interface Wanted<T> extends PemGuard {
  readonly file: string;
  readonly parse: (text: string) => T | undefined;
  /** Error message for a text that cannot be parsed. */
  readonly wrong: string;
}

const CERTIFICATES = { parse: certificatesIn, wrong: 'holds no certificate' };
const PRIVATE_KEY = { parse: privateKeyIn, wrong: 'holds no private key without passphrase' };

async function readPart<T>(
  key: FileKey,
  { file, parse, wrong, ...guard }: Wanted<T>,
  issues: Issue[],
): Promise<Part<T> | undefined> {
  try {
    const text = await readPem(file, guard);
    const value = parse(text);
    if (value !== undefined) return { text, value };
    throw new Error(`${file} ${wrong}: name a readable file in PEM form`);
  } catch (error) {
    issues.push({ path: pathOf(key), message: isNativeError(error) ? error.message : 'cannot be read' });
    return undefined;
  }
}

function pathOf(key: FileKey): string[] {
  return ['listen', 'tls', key];
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

function expiryWarnings(validTo: Date): Issue[] {
  if (validTo.getTime() > Date.now()) return [];
  return [{ path: pathOf('certFile'), message: `expired at ${validTo.toISOString()}: replace it` }];
}

interface ListenTlsDeps {
  readonly log: Log;
  /** The user of this process; undefined: owners of files are not checked. */
  readonly uid: number | undefined;
  /** Replaces the certificate of the data plane. */
  readonly renew: (tls: ListenTls) => void;
}

/**
 * Replaces the data plane's certificate when its files change. `known`: the certificate that was read last.
 */
export function watchListenTls(
  section: Listen['tls'],
  known: ListenTls | undefined,
  { log, uid, renew }: ListenTlsDeps,
): FileWatch {
  let current = known;
  let lastReason = '';
  return new FileWatch(listenTlsFiles(section), async () => {
    const { tls, issues } = await readListenTls(section, uid);
    if (tls === undefined) {
      // Certificate and key are two files; between their changes they do not match.
      const reason = issues.map(({ message }) => message).join('; ');
      const msg = 'changed files of listen.tls cannot be used; keeping the current certificate';
      if (reason !== lastReason) log.warn({ reason }, msg);
      lastReason = reason;
      return false;
    }
    lastReason = '';
    if (isDeepStrictEqual(tls, current)) return true;
    current = tls;
    renew(tls);
    log.info({ expires: new Date(tls.expires * 1000) }, 'certificate of the data plane replaced');
    return true;
  });
}
