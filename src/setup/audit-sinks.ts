import type { SinkOptions, SinkTls } from '../audit/sinks/options.ts';
import type { Issue, Path } from '../config/issues.ts';
import type { Config } from '../config/schema.ts';
import { issueOf, type SourceReader } from '../credentials/sources.ts';
import { readAuthority } from './authorities.ts';
import { CertificateIssue, readClientCertificate } from './client-certificates.ts';

type SinkSection = NonNullable<NonNullable<Config['audit']>['sinks']>[number];
type TlsSection = Exclude<NonNullable<SinkSection['syslog']>['tls'], false>;

const TIMEOUT_MS = 10_000;

export interface AuditSinksSetup {
  readonly sinks: readonly SinkOptions[];
  readonly issues: readonly Issue[];
}

/** Reads the certificates, keys and secrets of the audit sinks. */
export async function readAuditSinks(
  sections: readonly SinkSection[],
  reader: SourceReader,
  uid: number | undefined,
): Promise<AuditSinksSetup> {
  const reading = new Reading(reader, uid);
  const sinks: SinkOptions[] = [];
  for (const [index, section] of sections.entries()) {
    const sink = await reading.sink(section, ['audit', 'sinks', index]);
    if (sink !== undefined) sinks.push(sink);
  }
  return { sinks, issues: reading.issues };
}

class Reading {
  readonly #reader: SourceReader;
  readonly #uid: number | undefined;
  readonly issues: Issue[] = [];

  constructor(reader: SourceReader, uid: number | undefined) {
    this.#reader = reader;
    this.#uid = uid;
  }

  async sink(
    { name, timeout = TIMEOUT_MS, syslog }: SinkSection,
    path: Path,
  ): Promise<SinkOptions | undefined> {
    if (syslog === undefined) return undefined;
    const tls = syslog.tls === false ? undefined : await this.#tls(syslog.tls, [...path, 'syslog', 'tls']);
    return { kind: 'syslog', name, timeout, ...syslog, tls };
  }

  async #tls(section: TlsSection, path: Path): Promise<SinkTls> {
    const ca = await readAuthority(section.caFile, this.#uid).catch((error) => {
      this.issues.push(issueOf([...path, 'caFile'].map(String), error));
      return undefined;
    });
    const client = await readClientCertificate(section, this.#reader, this.#uid).catch((error) => {
      if (!(error instanceof CertificateIssue)) throw error;
      this.issues.push(issueOf([...path, error.key].map(String), error.cause ?? error));
      return undefined;
    });
    return { ca, client };
  }
}
