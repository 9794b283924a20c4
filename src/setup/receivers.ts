import type { OtlpReceiver } from '../audit/shipping/otlp.ts';
import type { ReceiverTls } from '../audit/shipping/receiver.ts';
import { isFieldValue } from '../base/raw-headers.ts';
import type { Secret } from '../base/secret.ts';
import type { Issue, Path } from '../config/issues.ts';
import type { Config } from '../config/schema.ts';
import type { SecretSource } from '../config/secret-source.ts';
import { issueOf, type SourceReader } from '../credentials/sources.ts';
import { CertificateIssue, readAuthority, readClientCertificate } from './tls-files.ts';

export type SinkSection = NonNullable<NonNullable<Config['audit']>['sinks']>[number];
type OtlpSection = NonNullable<SinkSection['otlp']>;
type TlsSection = OtlpSection['tls'];

/** Reads the certificates, keys and secrets of receivers, and collects the issues with them. */
export class ReceiverReading {
  readonly #reader: SourceReader;
  readonly #uid: number | undefined;
  readonly issues: Issue[] = [];

  /** `uid`: the user of this process; undefined: owners of files are not checked. */
  constructor(reader: SourceReader, uid: number | undefined) {
    this.#reader = reader;
    this.#uid = uid;
  }

  /** Header fields that cannot be read are left out. */
  async otlp(section: Pick<OtlpSection, keyof OtlpReceiver>, path: Path): Promise<OtlpReceiver> {
    const headers = new Map<string, Secret>();
    for (const [name, source] of Object.entries(section.headers)) {
      const at = [...path, 'headers', name];
      const value = await this.secret(source, at);
      if (value === undefined) continue;
      const isValid = isFieldValue(value.reveal());
      if (isValid) headers.set(name, value);
      else this.issues.push({ path: at, message: 'has a character that a header field cannot have' });
    }
    const tls = await this.tls(section.tls, [...path, 'tls']);
    return { endpoint: section.endpoint, headers, tls };
  }

  /** Undefined: it cannot be read. */
  async secret(source: SecretSource, path: Path): Promise<Secret | undefined> {
    try {
      return (await this.#reader.read(source)).secret;
    } catch (error) {
      this.#tell(path, error);
      return undefined;
    }
  }

  /** Files that cannot be read are left out. */
  async tls(section: TlsSection, path: Path): Promise<ReceiverTls> {
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
