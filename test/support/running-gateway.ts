import { pino } from 'pino';
import { stringify } from 'yaml';
import { type App, type AppSetup, createApp } from '../../src/app.ts';
import type { AuditOptions } from '../../src/audit/audit.ts';
import { openAudit } from '../../src/audit/journal/file-audit.ts';
import { type Clock, monotonicClock } from '../../src/base/clock.ts';
import { SpentBuffers } from '../../src/base/spent-buffers.ts';
import type { RedisOptions } from '../../src/challenges/redis-connection.ts';
import { readListenTls } from '../../src/config/listen-tls.ts';
import { parseConfig } from '../../src/config/load.ts';
import type { ConsolePace } from '../../src/control/console.ts';
import { readCredentials } from '../../src/credentials/credentials.ts';
import { SourceReader } from '../../src/credentials/sources.ts';
import { CredentialVersions } from '../../src/credentials/versions.ts';
import type { Tracing } from '../../src/tracing/tracing.ts';
import type { ClientCertificate } from '../../src/upstream/upstream-tls.ts';
import { metricOf } from './metric.ts';

export interface RunningGateway {
  readonly app: App;
  /** What it was started with. */
  readonly setup: AppSetup;
  /** `http://127.0.0.1:PORT` of the data plane. */
  readonly origin: string;
  readonly port: number;
  /** `http://127.0.0.1:PORT` of the control plane. */
  readonly control: string;
  /** Of the credentials that were read for it; whoever offers it others has theirs from here. */
  readonly versions: CredentialVersions;
  /** Every line logged so far, parsed. */
  readonly logged: Record<string, unknown>[];
  /** The sum of a metric over all series that have these labels; 0 when there are none. */
  metric(name: string, labels?: Record<string, string>): Promise<number>;
  close(): Promise<void>;
}

/** What a test says about one deployment; the rest is as the configuration's defaults have it. */
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
  readonly redis?: RedisOptions;
  readonly audit?: AuditOptions;
  readonly tracing?: Tracing;
  /** Where the built console is; left out: nowhere. */
  readonly consoleFolder?: string;
  readonly consolePace?: ConsolePace;
}

/** A gateway as `serve` runs it, on free ports, with one deployment for each given upstream. */
export async function startGateway(
  deployments: Record<string, TestDeployment>,
  top: TopLevel = {},
  { clock = monotonicClock, redis, audit, tracing, consoleFolder = '', consolePace }: StartOptions = {},
): Promise<RunningGateway> {
  const versions = new CredentialVersions();
  const { setup } = await setupFor(deployments, top, versions);
  const logged: Record<string, unknown>[] = [];
  const log = pino({}, { write: (line: string) => logged.push(JSON.parse(line)) });
  const app = createApp(
    { ...setup, redis },
    {
      clock,
      log,
      build: { version: 'test', node: process.version },
      spent: new SpentBuffers(() => {}),
      uid: process.geteuid?.(),
      ...(audit !== undefined && { audit: await openAudit(audit, { log }) }),
      tracing,
      consoleFolder,
      ...(consolePace !== undefined && { consolePace }),
    },
  );
  const { listen, control } = await app.start();
  const controlOrigin = `http://127.0.0.1:${control.port}`;
  return {
    app,
    setup,
    origin: `${setup.listenTls === undefined ? 'http' : 'https'}://127.0.0.1:${listen.port}`,
    port: listen.port,
    control: controlOrigin,
    versions,
    logged,
    metric: (name, labels = {}) => metricOf(controlOrigin, name, labels),
    close: () => app.close(),
  };
}

/** What `createApp` takes, from deployments as a test describes them. */
export async function setupFor(
  deployments: Record<string, TestDeployment>,
  top: TopLevel = {},
  versions = new CredentialVersions(),
): Promise<{ setup: Parameters<typeof createApp>[0] }> {
  const { credentials = {}, ...others } = top;
  const config = parseConfig(
    stringify({
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
      deployments: mapValues(deployments, ({ origin, settings = {} }, name) => ({
        baseUrl: origin,
        match: { pathPrefix: '/' },
        credential: name,
        ...settings,
      })),
      ...others,
    }),
    'test.yaml',
  );
  const { byName } = await readCredentials(
    config.credentials,
    new SourceReader({ environment: {} }, config.sealed),
    versions,
  );
  const { tls } = await readListenTls(config.listen.tls, process.geteuid?.());
  return {
    setup: {
      config,
      credentials: byName,
      authorities: given(deployments, ({ ca }) => ca),
      clientCertificates: given(deployments, ({ clientCertificate }) => clientCertificate),
      proxyAuthorities: given(deployments, ({ proxyCa }) => proxyCa),
      redis: undefined,
      listenTls: tls,
    },
  };
}

function given<V, W>(record: Record<string, V>, part: (value: V) => W | undefined): Map<string, W> {
  return new Map(
    Object.entries(record).flatMap(([name, value]) => {
      const found = part(value);
      return found === undefined ? [] : [[name, found] as const];
    }),
  );
}

function mapValues<V, W>(record: Record<string, V>, change: (value: V, key: string) => W): Record<string, W> {
  return Object.fromEntries(Object.entries(record).map(([key, value]) => [key, change(value, key)]));
}
