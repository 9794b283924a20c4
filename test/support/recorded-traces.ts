import { randomBytes } from 'node:crypto';
import {
  type Attributes,
  type Context,
  createTraceState,
  propagation,
  type Span,
  type SpanContext,
  SpanKind,
  type TextMapPropagator,
  TraceFlags,
  type Tracer,
  trace,
} from '@opentelemetry/api';

/** A span that has ended. */
export interface RecordedSpan {
  readonly name: string;
  readonly kind: string;
  readonly traceId: string;
  readonly id: string;
  /** The id of the span that it belongs to; empty: it is the first of its trace. */
  readonly parent: string;
  readonly attributes: Attributes;
  readonly events: readonly string[];
}

const FORMAT = /^00-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}$/;

/** A tracer as an SDK has it, which samples all traces or none, and the W3C format that is registered for the process. */
export function recordTraces(traceFlags = TraceFlags.SAMPLED): { tracer: Tracer; spans: RecordedSpan[] } {
  const spans: RecordedSpan[] = [];
  propagation.setGlobalPropagator(w3c);
  const startSpan: Tracer['startSpan'] = (
    name,
    { kind = SpanKind.INTERNAL, attributes = {} } = {},
    context,
  ) => {
    const parent = context && trace.getSpanContext(context);
    const own: SpanContext = {
      traceId: parent?.traceId ?? randomBytes(16).toString('hex'),
      spanId: randomBytes(8).toString('hex'),
      traceFlags,
    };
    const recorded = {
      name,
      kind: SpanKind[kind] ?? '',
      traceId: own.traceId,
      id: own.spanId,
      parent: parent?.spanId ?? '',
      attributes: { ...attributes },
      events: [] as string[],
    };
    return recordingSpan(own, recorded, () => spans.push(recorded));
  };
  const tracer: Tracer = {
    startSpan,
    startActiveSpan: () => {
      throw new Error('spans are passed on, never active');
    },
  };
  return { tracer, spans };
}

function recordingSpan(
  context: SpanContext,
  recorded: { attributes: Attributes; events: string[] },
  onEnd: () => void,
): Span {
  const span: Span = {
    spanContext: () => context,
    setAttribute: (key, value) => span.setAttributes({ [key]: value }),
    setAttributes: (attributes) => {
      Object.assign(recorded.attributes, attributes);
      return span;
    },
    addEvent: (name) => {
      recorded.events.push(name);
      return span;
    },
    addLink: () => span,
    addLinks: () => span,
    setStatus: () => span,
    updateName: () => span,
    end: onEnd,
    isRecording: () => true,
    recordException: () => undefined,
  };
  return span;
}

const w3c: TextMapPropagator = {
  fields: () => ['traceparent'],
  inject(context, carrier, { set }) {
    const { traceId = '', spanId = '' } = trace.getSpanContext(context) ?? {};
    set(carrier, 'traceparent', `00-${traceId}-${spanId}-01`);
  },
  extract(context: Context, carrier, { get }) {
    const [, traceId, spanId] = FORMAT.exec(String(get(carrier, 'traceparent'))) ?? [];
    if (traceId === undefined || spanId === undefined) return context;
    const traceState = createTraceState();
    return trace.setSpanContext(context, {
      traceId,
      spanId,
      traceFlags: TraceFlags.SAMPLED,
      traceState,
      isRemote: true,
    });
  },
};
