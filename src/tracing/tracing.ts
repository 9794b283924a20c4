import type { IncomingHttpHeaders } from 'node:http';
import {
  type Attributes,
  type Context,
  isSpanContextValid,
  propagation,
  ROOT_CONTEXT,
  type Span,
  SpanKind,
  SpanStatusCode,
  TraceFlags,
  type Tracer,
  trace,
} from '@opentelemetry/api';

const NAME = 'digest-gateway';

/** The headers that carry the context of a trace (W3C Trace Context §3, W3C Baggage §3). */
export const TRACE_HEADERS = ['traceparent', 'tracestate', 'baggage'] as const;

/** One piece of work in a trace, from its making to `end`. */
export class TracedWork {
  readonly #tracer: Tracer;
  readonly #context: Context;
  readonly #span: Span;

  constructor(tracer: Tracer, name: string, kind: SpanKind, parent: Context, attributes: Attributes) {
    this.#tracer = tracer;
    this.#span = tracer.startSpan(name, { kind, attributes }, parent);
    this.#context = trace.setSpan(parent, this.#span);
  }

  /** The id of its trace; undefined: nobody keeps it. */
  get traceId(): string | undefined {
    const { traceId, traceFlags } = this.#span.spanContext();
    return (traceFlags & TraceFlags.SAMPLED) === 0 ? undefined : traceId;
  }

  /** Work inside this process that belongs to it. */
  child(name: string, attributes: Attributes = {}): TracedWork {
    return new TracedWork(this.#tracer, name, SpanKind.INTERNAL, this.#context, attributes);
  }

  /** A request to another service that belongs to it. */
  call(name: string, attributes: Attributes): TracedWork {
    return new TracedWork(this.#tracer, name, SpanKind.CLIENT, this.#context, attributes);
  }

  /** Something that happened in its course. */
  event(name: string, attributes: Attributes): void {
    this.#span.addEvent(name, attributes);
  }

  describe(attributes: Attributes): void {
    this.#span.setAttributes(attributes);
  }

  /** Ends it; with the code of what went wrong, if something did. */
  end(code = ''): void {
    if (code !== '') {
      this.#span.setAttribute('error.type', code);
      this.#span.setStatus({ code: SpanStatusCode.ERROR });
    }
    this.#span.end();
  }

  /** What tells another service of the trace, flat: name, value … */
  headers(): string[] {
    const fields: Record<string, string> = {};
    propagation.inject(this.#context, fields);
    return Object.entries(fields).flat();
  }
}

/** Makes traces where an OpenTelemetry SDK is there to take them. */
export class Tracing {
  readonly #tracer: Tracer;

  constructor(tracer: Tracer) {
    this.#tracer = tracer;
  }

  /** The work for one client's request; continues the client's trace if its headers tell of one. */
  request(headers: IncomingHttpHeaders, attributes: Attributes): TracedWork {
    const parent = propagation.extract(ROOT_CONTEXT, headers);
    return new TracedWork(this.#tracer, 'request', SpanKind.SERVER, parent, attributes);
  }

  /** Work that no request asked for. */
  background(name: string, attributes: Attributes): TracedWork {
    return new TracedWork(this.#tracer, name, SpanKind.INTERNAL, ROOT_CONTEXT, attributes);
  }
}

/** Undefined where no SDK is registered: requests then make no spans at all, not even ones that do nothing. */
export function openTracing(version: string): Tracing | undefined {
  const tracer = trace.getTracer(NAME, version);
  // The API gives a tracer either way; only a real one gives spans with an id. It is never ended, so never exported.
  const span = tracer.startSpan('probe', { root: true });
  return isSpanContextValid(span.spanContext()) ? new Tracing(tracer) : undefined;
}
