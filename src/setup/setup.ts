import type { AuditOptions } from '../audit/audit.ts';
import type { SinkOptions } from '../audit/shipping/sink-set.ts';
import { stateOf } from '../base/file-watch.ts';
import type { RedisStoreOptions } from '../challenges/store/redis.ts';
import { findParts } from '../config/include.ts';
import { ConfigError, type Issue, type LocatedIssue } from '../config/issues.ts';
import { type LocatedConfig, loadLocated, type ReadFiles } from '../config/load.ts';
import { type BackgroundConfig, loadInBackground } from '../config/load-background.ts';
import type { Config } from '../config/schema.ts';
import { type Pieces, toPieces } from '../config/transfer.ts';
import { type CredentialSet, CredentialVersions } from '../credentials/credentials.ts';
import { CredentialError, readCredentials } from '../credentials/reading.ts';
import { type ProcessContext, SourceReader } from '../credentials/sources.ts';
import type { ListenTls } from '../gateway/listener.ts';
import { type Occasion, readAudit, readAuditSinks } from './audit.ts';
import { ContentReading, type OidcContent, readOidc, readRedis } from './content.ts';
import { type DeploymentFiles, readDeploymentFiles } from './deployments.ts';
import { readListenTls } from './listen-tls.ts';
import { configWarnings, passwordWarnings, unusablePlaces } from './warnings.ts';

/** A configuration with the content of every secret and file that it names. */
export interface AppSetup extends ReadFiles {
  readonly config: Config;
  /** By name of the credential. */
  readonly credentials: ReadonlyMap<string, CredentialSet>;
  /** By name of the deployment; `deploymentsOf` joins them with the rest. */
  readonly files: ReadonlyMap<string, DeploymentFiles>;
  /** Undefined without Redis. */
  readonly redis: RedisStoreOptions | undefined;
  /** One for each listener; undefined if it is plain HTTP. */
  readonly listenTls: readonly (ListenTls | undefined)[];
  /** Undefined without an audit log. */
  readonly audit: AuditOptions | undefined;
  /** Empty in a worker: the primary sends the logs of all of them. */
  readonly auditSinks: readonly SinkOptions[];
  /** Undefined without a sign-in, and in a worker: the primary has the control plane. */
  readonly oidc: OidcContent | undefined;
  /** Settings that work but should be changed. */
  readonly warnings: readonly LocatedIssue[];
  /** The checked file, for other processes of this gateway. */
  readonly source: { readonly file: string; readonly config: Pieces };
}

/**
 * Reads a configuration and every secret and file that it names. `versions`: a process that reads its setup
 * again hands in the same ones, so that an unchanged credential keeps its version.
 * @throws ConfigError with every issue, each at its place in the file
 */
export async function readSetup(
  file: string,
  context: ProcessContext,
  versions: CredentialVersions = new CredentialVersions(),
): Promise<AppSetup> {
  return readSetupOf(await loadLocated(file, context), context, versions);
}

/**
 * Reads every secret and file that a configuration names.
 * @throws ConfigError with every issue, each at its place in the file
 */
export function readSetupOf(
  { config, file, tree, locate, warnings, fileState, filesHash }: LocatedConfig,
  context: ProcessContext,
  versions: CredentialVersions = new CredentialVersions(),
): Promise<AppSetup> {
  const located = {
    config,
    warnings,
    fileState,
    filesHash,
    pieces: toPieces(tree),
    locate: async (issues: readonly Issue[]) => issues.map(locate),
  };
  return readContents(file, located, context, versions, 'start');
}

/** The files of a configuration have another content than was asked for. */
export class OtherFilesError extends Error {
  override readonly name = 'OtherFilesError';
}

/**
 * Does the same as `readSetup` in a process that serves: a worker thread reads the configuration, and long
 * loops pause for requests. `filesHash`: that of the files to use; undefined: any.
 * @throws ConfigError with every issue, each at its place in the file; OtherFilesError
 */
async function readSetupInBackground(
  file: string,
  context: ProcessContext,
  versions: CredentialVersions,
  filesHash: string | undefined,
): Promise<AppSetup> {
  const located = await loadInBackground(file, context);
  try {
    if (filesHash !== undefined && located.filesHash !== filesHash) throw new OtherFilesError();
    return await readContents(file, located, context, versions, 'reload');
  } finally {
    await located.close();
  }
}

async function readContents(
  file: string,
  { config, pieces, warnings, fileState, filesHash, locate }: Omit<BackgroundConfig, 'close'>,
  context: ProcessContext,
  versions: CredentialVersions,
  occasion: Occasion,
): Promise<AppSetup> {
  const reader = new SourceReader(context, config.sealed);
  const reading = new ContentReading(reader, context.uid);
  const [credentials, files, listenTls] = await Promise.all([
    readCredentials(config.credentials, reader, versions).catch((error: unknown) => {
      if (!(error instanceof CredentialError)) throw error;
      reading.issues.push(...error.issues);
    }),
    readDeploymentFiles(config.deployments, reading),
    Promise.all(config.listen.map(({ tls }, index) => readListenTls(tls, index, context.uid))),
  ]);
  const redis = await readRedis(config.redis, reading);
  const audit = await readAudit(config, reading, occasion);
  const auditSinks = await readAuditSinks(config.audit, redis, reading);
  const oidc = await readOidc(config.control.oidc, reading);
  const issues = [...reading.issues, ...listenTls.flatMap((each) => each.issues)];
  if (!credentials || issues.length > 0) throw new ConfigError(await locate(issues));
  return {
    config,
    credentials,
    files,
    redis,
    listenTls: listenTls.map(({ tls }) => tls),
    audit,
    auditSinks,
    oidc,
    warnings: await locate([
      ...warnings,
      ...configWarnings(config, Date.now()),
      ...(await unusablePlaces(config)),
      ...passwordWarnings(config.credentials, credentials),
      ...listenTls.flatMap((each) => each.warnings),
    ]),
    fileState,
    filesHash,
    source: { file, config: pieces },
  };
}

/** The state of the files of a configuration when it was read. */
interface KnownFiles extends ReadFiles {
  readonly include: readonly string[];
}

/** The configuration file of a gateway, with those that it includes, which are read at the start and at each reload. */
export class SetupSource {
  readonly file: string;
  readonly context: ProcessContext;
  /** An unchanged credential keeps its version from one reading to the next. */
  readonly versions = new CredentialVersions();
  /** The files of the setup that was read last; undefined before the start. */
  #read: KnownFiles | undefined;
  /** The files whose hash is known. */
  #hashed: KnownFiles | undefined;

  constructor(file: string, context: ProcessContext) {
    this.file = file;
    this.context = context;
  }

  /**
   * Reads the setup of a gateway that starts.
   * @throws ConfigError with every issue
   */
  async readAtStart(): Promise<AppSetup> {
    return this.#known(await readSetup(this.file, this.context, this.versions));
  }

  /**
   * Reads the setup of a gateway that serves meanwhile. `filesHash`: from `hash`, of the files to use; undefined: any.
   * @throws ConfigError with every issue; OtherFilesError
   */
  async readAgain(filesHash?: string): Promise<AppSetup> {
    // If they are others than their state says, `hash` must not return the same again.
    this.#hashed = undefined;
    return this.#known(await readSetupInBackground(this.file, this.context, this.versions, filesHash));
  }

  /** Finds the files of the configuration that was read last. */
  readonly files = async (): Promise<readonly string[]> => this.#filesOf(this.#read);

  /** Resolves to false if no file was written, added or removed since they were read last. */
  async isChanged(): Promise<boolean> {
    return !(await this.#areSame(this.#read));
  }

  /**
   * The SHA-256 of the files as they are now, in hex, or why they are refused. They are read as a reload reads them,
   * unless they are those that were read last: which files there are is in one of them, and thousands of deployments
   * take seconds.
   */
  async hash(): Promise<string | ConfigError> {
    const hashed = this.#hashed;
    if (hashed !== undefined && (await this.#areSame(hashed))) return hashed.filesHash;
    try {
      const { config, fileState, filesHash, close } = await loadInBackground(this.file, this.context);
      await close();
      this.#hashed = { include: config.include ?? [], fileState, filesHash };
      return filesHash;
    } catch (error) {
      if (error instanceof ConfigError) return error;
      throw error;
    }
  }

  async #areSame(known: KnownFiles | undefined): Promise<boolean> {
    return (await stateOf(await this.#filesOf(known))) === known?.fileState;
  }

  async #filesOf(known: KnownFiles | undefined): Promise<readonly string[]> {
    const { files } = await findParts(this.file, known?.include ?? []);
    return [this.file, ...files];
  }

  #known(setup: AppSetup): AppSetup {
    const { config, fileState, filesHash } = setup;
    this.#read = { include: config.include ?? [], fileState, filesHash };
    this.#hashed = this.#read;
    return setup;
  }
}
