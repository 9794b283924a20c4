import { createRequire } from 'node:module';
import type * as OpenTelemetry from '@opentelemetry/api';
import type { Attributes, Context, Span, TextMapGetter, Tracer } from '@opentelemetry/api';
import { joinedValue, type RawHeaders } from '../base/raw-headers.ts';

const require = createRequire(import.meta.url);
/** The copy that an SDK requires. An import would load another one, of 51 modules. */
const api: typeof OpenTelemetry = require('@opentelemetry/api');
const { propagation, ROOT_CONTEXT, SpanKind, SpanStatusCode, TraceFlags, trace } = api;

const NAME = 'digest-gateway';

const RAW_HEADERS: TextMapGetter<RawHeaders> = {
  get: (headers, name) => joinedValue(headers, name.toLowerCase()),
  keys: (headers) => headers.filter((_, at) => at % 2 === 0),
};

/** A span of a trace, from its creation to `end`. */
export class TracedWork {
  readonly #tracer: Tracer;
  readonly #context: Context;
  readonly #span: Span;

  constructor(
    tracer: Tracer,
    name: string,
    kind: OpenTelemetry.SpanKind,
    parent: Context,
    attributes: Attributes,
  ) {
    this.#tracer = tracer;
    this.#span = tracer.startSpan(name, { kind, attributes }, parent);
    this.#context = trace.setSpan(parent, this.#span);
  }

  /** Id of its trace; undefined if the trace is not sampled. */
  get traceId(): string | undefined {
    const { traceId, traceFlags } = this.#span.spanContext();
    return (traceFlags & TraceFlags.SAMPLED) === 0 ? undefined : traceId;
  }

  /** Starts a child span for work inside this process. */
  child(name: string, attributes: Attributes = {}): TracedWork {
    return new TracedWork(this.#tracer, name, SpanKind.INTERNAL, this.#context, attributes);
  }

  /** Starts a child span for a request to another service. */
  call(name: string, attributes: Attributes): TracedWork {
    return new TracedWork(this.#tracer, name, SpanKind.CLIENT, this.#context, attributes);
  }

  /** Adds an event to the span. */
  event(name: string, attributes: Attributes): void {
    this.#span.addEvent(name, attributes);
  }

  describe(attributes: Attributes): void {
    this.#span.setAttributes(attributes);
  }

  /** Ends the span, with an error code if the work failed. */
  end(code = ''): void {
    if (code !== '') {
      this.#span.setAttribute('error.type', code);
      this.#span.setStatus({ code: SpanStatusCode.ERROR });
    }
    this.#span.end();
  }

  /** Returns the headers that propagate the trace, flat: name, value … */
  headers(): string[] {
    const fields: Record<string, string> = {};
    propagation.inject(this.#context, fields);
    return Object.entries(fields).flat();
  }
}

/** Creates spans through a registered OpenTelemetry SDK. */
export class Tracing {
  readonly #tracer: Tracer;

  constructor(tracer: Tracer) {
    this.#tracer = tracer;
  }

  /** Starts the span of a client request; continues the client's trace if its headers contain one. */
  request(headers: RawHeaders, attributes: Attributes): TracedWork {
    const parent = propagation.extract(ROOT_CONTEXT, headers, RAW_HEADERS);
    return new TracedWork(this.#tracer, 'request', SpanKind.SERVER, parent, attributes);
  }

  /** Starts a root span for work without a client request. */
  background(name: string, attributes: Attributes): TracedWork {
    return new TracedWork(this.#tracer, name, SpanKind.INTERNAL, ROOT_CONTEXT, attributes);
  }
}

/** Opens tracing; undefined if no SDK is registered, so that requests create no spans at all. */
export function openTracing(version: string): Tracing | undefined {
  const tracer = trace.getTracer(NAME, version);
  // The API always returns a tracer, but only an SDK's creates valid spans. This one is not ended, so not sent.
  const span = tracer.startSpan('probe', { root: true });
  return api.isSpanContextValid(span.spanContext()) ? new Tracing(tracer) : undefined;
}
