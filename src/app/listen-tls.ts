import { isDeepStrictEqual } from 'node:util';
import { FileWatch } from '../base/file-watch.ts';
import type { Log } from '../base/log.ts';
import type { Listen } from '../config/listen.ts';
import type { ListenTls } from '../gateway/listener.ts';
import { listenTlsFiles, readListenTls } from '../setup/listen-tls.ts';

export interface ListenTlsDeps {
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
