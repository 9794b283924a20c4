import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { access, constants, rm, stat, statfs, writeFile } from 'node:fs/promises';
import { connect } from 'node:net';
import { dirname, join } from 'node:path';
import type { AuditOptions } from '../audit/audit.ts';
import { LOCK } from '../audit/segments/replica-folder.ts';
import { foldersIn, segmentsIn } from '../audit/segments/segment.ts';
import { inTime, monotonicClock } from '../base/clock.ts';
import { errorCode, messageOf } from '../base/error-code.ts';
import { ignoreSystemError } from '../base/expected-errors.ts';
import type { RedisStoreOptions } from '../challenges/store/redis.ts';
import { discover, type OpenIdProvider, reasonOf } from '../identity/openid-provider.ts';
import { RedisSession } from '../redis/session.ts';
import { expiryOf } from '../transport/upstream-tls.ts';
import { type DeploymentReport, type ExaminedDeployment, examineDeployment } from './deployment.ts';
import { about, type Finding, fine, type Mark, wrong } from './finding.ts';
import type { DoctorDeps } from './observed-connections.ts';
import { byCode } from './upstream-findings.ts';

/** The parts of a configuration that doctor examines. */
export interface DoctorInput {
  readonly deployments: readonly ExaminedDeployment[];
  /** Undefined without Redis. */
  readonly redis: RedisStoreOptions | undefined;
  /** Undefined without an audit log. */
  readonly audit: Pick<AuditOptions, 'directory' | 'replica'> | undefined;
  readonly certificates: readonly ListenerCertificate[];
  /** When the first list of revoked client certificates expires, in seconds of Unix time; 0: never, or there is none. */
  readonly crlExpires: number;
  /** Undefined: sign-in by name is not configured. */
  readonly provider: OpenIdProvider | undefined;
}

/** The certificate that a listener shows its clients. */
export interface ListenerCertificate {
  /** Its listener in the configuration. */
  readonly subject: string;
  /** Both in seconds of Unix time. */
  readonly validFrom: number;
  readonly expires: number;
}

export interface Report {
  /** The gravest mark of all findings. */
  readonly mark: Mark;
  readonly failures: number;
  readonly warnings: number;
  readonly deployments: readonly DeploymentReport[];
  /** Findings about what belongs to no deployment, as far as it is configured. */
  readonly gateway: readonly Finding[];
}

/** Examines all parts concurrently; ends within 10 s. */
export async function examine(examined: DoctorInput, deps: DoctorDeps): Promise<Report> {
  const { redis, audit, certificates, crlExpires, provider } = examined;
  const [deployments, ...own] = await Promise.all([
    Promise.all(examined.deployments.map((deployment) => examineDeployment(deployment, deps))),
    redis && examineRedis(redis),
    audit && examineAudit(audit),
    ...certificates.map((certificate) => examineCertificate(certificate, deps.wallTime())),
    crlExpires > 0 && examineRevocation(crlExpires, deps.wallTime()),
    provider && examineSignIn(provider),
  ]);
  const gateway = own.filter((finding) => typeof finding === 'object');
  const all = [...deployments.flatMap(({ findings }) => findings), ...gateway];
  const failures = all.filter(({ mark }) => mark === 'fail').length;
  const warnings = all.filter(({ mark }) => mark === 'warn').length;
  const mark = failures > 0 ? 'fail' : warnings > 0 ? 'warn' : 'ok';
  return { mark, failures, warnings, deployments, gateway };
}

/** Checks that clients can still trust the certificate of a listener. `now` in Unix milliseconds. */
export function examineCertificate(certificate: ListenerCertificate, now: number): Finding {
  const { subject, validFrom, expires } = certificate;
  const expiresAt = new Date(expires * 1000).toISOString();
  const { daysLeft, isSoon, text } = expiryOf(expires * 1000, now);
  const facts = { expiresAt, daysLeft };
  if (validFrom * 1000 > now) {
    const saw = `it is not valid before ${new Date(validFrom * 1000).toISOString()}`;
    return about(subject, wrong('certificate', 'listen-certificate-not-yet-valid', saw, facts));
  }
  const finding =
    expires * 1000 <= now
      ? wrong('certificate', 'listen-certificate-expired', `it expired at ${expiresAt}`, facts)
      : isSoon
        ? wrong('certificate', 'listen-certificate-expires-soon', text, facts)
        : fine('certificate', text, facts);
  return about(subject, finding);
}

/** Checks that no list of revoked client certificates has expired. `now` in Unix milliseconds. */
export function examineRevocation(crlExpires: number, now: number): Finding {
  const expires = new Date(crlExpires * 1000).toISOString();
  const facts = { expires };
  if (crlExpires * 1000 > now) return fine('revocation', `all lists are valid until ${expires}`, facts);
  return wrong('revocation', 'crl-expired', `a list expired at ${expires}`, facts);
}

const PKCE = 'S256';

/** Reads the discovery document of the provider at which operators sign in. */
export async function examineSignIn(provider: OpenIdProvider): Promise<Finding> {
  try {
    const configuration = await discover(provider);
    const server = configuration.serverMetadata();
    const endsSessions = server.end_session_endpoint !== undefined;
    const facts = { issuer: server.issuer, endsSessions };
    const saw = `the discovery document is of ${server.issuer}, ${endsSessions ? 'with' : 'without'} a place to sign out`;
    // RFC 8414 §2: without a list it is not known.
    const methods = server.code_challenge_methods_supported;
    if (methods?.includes(PKCE) !== false) return fine('sign-in', saw, facts);
    return wrong('sign-in', 'sign-in-without-pkce', `${saw}, and PKCE without ${PKCE}`, facts);
  } catch (error) {
    const problem = PROBLEMS[errorCode(error)] ?? 'sign-in-unreachable';
    return wrong('sign-in', problem, reasonOf(error));
  }
}

/** Findings by codes of openid-client; other errors are those of the network. */
const PROBLEMS: Readonly<Record<string, 'sign-in-issuer' | 'sign-in-unusable'>> = {
  OAUTH_JSON_ATTRIBUTE_COMPARISON_FAILED: 'sign-in-issuer',
  OAUTH_INVALID_RESPONSE: 'sign-in-unusable',
  OAUTH_PARSE_ERROR: 'sign-in-unusable',
  OAUTH_RESPONSE_IS_NOT_JSON: 'sign-in-unusable',
  OAUTH_RESPONSE_IS_NOT_CONFORM: 'sign-in-unusable',
  OAUTH_INVALID_SERVER_METADATA: 'sign-in-unusable',
};

/** Time limit for a reply without TLS, in milliseconds. */
const PLAIN_MS = 500;
/** Time limit for connecting to Redis, in milliseconds; the first attempt may fail. */
const GRACE_MS = 2_000;

/**
 * Checks with the gateway's own heartbeat that Redis takes writes and passes on messages, and that values
 * are signed.
 */
export async function examineRedis(redis: RedisStoreOptions): Promise<Finding> {
  const prefix = `${redis.keyPrefix}:doctor`;
  const up = Promise.withResolvers<void>();
  let isReady = false;
  let problem = `no reply within ${GRACE_MS} ms`;
  const session = new RedisSession({
    redis,
    scripts: {},
    channel: prefix,
    ownChannel: `${prefix}:echo:${randomUUID()}`,
    pulseKeys: () => [`${prefix}:pulse`],
    onUp: (isUp, reason) => {
      isReady ||= isUp;
      if (isUp) up.resolve();
      else problem = reason ?? problem;
    },
    onMessage: () => undefined,
    onRejoin: () => undefined,
  });
  try {
    await inTime(up.promise, GRACE_MS);
    if (!isReady) {
      const reply = await plainReply(redis);
      if (redis.tls !== undefined && /^[+-]/.test(reply))
        return wrong('redis', 'redis-not-tls', 'it does not speak TLS');
      return unusable(UNHEARD.test(reply) ? reply.slice(1) : problem);
    }
    const begun = monotonicClock.now();
    await session.call((commands) => commands.ping());
    const latencyMs = Math.round((monotonicClock.now() - begun) * 10) / 10;
    const saw = `reachable, writable, answers in ${latencyMs} ms`;
    const signed = redis.keys.length > 0;
    if (signed) return fine('redis', `${saw}, values are signed`, { latencyMs, signed });
    return wrong('redis', 'redis-unsigned', `${saw}, values are not signed`, { latencyMs, signed });
  } catch (error) {
    return unusable(error instanceof Error ? error.message : problem);
  } finally {
    await session.close();
  }
}

/** Replies without which ioredis has no connection, and does not say why: it waits, or its first command meets the end. */
const UNHEARD = /^-(?:LOADING|ERR max number of clients)/;

/** Sends a server nothing but a PING without TLS; returns its reply, or ''. A server with TLS waits for more. */
async function plainReply({ servers }: RedisStoreOptions): Promise<string> {
  if (servers.kind !== 'single') return '';
  const socket = connect(servers.address);
  try {
    socket.write('PING\r\n');
    const [reply] = await once(socket, 'data', { signal: AbortSignal.timeout(PLAIN_MS) });
    return String(reply).trimEnd();
  } catch (error) {
    return ignoreSystemError(error) ?? '';
  } finally {
    socket.destroy();
  }
}

/** Classifies an error by the code that Redis puts at its start. */
function unusable(problem: string): Finding {
  if (/^(NOAUTH|WRONGPASS|NOPERM|DENIED|ERR AUTH)/.test(problem))
    return wrong('redis', 'redis-refused', problem);
  if (/^(?:LOADING|CLUSTERDOWN)/.test(problem)) return wrong('redis', 'redis-not-ready', problem);
  if (problem.startsWith('ERR max number of clients')) return wrong('redis', 'redis-full', problem);
  if (/READONLY|MASTERDOWN|MISCONF|OOM|NOREPLICAS/.test(problem))
    return wrong('redis', 'redis-not-writable', problem);
  const [, code = '', address = ''] = /\b(E[A-Z_]{4,})\b ?(\S*)/.exec(problem) ?? [];
  const [, sentence] = byCode.get(code) ?? [];
  const saw = sentence === undefined ? problem : [address, sentence].filter(Boolean).join(': ');
  return wrong('redis', 'redis-unreachable', saw);
}

const MEBIBYTE = 2 ** 20;
/** Free space in bytes below which a warning is given. */
const SCARCE = 1024 * MEBIBYTE;

/**
 * Checks that the audit directory exists or can be created, is writable, and has free space, and that this user can go on
 * with the log in it: a gateway that was started once as another user leaves files of that one.
 */
export async function examineAudit({
  directory,
  replica,
}: Pick<AuditOptions, 'directory' | 'replica'>): Promise<Finding> {
  const existing = await nearestExisting(directory);
  const obstacle = await whyUnwritable(existing);
  if (obstacle !== undefined) {
    return wrong('audit', 'audit-not-writable', `cannot create a file in ${existing} (${obstacle})`);
  }
  if (existing !== directory) return wrong('audit', 'audit-missing', `${directory} does not exist`);
  const foreign = await whyNotContinued(directory, replica);
  if (foreign !== undefined) return wrong('audit', 'audit-not-writable', foreign);
  const { bavail, bsize } = await statfs(directory);
  const freeBytes = bavail * bsize;
  const saw = `${directory} is writable, ${Math.floor(freeBytes / MEBIBYTE)} MiB free`;
  const facts = { freeBytes };
  return freeBytes < SCARCE ? wrong('audit', 'audit-disk-full', saw, facts) : fine('audit', saw, facts);
}

/** Why a file cannot be created, by code. */
const UNWRITABLE: Readonly<Record<string, string>> = {
  EACCES: 'this user may not write there',
  EPERM: 'this user may not write there',
  EROFS: 'it is read-only',
  ENOSPC: 'the disk is full',
  EDQUOT: 'the quota is used up',
  ENOTDIR: 'it is not a folder',
  EISDIR: 'it is a folder',
  // Such as in /proc.
  ENOENT: 'no file can be created there',
};

/** Why the gateway cannot go on with the log of this replica or one of its workers. */
async function whyNotContinued(directory: string, replica: string): Promise<string | undefined> {
  const broken: string[] = [];
  const folders = await foldersIn(directory, replica, ({ message }) => broken.push(message));
  if (broken.length > 0) return broken[0];
  const names = new Set([replica, ...folders]);
  for (const folder of Array.from(names, (name) => join(directory, name))) {
    const obstacle = await whyNotUsed(folder, 'ENOTDIR');
    if (obstacle !== undefined) return `cannot write to ${folder} (${obstacle})`;
    const newest = (await segmentsIn(folder)).at(-1)?.name ?? LOCK;
    for (const file of [LOCK, newest].map((name) => join(folder, name))) {
      const reason = await whyNotUsed(file, 'EISDIR');
      if (reason !== undefined) return `cannot write to ${file} (${reason})`;
    }
  }
  return undefined;
}

/** By its permissions: to open and close the file of a lock would release the lock, if this process has it. */
async function whyNotUsed(path: string, otherKind: 'ENOTDIR' | 'EISDIR'): Promise<string | undefined> {
  try {
    const isFolder = (await stat(path)).isDirectory();
    if (isFolder === (otherKind === 'EISDIR')) return UNWRITABLE[otherKind];
    await access(path, constants.R_OK | constants.W_OK);
    return undefined;
  } catch (error) {
    return errorCode(error) === 'ENOENT' ? undefined : reasonOfSystem(error);
  }
}

function reasonOfSystem(error: unknown): string {
  const code = errorCode(error);
  return UNWRITABLE[code] ?? (code || messageOf(error));
}

async function nearestExisting(path: string): Promise<string> {
  const code = await stat(path).then(() => '', errorCode);
  return code === 'ENOENT' && dirname(path) !== path ? nearestExisting(dirname(path)) : path;
}

/** Content of the file that is written to test a folder: an empty one can be made on a full disk. */
const PROBE = Buffer.alloc(4096);

/**
 * Writes a file, because permissions alone do not show it: root passes them, a mount can be read-only, and a disk full.
 */
async function whyUnwritable(directory: string): Promise<string | undefined> {
  const file = join(directory, `.doctor-${randomUUID()}`);
  try {
    await writeFile(file, PROBE, { flag: 'wx', flush: true });
    await rm(file);
    return undefined;
  } catch (error) {
    await rm(file, { force: true }).catch(ignoreSystemError);
    return reasonOfSystem(error);
  }
}
