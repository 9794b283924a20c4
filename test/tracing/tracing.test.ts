import { afterEach, expect, test } from '@jest/globals';
import { TraceFlags, trace } from '@opentelemetry/api';
import { openTracing, Tracing } from '../../src/tracing/tracing.ts';
import { recordTraces } from '../support/recorded-traces.ts';

afterEach(() => trace.disable());

test('without an SDK there is nothing to trace with', () => {
  expect(openTracing('1')).toBeUndefined();
});

test('a registered SDK is found, and the search for it leaves no span', () => {
  const { tracer, spans } = recordTraces();
  trace.setGlobalTracerProvider({ getTracer: () => tracer });
  openTracing('1')?.request([], { a: 1 }).end('upstream-tls');
  expect(spans).toEqual([
    expect.objectContaining({
      name: 'request',
      kind: 'SERVER',
      parent: '',
      attributes: { a: 1, 'error.type': 'upstream-tls' },
    }),
  ]);
});

test.each([
  ['sampled', TraceFlags.SAMPLED, /^[0-9a-f]{32}$/],
  ['not sampled', TraceFlags.NONE, /^undefined$/],
])('the id that metrics and the audit log name, of a trace that is %s', (_, flags, traceId) => {
  const { tracer } = recordTraces(flags);
  expect(String(new Tracing(tracer).request([], {}).traceId)).toMatch(traceId);
});
