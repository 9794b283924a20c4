/** The part of a request's work that a function belongs to. */
export type Phase = (typeof PHASES)[number];

export const PHASES = [
  'inbound parse',
  'identify',
  'policy',
  'limits',
  'pipeline',
  'handshake',
  'sign',
  'upstream write',
  'upstream parse',
  'head',
  'body',
  'audit',
  'metrics',
  'GC',
  'event loop',
  'other',
] as const;

/** A function of a profile; `file` is relative to `src/` or `node_modules/`, or what V8 has instead. */
export interface Frame {
  readonly file: string;
  readonly name: string;
}

interface Rule {
  /** Start of the file's name. */
  readonly file: string;
  /** Only functions like this; left out: all of the file. */
  readonly name?: RegExp;
  /** `caller`: work for whatever calls it. */
  readonly phase: Phase | 'caller';
}

/** The first rule that fits counts. Every file of `src/` has to exist: see `phase-rules.test.ts`. */
export const RULES: readonly Rule[] = [
  { file: 'gateway/relay', name: /^(#stream|#pass)$/, phase: 'body' },
  { file: 'gateway/relay', name: /^(Relay|endUpstream)$/, phase: 'pipeline' },
  { file: 'gateway/relay', phase: 'head' },
  { file: 'gateway/client-response', name: /^write$/, phase: 'body' },
  { file: 'gateway/client-response', phase: 'head' },
  { file: 'gateway/headers', name: /^outbound/, phase: 'upstream write' },
  { file: 'gateway/headers', name: /^(in(bound|terim)|keptLines|linesOf|lineOf|dateLine)/, phase: 'head' },
  { file: 'gateway/headers', phase: 'caller' },
  { file: 'gateway/routing', name: /^(find|#named)$/, phase: 'policy' },
  { file: 'gateway/gateway', phase: 'pipeline' },
  { file: 'gateway/client-exchange', phase: 'pipeline' },
  { file: 'gateway/request-record', name: /^(requestIdOf|newUuid)$/, phase: 'pipeline' },
  { file: 'gateway/request-record', phase: 'metrics' },
  { file: 'gateway/', phase: 'inbound parse' },
  { file: 'identity/', phase: 'identify' },
  { file: 'policy/', phase: 'policy' },
  { file: 'limits/', phase: 'limits' },
  { file: 'handshake/account', name: /^(un)?signed$|^(payload|hashOf)$/, phase: 'sign' },
  { file: 'handshake/response', phase: 'body' },
  { file: 'handshake/', phase: 'handshake' },
  { file: 'upstream/', phase: 'handshake' },
  { file: 'challenges/', phase: 'sign' },
  { file: 'digest/', phase: 'sign' },
  {
    file: 'transport/',
    name: /^(on[RD]|#?(read|parse|take|head|start|finish|prove|check|end))/,
    phase: 'upstream parse',
  },
  { file: 'transport/response', phase: 'upstream parse' },
  { file: 'transport/', phase: 'upstream write' },
  { file: 'http1/', phase: 'caller' },
  { file: 'audit/', phase: 'audit' },
  { file: 'metrics/', phase: 'metrics' },
  { file: 'tracing/', phase: 'metrics' },
  { file: 'app/', phase: 'metrics' },
  { file: 'base/', phase: 'caller' },
  { file: 'node_modules/prom-client/', phase: 'metrics' },
  { file: 'node_modules/pino/', phase: 'metrics' },
  { file: 'node:_http_outgoing', phase: 'head' },
  { file: 'node:_http_common', name: /^(parserOn|freeParser|execute)/, phase: 'inbound parse' },
  { file: 'node:_http_server', phase: 'inbound parse' },
  { file: 'node:_http_incoming', phase: 'inbound parse' },
  { file: 'node:', phase: 'caller' },
  { file: '', name: /^\(garbage collector\)$/, phase: 'GC' },
  { file: '', name: /^\((program|idle)\)$/, phase: 'event loop' },
];

/** Native functions, and those that serve many phases, belong to the phase of their caller. */
export function phaseOf({ file, name }: Frame, caller: Phase): Phase {
  const rule = RULES.find(
    (each) =>
      (each.file === '' ? file === '' : file.startsWith(each.file)) && each.name?.test(name) !== false,
  );
  if (rule !== undefined) return rule.phase === 'caller' ? caller : rule.phase;
  return file === '' ? caller : 'other';
}
