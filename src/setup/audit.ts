import { availableParallelism, hostname } from 'node:os';
import { join } from 'node:path';
import { isNativeError } from 'node:util/types';
import type { AuditOptions } from '../audit/audit.ts';
import { signingKey, witnessKey } from '../audit/checkpoint.ts';
import { auditKeys } from '../audit/keys.ts';
import { replicaOf } from '../audit/replica-name.ts';
import { loadKeys } from '../audit/segments/pseudonym-files.ts';
import { folderIssue } from '../audit/segments/replica-folder.ts';
import type { OtlpReceiver } from '../audit/shipping/otlp.ts';
import type { SinkOptions } from '../audit/shipping/sink-set.ts';
import type { RedisSinkOptions } from '../audit/shipping/streamed-log.ts';
import { errorCode, messageOf } from '../base/error-code.ts';
import { shellWord } from '../base/printable.ts';
import { isFieldValue } from '../base/raw-headers.ts';
import type { Secret } from '../base/secret.ts';
import type { Path } from '../config/issues.ts';
import type { Config } from '../config/schema.ts';
import type { SecretSource } from '../config/secret-source.ts';
import type { SourceReader } from '../credentials/sources.ts';
import type { RedisOptions } from '../redis/connection.ts';
import type { ContentReading } from './content.ts';

const TIMEOUT_MS = 10_000;
/** A segment can have hundreds of megabytes. */
const UPLOAD_TIMEOUT_MS = 300_000;

/** The name of the witness among the sinks. */
const WITNESS = 'witness';
/** The name of the time stamps among the sinks. */
const TIMESTAMPS = 'timestamps';

type AuditSection = NonNullable<Config['audit']>;
type WitnessSection = NonNullable<AuditSection['witness']>;
type TimestampsSection = NonNullable<AuditSection['timestamps']>;
type SinkSection = NonNullable<AuditSection['sinks']>[number];

/** Whether a gateway is to start with a setup, or to go on with it. */
export type Occasion = 'start' | 'reload';

/**
 * Makes the options of the audit log from its section, and checks that its folder can be used. Undefined without a
 * section, or if its key cannot be read.
 */
export async function readAudit(
  { audit: section, workers }: Pick<Config, 'audit' | 'workers'>,
  reading: ContentReading,
  occasion: Occasion,
): Promise<AuditOptions | undefined> {
  if (section === undefined) return undefined;
  const { keyFile, signingKeyFile, witness, timestamps, ...others } = section;
  const { replica = replicaName(), sinks = [], ...options } = others;
  const folder = join(options.directory, replica);
  const issue = await folderIssue(folder);
  if (issue !== undefined) {
    reading.issues.push({ path: ['audit', 'directory'], message: `${folder} ${issue}` });
  }
  if (options.pseudonyms !== undefined) {
    const { keysDirectory } = options.pseudonyms;
    const keysFolder = join(keysDirectory, replica);
    const keysIssue = await folderIssue(keysFolder);
    // A process that runs has its keys: a damaged one of a month long ago must not keep new passwords from it.
    const unread = keysIssue === undefined && occasion === 'start' ? processesOf(replica, workers) : [];
    const keysIssues = [
      ...(keysIssue === undefined ? [] : [`${keysFolder} ${keysIssue}`]),
      ...(await keysIssuesOf(unread.map((name) => join(keysDirectory, name)))),
    ];
    const path = ['audit', 'pseudonyms', 'keysDirectory'];
    reading.issues.push(...keysIssues.map((message) => ({ path, message })));
  }
  const key = await reading.value(['audit', 'keyFile'], (reader) => readAuditKey(keyFile, reader));
  const signing =
    signingKeyFile &&
    (await reading.value(['audit', 'signingKeyFile'], (reader) => readSigningKey(signingKeyFile, reader)));
  // Without the key that is configured, the log must not go on unsigned.
  if (signingKeyFile !== undefined && signing === undefined) return undefined;
  return (
    key && {
      ...options,
      replica,
      key,
      ...(signing && { signingKey: signing }),
      sinks: [
        ...sinks.map(({ name }) => name),
        ...(witness === undefined ? [] : [WITNESS]),
        ...(timestamps === undefined ? [] : [TIMESTAMPS]),
      ],
    }
  );
}

/** The names of the processes of a gateway, each of which has pseudonym keys of its own. */
function processesOf(replica: string, workers: Config['workers']): string[] {
  if (workers === 1) return [replica];
  const length = workers === 'auto' ? availableParallelism() : workers;
  return [replica, ...Array.from({ length }, (_, index) => replicaOf(replica, index + 1))];
}

/** What would keep processes from their pseudonym keys at their start; a folder that is not there yet would not. */
async function keysIssuesOf(folders: readonly string[]): Promise<string[]> {
  const issues: string[] = [];
  for (const folder of folders) {
    try {
      await loadKeys(folder);
    } catch (error) {
      if (errorCode(error) !== 'ENOENT') issues.push(`${folder} cannot be used: ${messageOf(error)}`);
    }
  }
  return issues;
}

/**
 * Reads the key of the seals.
 * @throws Error if it cannot be read or contains no key; the message never quotes it
 */
export function readAuditKey(file: string, reader: SourceReader): Promise<Secret> {
  return readKey(file, reader, auditKeys, `(umask 077; openssl rand -hex 32 > ${shellWord(file)})`);
}

/**
 * Reads the key of signed heads.
 * @throws Error if it cannot be read or contains no key; the message never quotes it
 */
export function readSigningKey(file: string, reader: SourceReader): Promise<Secret> {
  return readKey(file, reader, signingKey, `digest-gateway audit key new --out ${shellWord(file)}`);
}

/** `parse` throws for a text that is not a key; `command` makes one. */
async function readKey(
  file: string,
  reader: SourceReader,
  parse: (secret: Secret) => unknown,
  command: string,
): Promise<Secret> {
  // For this user alone: a key that others can read is refused.
  const { secret } = await reader.read({ file, readableByOthers: 'never' }).catch((error) => {
    const isMissing = isNativeError(error) && errorCode(error.cause) === 'ENOENT';
    throw isMissing ? new Error(`${file} does not exist: make it with ${command}`, { cause: error }) : error;
  });
  try {
    parse(secret);
  } catch (error) {
    // To make one in its place would destroy what it holds: another secret, or a damaged key that the log still needs.
    const remedy = `name the file of the key, or move this one away and make one with ${command}`;
    throw new Error(`${file} ${messageOf(error)}: ${remedy}`);
  }
  return secret;
}

/** The host name that Docker and Podman give a container: the beginning of its id. */
const CONTAINER_ID = /^[0-9a-f]{12}$/;

/**
 * The name of a gateway without `audit.replica`: the host name, in the characters of a folder name. Each new container
 * would have another one and begin another log, so in a container without a name it is `gateway`.
 */
export function replicaName(host = hostname()): string {
  const name = host
    .replace(/[^\w.-]/g, '-')
    .replace(/^[^A-Za-z0-9]+/, '')
    .slice(0, 64);
  return name === '' || CONTAINER_ID.test(name) ? 'gateway' : name;
}

/** Reads the certificates, keys and secrets of the audit sinks. Those that cannot be read are left out. */
export async function readAuditSinks(
  section: Pick<AuditSection, 'sinks' | 'witness' | 'timestamps' | 'durability'> | undefined,
  redis: RedisOptions | undefined,
  reading: ContentReading,
): Promise<readonly SinkOptions[]> {
  if (section === undefined) return [];
  const { sinks: sections = [], witness, timestamps, durability } = section;
  const stream = redis && { redis, sync: durability === 'fsync' };
  const sinks: SinkOptions[] = [];
  for (const [index, each] of sections.entries()) {
    const sink = await readSink(reading, each, stream, ['audit', 'sinks', index]);
    if (sink !== undefined) sinks.push(sink);
  }
  const own = [
    witness && (await readWitness(reading, witness)),
    timestamps && (await readTimestamps(reading, timestamps)),
  ];
  return [...sinks, ...own.filter((sink) => sink !== undefined)];
}

/** Undefined: its authorities cannot be read. */
async function readTimestamps(
  reading: ContentReading,
  { url, caFile, policy, every, timeout, tls: section }: TimestampsSection,
): Promise<SinkOptions | undefined> {
  const path = ['audit', 'timestamps'];
  const tls = await reading.tls(section, [...path, 'tls']);
  const authorities = await reading.authority(caFile, path);
  if (authorities === undefined) return undefined;
  return { kind: 'timestamps', name: TIMESTAMPS, url, authorities, policy, every, timeout, tls };
}

/** Undefined: its public key is none. */
async function readWitness(
  reading: ContentReading,
  { url, publicKey, every, timeout, tls: section }: WitnessSection,
): Promise<SinkOptions | undefined> {
  const path = ['audit', 'witness'];
  const tls = await reading.tls(section, [...path, 'tls']);
  try {
    witnessKey(publicKey);
  } catch (error) {
    reading.issues.push({ path: [...path, 'publicKey'], message: messageOf(error) });
    return undefined;
  }
  return { kind: 'witness', name: WITNESS, url: url.replace(/\/$/, ''), publicKey, every, timeout, tls };
}

/** Undefined: a secret of it, or `stream`, cannot be read. */
async function readSink(
  reading: ContentReading,
  { name, timeout, redis, syslog, s3, otlp }: SinkSection,
  stream: Pick<RedisSinkOptions, 'redis' | 'sync'> | undefined,
  path: Path,
): Promise<SinkOptions | undefined> {
  if (redis !== undefined) {
    return stream && { kind: 'redis', name, timeout: timeout ?? TIMEOUT_MS, ...redis, ...stream };
  }
  if (syslog !== undefined) {
    const tls = syslog.tls === false ? undefined : await reading.tls(syslog.tls, [...path, 'syslog', 'tls']);
    return { kind: 'syslog', name, timeout: timeout ?? TIMEOUT_MS, ...syslog, tls };
  }
  if (otlp !== undefined) {
    const receiver = await readOtlp(reading, otlp, [...path, 'otlp']);
    return { kind: 'otlp', name, timeout: timeout ?? TIMEOUT_MS, ...receiver };
  }
  const common = { name, timeout: timeout ?? UPLOAD_TIMEOUT_MS };
  return s3 && readS3(reading, common, s3, [...path, 's3']);
}

async function readS3(
  reading: ContentReading,
  common: { readonly name: string; readonly timeout: number },
  section: NonNullable<SinkSection['s3']>,
  path: Path,
): Promise<SinkOptions | undefined> {
  const { region, endpoint = `https://s3.${region}.amazonaws.com`, prefix = '', lock } = section;
  const accessKeyId = await readFieldValue(reading, section.accessKeyId, [...path, 'accessKeyId']);
  const secretAccessKey = await reading.secret(section.secretAccessKey, [...path, 'secretAccessKey']);
  const sessionToken = await readFieldValue(reading, section.sessionToken, [...path, 'sessionToken']);
  const tls = await reading.tls(section.tls, [...path, 'tls']);
  if (accessKeyId === undefined || secretAccessKey === undefined) return undefined;
  const secrets = { accessKeyId, secretAccessKey, sessionToken };
  return { kind: 's3', ...common, ...section, endpoint, prefix, ...secrets, lock: lock || undefined, tls };
}

/** Header fields that cannot be read are left out. */
async function readOtlp(
  reading: ContentReading,
  section: NonNullable<SinkSection['otlp']>,
  path: Path,
): Promise<OtlpReceiver> {
  const headers = new Map<string, Secret>();
  for (const [name, source] of Object.entries(section.headers)) {
    const value = await readFieldValue(reading, source, [...path, 'headers', name]);
    if (value !== undefined) headers.set(name, value);
  }
  const tls = await reading.tls(section.tls, [...path, 'tls']);
  return { endpoint: section.endpoint, headers, tls };
}

/** Undefined: there is no source, it cannot be read, or no header field can have its value. */
async function readFieldValue(
  reading: ContentReading,
  source: SecretSource | undefined,
  path: Path,
): Promise<Secret | undefined> {
  const value = await reading.secret(source, path);
  if (value === undefined || isFieldValue(value.reveal())) return value;
  reading.issues.push({ path, message: 'has a character that a header field cannot have' });
  return undefined;
}
