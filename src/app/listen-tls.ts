import type { Log } from '../base/log.ts';
import { watchFiles } from '../config/file-watch.ts';
import type { Listen } from '../config/listen.ts';
import { type ListenTls, listenTlsFiles, readListenTls } from '../config/listen-tls.ts';

/** Between two looks at the files, in milliseconds. */
const LOOK_EVERY_MS = 1_000;

export interface ListenTlsExternals {
  readonly log: Log;
  /** The user of this process; without one, owners of files are not checked. */
  readonly uid: number | undefined;
  /** Uses another certificate from now on. */
  readonly renew: (tls: ListenTls) => void;
}

/** Takes over the data plane's certificate when its files change. Returns how to stop that. */
export function followListenTls(section: Listen['tls'], { log, uid, renew }: ListenTlsExternals): () => void {
  return watchFiles(listenTlsFiles(section), LOOK_EVERY_MS, async () => {
    const { tls, findings } = await readListenTls(section, uid);
    if (tls === undefined) {
      // Certificate and key are two files, so between their changes they do not fit: the next look sees.
      log.warn(
        { reason: findings.map(({ message }) => message).join('; ') },
        'changed files of listen.tls cannot be used; keeping the current certificate',
      );
      return;
    }
    renew(tls);
    log.info({ expires: new Date(tls.expires * 1000) }, 'certificate of the data plane replaced');
  });
}
