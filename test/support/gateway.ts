import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pino } from 'pino';
import { stringify } from 'yaml';
import { App } from '../../src/app/app.ts';
import { openParts } from '../../src/app/compose.ts';
import { DataPlane } from '../../src/app/data-plane.ts';
import type { AuditOptions } from '../../src/audit/audit.ts';
import { BufferGc } from '../../src/base/buffer-gc.ts';
import { type Clock, monotonicClock } from '../../src/base/clock.ts';
import { logOptions } from '../../src/base/log.ts';
import type { OpenAddress } from '../../src/base/open-port.ts';
import { Secret } from '../../src/base/secret.ts';
import type { RedisStoreOptions } from '../../src/challenges/store/redis.ts';
import type { ConsolePace } from '../../src/control/console.ts';
import {
  type Credential,
  type CredentialSet,
  CredentialVersions,
} from '../../src/credentials/credentials.ts';
import { readCredentials } from '../../src/credentials/reading.ts';
import { SourceReader } from '../../src/credentials/sources.ts';
import type { Metrics } from '../../src/metrics/metrics.ts';
import { type AppSetup, readSetup, SetupSource } from '../../src/setup/setup.ts';
import type { Tracing } from '../../src/tracing/tracing.ts';
import type { ClientCertificate } from '../../src/transport/upstream-tls.ts';

export interface RunningGateway extends AsyncDisposable {
  readonly app: App;
  readonly plane: DataPlane;
  /** The setup that it was started with. */
  readonly setup: AppSetup;
  /** `http://127.0.0.1:PORT` of the data plane, of its first listener. */
  readonly origin: string;
  readonly port: number;
  /** The addresses of all listeners. */
  readonly listening: readonly OpenAddress[];
  /** `http://127.0.0.1:PORT` of the control plane. */
  readonly control: string;
  /** Versions of its credentials; further credentials for it take theirs from here. */
  readonly versions: CredentialVersions;
  /** Every line logged so far, parsed. */
  readonly logged: Record<string, unknown>[];
  /**
   * The sum of a metric over all series that have these labels; 0 when there are none. Only a scrape sets the metrics of
   * sinks and sessions.
   */
  metric(name: string, labels?: Record<string, string>): Promise<number>;
  /** The same after `close`, with what it still did on its own. */
  lastMetric(name: string, labels?: Record<string, string>): Promise<number>;
  close(): Promise<void>;
}

/** What a gateway has in either case: in the process of the test, or in one of its own (`GatewayProcess`). */
export interface ConfiguredGateway
  extends Pick<RunningGateway, 'origin' | 'control' | 'logged' | 'metric' | 'close'> {
  /** The configuration that it reads. */
  readonly configFile: string;
}

/** Settings of one deployment for a test; the others have the configuration's defaults. */
export interface TestDeployment {
  readonly origin: string;
  readonly ca?: string;
  readonly clientCertificate?: ClientCertificate;
  readonly proxyCa?: string;
  readonly settings?: Record<string, unknown>;
  readonly username?: string;
  readonly password?: string;
}

/** The rest of a configuration; credentials are beside those of the deployments. */
export interface TopLevel {
  readonly credentials?: Record<string, unknown>;
  readonly [key: string]: unknown;
}

export interface StartOptions {
  readonly clock?: Clock;
  readonly redis?: RedisStoreOptions;
  readonly audit?: AuditOptions;
  /** The configuration in a file, and what was read from it; replaces that of the deployments. */
  readonly read?: {
    readonly source: SetupSource;
    readonly setup: AppSetup;
    /** True: it is read again when it changes. */
    readonly watchFile?: boolean;
  };
  readonly tracing?: Tracing;
  /** Where the built console is; left out: nowhere. */
  readonly consoleFolder?: string;
  readonly consolePace?: ConsolePace;
}

/** A gateway as `serve` runs it, on free ports, with one deployment for each given upstream. */
export async function startGateway(
  deployments: Record<string, TestDeployment>,
  top: TopLevel = {},
  { clock = monotonicClock, redis, audit, read, tracing, consoleFolder = '', consolePace }: StartOptions = {},
): Promise<RunningGateway> {
  const versions = new CredentialVersions();
  const setup = read?.setup ?? { ...(await setupFor(deployments, top, versions)), redis, audit };
  const logged: Record<string, unknown>[] = [];
  const log = pino(logOptions, { write: (line: string) => logged.push(JSON.parse(line)) });
  const build = { version: 'test', node: process.version };
  const bufferGc = new BufferGc(() => {});
  const parts = await openParts(setup, { log, build, clock, tracing, bufferGc });
  const plane = new DataPlane(setup, parts);
  const app = new App(setup, {
    ...parts,
    workers: plane,
    uid: process.geteuid?.(),
    consoleFolder,
    ...(read && { source: read.source, watchFile: read.watchFile ?? false }),
    ...(consolePace !== undefined && { consolePace }),
  });
  const { listen, control } = await app.start();
  const [{ port }] = listen as [OpenAddress];
  const controlOrigin = `http://127.0.0.1:${control.port}`;
  const close = (): Promise<void> => app.close();
  return {
    app,
    plane,
    setup,
    origin: `${setup.listenTls[0] === undefined ? 'http' : 'https'}://127.0.0.1:${port}`,
    port,
    listening: listen,
    control: controlOrigin,
    versions,
    logged,
    // A scrape of all metrics would take five times as long. As with a scrape, what follows a response is over by then.
    metric: async (name, labels = {}) => {
      await (await fetch(`${controlOrigin}/livez`)).text();
      await plane.observe();
      return metricIn(parts.metrics.registry, name, labels);
    },
    lastMetric: (name, labels = {}) => metricIn(parts.metrics.registry, name, labels),
    close,
    [Symbol.asyncDispose]: close,
  };
}

/**
 * The gateway that `serve` would run from a configuration file, with one worker, in the process of the test: it starts in
 * a twentieth of the time. What only a process shows, such as signals, needs `startGatewayProcess`.
 */
export async function startConfiguredGateway(
  deployments: Record<string, TestDeployment>,
  top: TopLevel = {},
  { watchFile = false }: { readonly watchFile?: boolean } = {},
): Promise<RunningGateway & ConfiguredGateway> {
  const folder = await mkdtemp(join(tmpdir(), 'gateway-'));
  const removeFolder = (): Promise<void> => rm(folder, { recursive: true, force: true });
  try {
    const configFile = await writeConfig(folder, deployments, top);
    const uid = process.geteuid?.();
    const source = new SetupSource(configFile, { environment: {}, ...(uid !== undefined && { uid }) });
    const read = { source, setup: await source.readAtStart(), watchFile };
    const gateway = await startGateway({}, {}, { read });
    const close = (): Promise<void> => gateway.close().finally(removeFolder);
    return { ...gateway, configFile, close, [Symbol.asyncDispose]: close };
  } catch (error) {
    await removeFolder();
    throw error;
  }
}

/** Always the same one, one setup after the other: the schema of a configuration is built for its folder. */
const SETUP_FOLDER = join(tmpdir(), `setup-${process.pid}`);
let lastSetup: Promise<unknown> = Promise.resolve();

/** A setup as `serve` reads it, from deployments as a test describes them. */
export function setupFor(
  deployments: Record<string, TestDeployment>,
  top: TopLevel = {},
  versions = new CredentialVersions(),
): Promise<AppSetup> {
  const setup = lastSetup.then(async () => {
    await mkdir(SETUP_FOLDER, { recursive: true });
    try {
      // JSON is YAML, and takes half the time.
      const file = await writeConfig(SETUP_FOLDER, deployments, top, JSON.stringify);
      const uid = process.geteuid?.();
      return await readSetup(file, { environment: {}, ...(uid !== undefined && { uid }) }, versions);
    } finally {
      await rm(SETUP_FOLDER, { recursive: true });
    }
  });
  lastSetup = setup.catch(() => undefined);
  return setup;
}

/**
 * Writes a configuration with these deployments, on free ports, and the files that it names to the folder; resolves to
 * its path. Each deployment has a credential of its name, and serves every path, unless its settings say otherwise.
 */
export async function writeConfig(
  folder: string,
  deployments: Record<string, TestDeployment>,
  { credentials = {}, ...others }: TopLevel = {},
  write: (config: object) => string = stringify,
): Promise<string> {
  const sections = Object.entries(deployments).map(
    async ([name, each]) => [name, await sectionOf(name, each, folder)] as const,
  );
  const config = {
    listen: { port: 0 },
    control: { port: 0 },
    anonymous: true,
    credentials: {
      ...mapValues(deployments, ({ username = 'demo-user', password = 'demo-api-key' }) => ({
        username: { value: username },
        password: { value: password },
      })),
      ...credentials,
    },
    deployments: Object.fromEntries(await Promise.all(sections)),
    ...others,
  };
  const file = join(folder, 'gateway.yaml');
  await writeFile(file, write(config));
  return file;
}

/** The section of a deployment; the files that it names are written to the folder. */
async function sectionOf(
  name: string,
  { origin, ca, clientCertificate, proxyCa, settings = {} }: TestDeployment,
  folder: string,
): Promise<Record<string, unknown>> {
  const write = async (what: string, text: string): Promise<string> => {
    const file = join(folder, `${name}-${what}.pem`);
    await writeFile(file, text, { mode: 0o600 });
    return file;
  };
  const tls = {
    ...(ca !== undefined && { caFile: await write('ca', ca) }),
    ...(clientCertificate !== undefined && {
      certFile: await write('certificate', clientCertificate.chain),
      keyFile: await write('key', clientCertificate.key.reveal()),
    }),
  };
  const section = { baseUrl: origin, match: { pathPrefix: '/' }, credential: name, ...settings };
  const given = settings as { tls?: object; egress?: { proxy?: object } };
  if (Object.keys(tls).length > 0) Object.assign(section, { tls: { ...given.tls, ...tls } });
  if (proxyCa !== undefined) {
    const proxy = { ...given.egress?.proxy, caFile: await write('proxy-ca', proxyCa) };
    Object.assign(section, { egress: { ...given.egress, proxy } });
  }
  return section;
}

function mapValues<V, W>(record: Record<string, V>, change: (value: V) => W): Record<string, W> {
  return Object.fromEntries(Object.entries(record).map(([key, value]) => [key, change(value)]));
}

/** The sum of a metric over all series that have these labels; 0 when there are none. */
export async function metricOf(
  control: string,
  name: string,
  labels: Record<string, string> = {},
  headers: Record<string, string> = {},
): Promise<number> {
  return sumOf(await (await fetch(`${control}/metrics`, { headers })).text(), name, labels);
}

/** Does the same with the metrics of this process. */
async function metricIn(
  registry: Metrics['registry'],
  name: string,
  labels: Record<string, string>,
): Promise<number> {
  const metric = [name, name.replace(/_(bucket|count|sum)$/, '')].find((each) =>
    registry.getSingleMetric(each),
  );
  if (metric === undefined) throw new Error(`there is no metric ${name}`);
  return sumOf(await registry.getSingleMetricAsString(metric), name, labels);
}

function sumOf(text: string, name: string, labels: Record<string, string>): number {
  const wanted = Object.entries(labels).map(([key, value]) => `${key}="${value}"`);
  let sum = 0;
  for (const line of text.split('\n')) {
    const matches = line.startsWith(`${name} `) || line.startsWith(`${name}{`);
    if (!matches || !wanted.every((label) => line.includes(label))) continue;
    sum += Number(line.slice(line.lastIndexOf(' ')));
  }
  return sum;
}

/** A credential set of the simulator's user, with the versions that the gateway sees. */
export async function credentialSet(
  { versions }: RunningGateway,
  name: string,
  password: string,
  next?: string,
): Promise<CredentialSet> {
  const source = (text: string) => ({ value: new Secret(text) });
  const reader = new SourceReader({ environment: {} }, undefined);
  const read = async (text: string): Promise<Credential> => {
    const sources = { [name]: { username: source('demo-user'), password: source(text) } };
    const set = (await readCredentials(sources, reader, versions)).get(name);
    if (set === undefined) throw new Error('not read');
    return set.current;
  };
  return { name, current: await read(password), next: next === undefined ? undefined : await read(next) };
}
