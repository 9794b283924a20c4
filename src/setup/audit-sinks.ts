import type { SinkOptions } from '../audit/shipping/sink-set.ts';
import type { Issue, Path } from '../config/issues.ts';
import type { SourceReader } from '../credentials/sources.ts';
import { ReceiverReading, type SinkSection } from './receivers.ts';

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
  const reading = new ReceiverReading(reader, uid);
  const sinks: SinkOptions[] = [];
  for (const [index, section] of sections.entries()) {
    const sink = await readSink(reading, section, ['audit', 'sinks', index]);
    if (sink !== undefined) sinks.push(sink);
  }
  return { sinks, issues: reading.issues };
}

/** Undefined: a secret of it cannot be read. */
async function readSink(
  reading: ReceiverReading,
  { name, timeout, syslog, s3, otlp }: SinkSection,
  path: Path,
): Promise<SinkOptions | undefined> {
  if (syslog !== undefined) {
    const tls = syslog.tls === false ? undefined : await reading.tls(syslog.tls, [...path, 'syslog', 'tls']);
    return { kind: 'syslog', name, timeout: timeout ?? TIMEOUT_MS, ...syslog, tls };
  }
  if (otlp !== undefined) {
    const receiver = await reading.otlp(otlp, [...path, 'otlp']);
    return { kind: 'otlp', name, timeout: timeout ?? TIMEOUT_MS, ...receiver };
  }
  const common = { name, timeout: timeout ?? UPLOAD_TIMEOUT_MS };
  return s3 && readS3(reading, common, s3, [...path, 's3']);
}

async function readS3(
  reading: ReceiverReading,
  common: { readonly name: string; readonly timeout: number },
  section: NonNullable<SinkSection['s3']>,
  path: Path,
): Promise<SinkOptions | undefined> {
  const { region, endpoint = `https://s3.${region}.amazonaws.com`, prefix = '', lock } = section;
  const accessKeyId = await reading.secret(section.accessKeyId, [...path, 'accessKeyId']);
  const secretAccessKey = await reading.secret(section.secretAccessKey, [...path, 'secretAccessKey']);
  const sessionToken =
    section.sessionToken && (await reading.secret(section.sessionToken, [...path, 'sessionToken']));
  const tls = await reading.tls(section.tls, [...path, 'tls']);
  if (accessKeyId === undefined || secretAccessKey === undefined) return undefined;
  const secrets = { accessKeyId, secretAccessKey, sessionToken };
  return { kind: 's3', ...common, ...section, endpoint, prefix, ...secrets, lock: lock || undefined, tls };
}
