import { afterEach, expect, test } from '@jest/globals';
import { diag, propagation, trace } from '@opentelemetry/api';
import { pino } from 'pino';
import { logOptions } from '../../src/base/log.ts';
import { startTracing } from '../../src/cli/process-parts.ts';
import { recordTraces } from '../support/recorded-traces.ts';

const ENABLED = { OTEL_EXPORTER_OTLP_ENDPOINT: 'http://collector:4318' };

afterEach(() => {
  trace.disable();
  propagation.disable();
  diag.disable();
});

/** An SDK that registers a tracer provider at its start, or not, and the log of the gateway. */
function scene({ registers = true, stop = (): Promise<void> => Promise.resolve() } = {}) {
  const logged: Record<string, unknown>[] = [];
  const log = pino(logOptions, { write: (line: string) => logged.push(JSON.parse(line)) });
  const seen: unknown[] = [];
  const apisAtStart: string[] = [];
  const { tracer } = recordTraces();
  class NodeSDK {
    constructor(options: unknown) {
      seen.push(options);
    }
    start(): void {
      seen.push('start');
      apisAtStart.push(...Object.keys(Reflect.get(globalThis, Symbol.for('opentelemetry.js.api.1'))));
      if (registers) trace.setGlobalTracerProvider({ getTracer: () => tracer });
    }
    shutdown(): Promise<void> {
      seen.push('shutdown');
      return stop();
    }
  }
  const load = async (): Promise<unknown> => ({ NodeSDK });
  const start = (environment: NodeJS.ProcessEnv) => startTracing(environment, '1', log, load);
  return { apisAtStart, log, logged, seen, start, tracer };
}

test('runs the SDK from start to end if the environment enables traces', async () => {
  const { logged, seen, start } = scene();
  const { tracing, stop } = await start(ENABLED);
  expect(tracing).toBeDefined();
  expect(seen).toEqual([{ serviceName: 'digest-gateway' }, 'start']);
  await stop();
  expect(seen.at(-1)).toBe('shutdown');
  expect(logged).toEqual([]);
});

test('passes OTEL_SERVICE_NAME to the SDK', async () => {
  const { seen, start } = scene();
  await start({ ...ENABLED, OTEL_SERVICE_NAME: 'edge' });
  expect(seen[0]).toEqual({ serviceName: 'edge' });
});

test.each([
  [{}],
  [{ OTEL_EXPORTER_OTLP_ENDPOINT: '' }],
  [{ ...ENABLED, OTEL_SDK_DISABLED: 'true' }],
  [{ ...ENABLED, OTEL_TRACES_EXPORTER: 'none' }],
])('does not load the SDK with %j', async (environment) => {
  const { logged, seen, start } = scene();
  const { tracing, stop } = await start(environment);
  await stop();
  expect(tracing).toBeUndefined();
  expect(seen).toEqual([]);
  expect(logged).toEqual([]);
});

test.each([[{}], [ENABLED]])(
  'uses a registered SDK and starts no second one with %j',
  async (environment) => {
    const { tracer } = recordTraces();
    trace.setGlobalTracerProvider({ getTracer: () => tracer });
    const { logged, seen, start } = scene();
    expect((await start(environment)).tracing).toBeDefined();
    expect(seen).toEqual([]);
    expect(logged).toEqual([]);
  },
);

test('warns if traces are enabled and no SDK is installed', async () => {
  const { log, logged } = scene();
  const missing = (): Promise<unknown> => Promise.reject(new Error('Cannot find package'));
  const { tracing, stop } = await startTracing(ENABLED, '1', log, missing);
  await stop();
  expect(tracing).toBeUndefined();
  expect(logged).toEqual([
    expect.objectContaining({
      level: 'warn',
      variables: ['OTEL_EXPORTER_OTLP_ENDPOINT'],
      reason: 'Cannot find package',
      msg: expect.stringContaining('no traces are sent: install @opentelemetry/sdk-node'),
    }),
  ]);
});

test.each(['OTEL_EXPORTER_OTLP_ENDPOINT', 'OTEL_EXPORTER_OTLP_TRACES_ENDPOINT', 'OTEL_TRACES_EXPORTER'])(
  'warns if %s is set and the SDK registers no tracer provider',
  async (name) => {
    const { logged, start } = scene({ registers: false });
    expect((await start({ [name]: 'otlp' })).tracing).toBeUndefined();
    expect(logged).toEqual([
      expect.objectContaining({
        level: 'warn',
        variables: [name],
        msg: expect.stringContaining('registered no tracer provider'),
      }),
    ]);
  },
);

test('logs the reason if the last traces cannot be sent', async () => {
  const { logged, start } = scene({ stop: () => Promise.reject(new Error('connect ECONNREFUSED')) });
  await (await start(ENABLED)).stop();
  expect(logged).toEqual([
    expect.objectContaining({
      level: 'warn',
      reason: 'connect ECONNREFUSED',
      msg: 'the last traces could not be sent',
    }),
  ]);
});

test('registers nothing before the SDK, which may have another copy of the API', async () => {
  const { apisAtStart, start } = scene();
  await start(ENABLED);
  expect(apisAtStart).toContain('propagation');
  expect(apisAtStart).not.toContain('diag');
});

test('logs errors and warnings of the SDK unless OTEL_LOG_LEVEL is set', async () => {
  const { logged, start } = scene();
  await start(ENABLED);
  diag.error(JSON.stringify({ stack: 'Error: a\n at b', message: 'connect ECONNREFUSED' }));
  diag.warn('queue is full\n    at a');
  diag.info('retrying');
  expect(logged).toEqual([
    expect.objectContaining({ level: 'warn', reason: 'connect ECONNREFUSED', msg: 'OpenTelemetry SDK' }),
    expect.objectContaining({ level: 'warn', reason: 'queue is full', msg: 'OpenTelemetry SDK' }),
  ]);

  trace.disable();
  propagation.disable();
  diag.disable();
  const own = scene();
  await own.start({ ...ENABLED, OTEL_LOG_LEVEL: 'error' });
  diag.error('queue is full');
  expect(own.logged).toEqual([]);
});
