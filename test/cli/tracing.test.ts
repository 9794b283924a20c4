import { expect, test } from '@jest/globals';
import { pino } from 'pino';
import { startTracing } from '../../src/cli/tracing.ts';

const ASKED = { OTEL_EXPORTER_OTLP_ENDPOINT: 'http://collector:4318' };

function scene() {
  const logged: Record<string, unknown>[] = [];
  const log = pino({}, { write: (line: string) => logged.push(JSON.parse(line)) });
  const seen: unknown[] = [];
  class NodeSDK {
    constructor(options: unknown) {
      seen.push(options);
    }
    start(): void {
      seen.push('start');
    }
    async shutdown(): Promise<void> {
      seen.push('shutdown');
    }
  }
  return { log, logged, seen, load: async () => ({ NodeSDK }) };
}

test('the SDK runs from the start to the end when the environment asks for traces', async () => {
  const { log, logged, seen, load } = scene();
  const stop = await startTracing(ASKED, log, load);
  expect(seen).toEqual([{ serviceName: 'digest-gateway' }, 'start']);
  await stop();
  expect(seen.at(-1)).toBe('shutdown');
  await startTracing({ ...ASKED, OTEL_SERVICE_NAME: 'edge' }, log, load);
  expect(seen).toContainEqual({ serviceName: 'edge' });
  expect(logged).toEqual([]);
});

test.each([
  [{}],
  [{ OTEL_EXPORTER_OTLP_ENDPOINT: '' }],
  [{ ...ASKED, OTEL_SDK_DISABLED: 'true' }],
  [{ ...ASKED, OTEL_TRACES_EXPORTER: 'none' }],
])('it is not even loaded with %j', async (environment) => {
  const { log, seen, load } = scene();
  await (await startTracing(environment, log, load))();
  expect(seen).toEqual([]);
});

test('an SDK that is asked for and not installed is told of, and nothing else happens', async () => {
  const { log, logged } = scene();
  await (await startTracing(ASKED, log))();
  expect(logged).toEqual([
    expect.objectContaining({
      level: 40,
      asked: ['OTEL_EXPORTER_OTLP_ENDPOINT'],
      msg: expect.stringContaining('install @opentelemetry/sdk-node'),
    }),
  ]);
});
