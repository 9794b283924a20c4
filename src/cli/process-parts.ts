import { AuditLogError, openParts, type ProcessParts } from '../app/compose.ts';
import { BufferGc } from '../base/buffer-gc.ts';
import { monotonicClock } from '../base/clock.ts';
import { messageOf } from '../base/error-code.ts';
import { parseJson } from '../base/json.ts';
import { createLog, type Log } from '../base/log.ts';
import { shareLookups } from '../base/name-lookup.ts';
import type { AppSetup } from '../setup/setup.ts';
import type { Tracing } from '../tracing/tracing.ts';
import { CommandError, type Io, packageVersion } from './io.ts';

interface ThisProcess extends ProcessParts {
  /** Sends the last traces and stops the SDK. */
  readonly stopTracing: () => Promise<void>;
}

/**
 * Creates the parts of this process, which from then on outlives errors that reach no caller. `worker`: its number
 * for the log; undefined: it is not a worker.
 * @throws CommandError if the audit log cannot be written
 */
export async function processParts(io: Io, setup: AppSetup, worker?: number): Promise<ThisProcess> {
  const log = createLog(io.stderr, worker === undefined ? {} : { worker });
  log.level = setup.config.log.level;
  shareLookups();
  logWarnings(log);
  const build = { version: await packageVersion(), node: process.version };
  const { tracing, stop: stopTracing } = await startTracing(io.env, build.version, log);
  const options = { worker, log, build, clock: monotonicClock, tracing, bufferGc: new BufferGc() };
  const parts = await openParts(setup, options).catch((error) => {
    throw error instanceof AuditLogError ? new CommandError(2, error.message, error) : error;
  });
  // A request shares only counters, nonces and the audit log with others, and these are consistent between any two
  // steps; an exit would abort every other request.
  process.on('uncaughtException', parts.uncaught);
  process.on('unhandledRejection', parts.uncaught);
  return { ...parts, stopTracing };
}

/** Logs warnings of Node.js, which it would print to stderr in a format of its own. */
function logWarnings(log: Log): void {
  process.removeAllListeners('warning');
  process.on('warning', ({ name, message }) => log.warn({ name }, message));
}

/** Any of these variables enables traces, as in the SDK's documentation. */
const ENABLING = [
  'OTEL_EXPORTER_OTLP_ENDPOINT',
  'OTEL_EXPORTER_OTLP_TRACES_ENDPOINT',
  'OTEL_TRACES_EXPORTER',
];
/** Where the OpenTelemetry API keeps what an SDK registers. To load the API only to ask it takes 20 ms of a start. */
const REGISTRY = Symbol.for('opentelemetry.js.api.1');
const SDK = '@opentelemetry/sdk-node';
const NOT_STARTED = `no traces are sent: install ${SDK} beside digest-gateway, or unset the variables`;
const NOT_REGISTERED = `no traces are sent: ${SDK} registered no tracer provider that digest-gateway can use; if "npm ls @opentelemetry/api" prints two versions, install both packages in one folder`;

interface Sdk {
  start(): void;
  shutdown(): Promise<void>;
}

interface ProcessTracing {
  /** Undefined if no SDK is registered. */
  readonly tracing: Tracing | undefined;
  /** Sends the last traces and stops the SDK that the gateway started. Never rejects. */
  readonly stop: () => Promise<void>;
}

/**
 * Uses the OpenTelemetry SDK that a module of `--import` registered. Otherwise starts the one that is
 * installed beside the gateway, if the environment enables traces; it reads its settings from the
 * environment. Logs why there are no traces although they are enabled. Never rejects.
 */
export async function startTracing(
  environment: Readonly<Record<string, string | undefined>>,
  version: string,
  log: Log,
  load: () => Promise<unknown> = () => import(SDK),
): Promise<ProcessTracing> {
  const idle = (): Promise<void> => Promise.resolve();
  // A second SDK could not register.
  const registered = await registeredTracing(version);
  const variables = ENABLING.filter((name) => (environment[name] ?? '') !== '');
  const off = environment['OTEL_SDK_DISABLED'] === 'true' || environment['OTEL_TRACES_EXPORTER'] === 'none';
  if (registered !== undefined || off || variables.length === 0) return { tracing: registered, stop: idle };
  try {
    const { NodeSDK } = (await load()) as { NodeSDK: new (options: { serviceName: string }) => Sdk };
    const sdk = new NodeSDK({ serviceName: environment['OTEL_SERVICE_NAME'] ?? 'digest-gateway' });
    sdk.start();
    const tracing = await registeredTracing(version);
    if (tracing === undefined) log.warn({ variables }, NOT_REGISTERED);
    // The SDK itself is silent unless OTEL_LOG_LEVEL is set.
    else if ((environment['OTEL_LOG_LEVEL'] ?? '') === '') await logSdkErrors(log);
    return { tracing, stop: () => shutDown(sdk, log) };
  } catch (error) {
    log.warn({ variables, reason: messageOf(error) }, NOT_STARTED);
    return { tracing: undefined, stop: idle };
  }
}

/** Traces through the SDK that is registered; undefined: none is. */
async function registeredTracing(version: string): Promise<Tracing | undefined> {
  if (!(REGISTRY in globalThis)) return undefined;
  const { openTracing } = await import('../tracing/tracing.ts');
  return openTracing(version);
}

/**
 * Logs errors and warnings of the SDK, such as a collector that cannot be reached. To be called after the
 * SDK has started: the API keeps a newer copy of itself from registering anything after an older one.
 */
async function logSdkErrors(log: Log): Promise<void> {
  const { DiagLogLevel, diag } = await import('@opentelemetry/api');
  const warn = (text: string): void => log.warn({ reason: messageIn(text) }, 'OpenTelemetry SDK');
  const ignore = (): void => undefined;
  diag.setLogger(
    { error: warn, warn, info: ignore, debug: ignore, verbose: ignore },
    { logLevel: DiagLogLevel.WARN, suppressOverrideMessage: true },
  );
}

/** Returns the message of an error, which the SDK reports as JSON or with its stack. */
function messageIn(text: string): string {
  const { message } = Object(parseJson(text)) as { readonly message?: unknown };
  return typeof message === 'string' ? message : text.split('\n', 1).join();
}

async function shutDown(sdk: Sdk, log: Log): Promise<void> {
  try {
    await sdk.shutdown();
  } catch (error) {
    log.warn({ reason: messageOf(error) }, 'the last traces could not be sent');
  }
}
