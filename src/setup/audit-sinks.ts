import type { SinkOptions, SinkTls } from '../audit/sinks/options.ts';
import { isFieldValue } from '../base/raw-headers.ts';
import type { Secret } from '../base/secret.ts';
import type { Issue, Path } from '../config/issues.ts';
import type { Config } from '../config/schema.ts';
import type { SecretSource } from '../config/secret-source.ts';
import { issueOf, type SourceReader } from '../credentials/sources.ts';
import { readAuthority } from './authorities.ts';
import { CertificateIssue, readClientCertificate } from './client-certificates.ts';

type SinkSection = NonNullable<NonNullable<Config['audit']>['sinks']>[number];
type TlsSection = Exclude<NonNullable<SinkSection['syslog']>['tls'], false>;

const TIMEOUT_MS = 10_000;
/** A segment can have hundreds of megabytes. */
const UPLOAD_TIMEOUT_MS = 300_000;

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

  /** Undefined: a secret of it cannot be read. */
  async sink({ name, timeout, syslog, s3, otlp }: SinkSection, path: Path): Promise<SinkOptions | undefined> {
    if (syslog !== undefined) {
      const tls = syslog.tls === false ? undefined : await this.#tls(syslog.tls, [...path, 'syslog', 'tls']);
      return { kind: 'syslog', name, timeout: timeout ?? TIMEOUT_MS, ...syslog, tls };
    }
    if (otlp !== undefined) {
      return this.#otlp({ name, timeout: timeout ?? TIMEOUT_MS }, otlp, [...path, 'otlp']);
    }
    return s3 && this.#s3({ name, timeout: timeout ?? UPLOAD_TIMEOUT_MS }, s3, [...path, 's3']);
  }

  async #s3(
    common: { readonly name: string; readonly timeout: number },
    section: NonNullable<SinkSection['s3']>,
    path: Path,
  ): Promise<SinkOptions | undefined> {
    const { region, endpoint = `https://s3.${region}.amazonaws.com`, prefix = '', lock } = section;
    const accessKeyId = await this.#secret(section.accessKeyId, [...path, 'accessKeyId']);
    const secretAccessKey = await this.#secret(section.secretAccessKey, [...path, 'secretAccessKey']);
    const sessionToken =
      section.sessionToken && (await this.#secret(section.sessionToken, [...path, 'sessionToken']));
    const tls = await this.#tls(section.tls, [...path, 'tls']);
    if (accessKeyId === undefined || secretAccessKey === undefined) return undefined;
    const secrets = { accessKeyId, secretAccessKey, sessionToken };
    return { kind: 's3', ...common, ...section, endpoint, prefix, ...secrets, lock: lock || undefined, tls };
  }

  async #otlp(
    common: { readonly name: string; readonly timeout: number },
    section: NonNullable<SinkSection['otlp']>,
    path: Path,
  ): Promise<SinkOptions> {
    const headers = new Map<string, Secret>();
    for (const [name, source] of Object.entries(section.headers)) {
      const at = [...path, 'headers', name];
      const value = await this.#secret(source, at);
      if (value === undefined) continue;
      const isValid = isFieldValue(value.reveal());
      if (isValid) headers.set(name, value);
      else this.issues.push({ path: at, message: 'has a character that a header field cannot have' });
    }
    const tls = await this.#tls(section.tls, [...path, 'tls']);
    return { kind: 'otlp', ...common, endpoint: section.endpoint, headers, tls };
  }

  async #secret(source: SecretSource, path: Path): Promise<Secret | undefined> {
    try {
      return (await this.#reader.read(source)).secret;
    } catch (error) {
      this.#tell(path, error);
      return undefined;
    }
  }

  async #tls(section: TlsSection, path: Path): Promise<SinkTls> {
    const ca = await readAuthority(section.caFile, this.#uid).catch((error) => {
      this.#tell([...path, 'caFile'], error);
      return undefined;
    });
    const client = await readClientCertificate(section, this.#reader, this.#uid).catch((error) => {
      if (!(error instanceof CertificateIssue)) throw error;
      this.#tell([...path, error.key], error.cause ?? error);
      return undefined;
    });
    return { ca, client };
  }

  #tell(path: Path, error: unknown): void {
    // An error of the sealed file has a path of its own.
    const issue = issueOf([], error);
    this.issues.push(issue.path.length === 0 ? { ...issue, path } : issue);
  }
}
