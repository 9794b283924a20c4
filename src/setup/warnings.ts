import type { Stats } from 'node:fs';
import { stat } from 'node:fs/promises';
import { dirname } from 'node:path';
import { folderIssue } from '../audit/segments/replica-folder.ts';
import { ignoreSystemError } from '../base/expected-errors.ts';
import { isExposed } from '../base/network.ts';
import { socketPath } from '../base/open-port.ts';
import { endText } from '../base/units.ts';
import { apiKeysOf } from '../config/api-keys.ts';
import { formatPath, type Issue, type Path } from '../config/issues.ts';
import { isExposedAddress } from '../config/listener-issues.ts';
import type { Config } from '../config/schema.ts';
import type { SecretSource } from '../config/secret-source.ts';
import type { Credential, CredentialSet } from '../credentials/credentials.ts';
import { isObserved } from '../policy/rules.ts';
import { policyWarnings } from './policy-warnings.ts';

/** Time before the end of a key or rule from which it is reported, in milliseconds. */
const SOON_MS = 30 * 86_400_000;

/**
 * Returns settings that work but should be changed, as far as the configuration alone shows them at a time in Unix
 * milliseconds.
 */
export function configWarnings(config: Config, now: number): Issue[] {
  return [
    ...plainListeners(config),
    ...inlineSecrets(config),
    ...plainReceivers(config),
    ...singlePins(config),
    ...namesOfSeveralAuthorities(config),
    ...missingRevocationLists(config),
    ...clientsWithoutRules(config, now),
    ...policyWarnings(config, now),
    ...observedClients(config, now),
    ...endingKeys(config, now),
    ...endingRules(config, now),
  ];
}

/**
 * Warns of sockets and logs that cannot be made where the configuration has them. What is missing may be made before the
 * gateway starts.
 */
export async function unusablePlaces({ listen, control, log }: Config): Promise<Issue[]> {
  const { access, flightRecords } = log;
  const sockets: (readonly [Path, string | undefined])[] = [
    ...listen.map(({ address }, index) => [['listen', index, 'address'], socketPath(address)] as const),
    [['control', 'address'], socketPath(control.address)],
  ];
  const found = await Promise.all([
    ...sockets.map(([path, file]) => withoutFolder(path, file, 'the gateway does not start')),
    typeof access === 'object' ? unusableLog(['log', 'access'], access.file) : [],
    flightRecords === undefined ? [] : unusableFolder(['log', 'flightRecords'], flightRecords),
  ]);
  return found.flat();
}

async function withoutFolder(path: Path, file: string | undefined, effect: string): Promise<Issue[]> {
  if (file === undefined || (await statOf(dirname(file)))?.isDirectory() === true) return [];
  const message = `is in the folder ${dirname(file)}, which does not exist: create it, or ${effect}`;
  return [{ path, message }];
}

async function unusableLog(path: Path, file: string): Promise<Issue[]> {
  const effect = 'no line can be written';
  if ((await statOf(file))?.isDirectory() !== true) return withoutFolder(path, file, effect);
  return [{ path, message: `${file} is a folder: name a file, or ${effect}` }];
}

async function unusableFolder(path: Path, folder: string): Promise<Issue[]> {
  const issue = await folderIssue(folder);
  return issue === undefined ? [] : [{ path, message: `${folder} ${issue}` }];
}

/** Undefined: there is nothing at the path, or nothing that this user can see. */
const statOf = (path: string): Promise<Stats | undefined> => stat(path).catch(ignoreSystemError);

/** Warns of listeners without TLS beside one that has it: clients that use the wrong port show their keys. */
function plainListeners({ listen }: Config): Issue[] {
  if (listen.every(({ tls }) => tls === undefined)) return [];
  return listen.flatMap(({ address, tls }, index) => {
    if (tls !== undefined || !isExposedAddress(address)) return [];
    const message =
      'is plain HTTP for other machines, beside a listener with TLS: others on the network can read keys and tokens of clients; give tls, or listen on 127.0.0.1';
    return [{ path: ['listen', index], message }];
  });
}

/** Warns of a receiver of the audit log that gets header fields, such as a token, without TLS. */
function plainReceivers({ audit }: Config): Issue[] {
  return (audit?.sinks ?? []).flatMap(({ otlp }, index) => {
    if (otlp === undefined || Object.keys(otlp.headers).length === 0 || !isExposed(new URL(otlp.endpoint)))
      return [];
    const message =
      'is not encrypted: others on the network can read the header fields, and the audit log; write https://';
    return [{ path: ['audit', 'sinks', index, 'otlp', 'endpoint'], message }];
  });
}

/** Warns of a single pin: a change of the upstream's key then ends all service. */
function singlePins({ deployments }: Config): Issue[] {
  return Object.entries(deployments)
    .filter(([, { tls }]) => tls.pinSha256?.length === 1)
    .map(([name]) => ({
      path: ['deployments', name, 'tls', 'pinSha256'],
      message:
        'has one pin: on the day that the upstream changes its key nothing gets through; add the pin of the next key, or of another authority',
    }));
}

/**
 * Warns of clients that any of several authorities can name: that of one listener could sign in as a client of another.
 */
function namesOfSeveralAuthorities({ listen, clients }: Config): Issue[] {
  const authorities = new Set(listen.flatMap(({ tls }) => tls?.clientCaFile ?? []));
  if (authorities.size < 2) return [];
  return clients.flatMap(({ id, identify: { certificate } }, index) => {
    if (certificate === undefined || certificate.fingerprint256 !== undefined) return [];
    const message = `counts with the signature of each authority in clientCaFile of any listener, so each of them can make a certificate of ${id}: add fingerprint256, or give all listeners the same clientCaFile`;
    return [{ path: ['clients', index, 'identify', 'certificate'], message }];
  });
}

/** Warns of listeners without lists of revoked certificates, which another one has for the same authority. */
function missingRevocationLists({ listen }: Config): Issue[] {
  const listed = new Set(listen.flatMap(({ tls }) => (tls?.crlFile === undefined ? [] : tls.clientCaFile)));
  return listen.flatMap(({ tls }, index) => {
    const { clientCaFile, crlFile } = tls ?? {};
    if (clientCaFile === undefined || crlFile !== undefined || !listed.has(clientCaFile)) return [];
    const message =
      'has no crlFile, unlike another listener with this clientCaFile: clients with revoked certificates get in here; give it the same crlFile';
    return [{ path: ['listen', index, 'tls'], message }];
  });
}

function clientsWithoutRules({ clients, deployments }: Config, now: number): Issue[] {
  const [deployment = 'NAME'] = Object.keys(deployments);
  return clients.flatMap((client, index) => {
    const { id, allow } = client;
    if (allow.length > 0 || isObserved(client, now)) return [];
    const message = `has no rule, so every request of ${id} is refused: add one, such as { deployment: ${deployment} }`;
    return [{ path: ['clients', index, 'allow'], message }];
  });
}

function observedClients({ clients }: Config, now: number): Issue[] {
  return clients.flatMap((client, index) => {
    const { id, mode } = client;
    if (mode === undefined) return [];
    const consequence = isObserved(client, now)
      ? `until then what the rules of ${id} would refuse is served and recorded; take it out when they are right`
      : `the rules of ${id} refuse; take it out`;
    const message = `${endText(mode.until, now)}: ${consequence}`;
    return [{ path: ['clients', index, 'mode'], message }];
  });
}

function* endingKeys({ clients }: Config, now: number): Generator<Issue> {
  for (const [index, { id, identify }] of clients.entries()) {
    for (const { path, expires = Number.POSITIVE_INFINITY } of apiKeysOf(identify)) {
      if (expires - now > SOON_MS) continue;
      const remedy =
        expires <= now
          ? 'so it gets 401 client-key-expired: remove it, or write a later expires'
          : `so give ${id} another one in time (digest-gateway client rotate ${id}), or write a later expires`;
      yield {
        path: ['clients', index, 'identify', ...path],
        message: `${endText(expires, now)}, ${remedy}`,
      };
    }
  }
}

function* endingRules({ clients }: Config, now: number): Generator<Issue> {
  for (const [index, { allow }] of clients.entries()) {
    for (const [at, { ends = Number.POSITIVE_INFINITY }] of allow.entries()) {
      if (ends - now > SOON_MS) continue;
      const remedy =
        ends <= now
          ? 'so it allows nothing: remove it, or write a later ends'
          : 'and allows nothing from then on: write a later ends if it is to stay';
      yield { path: ['clients', index, 'allow', at], message: `${endText(ends, now)}, ${remedy}` };
    }
  }
}

/**
 * Warns of user names and passwords that were probably not meant as they were read: each that the upstream refuses counts
 * towards a lock-out.
 */
export function passwordWarnings(
  written: Config['credentials'],
  read: ReadonlyMap<string, CredentialSet>,
): Issue[] {
  const issues = new Map<string, Issue>();
  for (const [name, { current, next }] of read) {
    for (const part of ['username', 'password'] as const) {
      const path = ['credentials', name, part];
      const nextPath = written[name]?.next?.[part] === undefined ? path : ['credentials', name, 'next', part];
      for (const [place, credential] of [
        [path, current],
        [nextPath, next],
      ] as const) {
        const message = credential && partWarning(credential, part);
        if (message !== undefined) issues.set(formatPath(place), { path: place, message });
      }
    }
  }
  return [...issues.values()];
}

function partWarning(credential: Credential, part: 'username' | 'password'): string | undefined {
  const password = 'password' in credential ? credential.password.reveal() : '';
  const text = part === 'password' ? password : credential.username;
  const trimmed = text.trim();
  const end = `all of it is the ${part === 'password' ? part : 'user name'}; remove what does not belong to it`;
  if (/[\r\n]/.test(trimmed)) return `has more than one line: ${end}`;
  return trimmed === text ? undefined : `has white space at an end: ${end}`;
}

/** A place of a configuration that names the source of a user name, password, hash or passphrase. */
interface SecretUse {
  readonly path: Path;
  readonly source: SecretSource;
}

type Parts = Partial<Pick<Config['credentials'][string], 'username' | 'password' | 'ha1'>>;

/** Yields each place that names the source of a secret, without the identity of the sealed file. */
export function* secretUses({
  control,
  credentials,
  redis,
  audit,
  deployments,
}: Config): Generator<SecretUse> {
  for (const [name, { next = {}, ...current }] of Object.entries(credentials)) {
    yield* partUses(['credentials', name], current);
    yield* partUses(['credentials', name, 'next'], next);
  }
  yield* given(['control', 'oidc', 'clientSecret'], control.oidc?.clientSecret);
  yield* given(['redis', 'password'], redis?.password);
  yield* given(['redis', 'sentinelPassword'], redis?.sentinelPassword);
  for (const [index, { s3, otlp }] of (audit?.sinks ?? []).entries()) {
    for (const key of ['accessKeyId', 'secretAccessKey', 'sessionToken'] as const) {
      yield* given(['audit', 'sinks', index, 's3', key], s3?.[key]);
    }
    for (const [name, field] of Object.entries(otlp?.headers ?? {})) {
      yield* given(['audit', 'sinks', index, 'otlp', 'headers', name], field);
    }
  }
  for (const [name, { tls }] of Object.entries(deployments)) {
    yield* given(['deployments', name, 'tls', 'keyPassphrase'], tls.keyPassphrase);
  }
}

function* partUses(path: Path, { username, password, ha1: { realm: _, ...hashes } = { realm: '' } }: Parts) {
  yield* given([...path, 'username'], username);
  yield* given([...path, 'password'], password);
  for (const [name, hash] of Object.entries(hashes)) yield* given([...path, 'ha1', name], hash);
}

function* given(path: Path, source: SecretSource | undefined): Generator<SecretUse> {
  if (source !== undefined) yield { path, source };
}

/** Warns of secrets in the configuration itself. A user name is none. */
function inlineSecrets(config: Config): Issue[] {
  return [...secretUses(config)]
    .filter(({ path, source }) => 'value' in source && path.at(-1) !== 'username')
    .map(({ path }) => ({
      path,
      message: 'is written in the configuration itself: use env, file or sealed',
    }));
}
