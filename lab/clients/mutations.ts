import type { Mutation } from '../simulation/mutations.ts';

/** Each has to be found: see `lab/simulation/mutations.ts`. */
export const MUTATIONS: readonly Mutation[] = [
  {
    name: 'reads-ahead',
    breaks: 'no request is read before the response to the last one has left',
    file: 'src/gateway/client-connection.ts',
    find: 'if (!this.#isHandled || this.#exchange?.isComplete !== true) return;',
    replace: 'if (this.#exchange?.isComplete !== true) return;',
  },
  {
    name: 'reads-behind-last',
    breaks: 'no request is read behind a response that says close',
    file: 'src/gateway/client-connection.ts',
    find: '  #end(exchange: ClientExchange): void {\n    this.refuseRest();\n',
    replace: '  #end(exchange: ClientExchange): void {\n',
  },
  {
    name: 'ambiguous-coding',
    breaks: 'a transfer coding other than chunked is refused',
    file: 'src/gateway/request-reader.ts',
    find: "coding.toLowerCase() !== 'chunked'",
    replace: "!coding.toLowerCase().includes('chunked')",
  },
  {
    name: 'target-unchecked',
    breaks: 'a path that leads out of its deployment is refused',
    file: 'src/policy/decide.ts',
    find: '  if (isOwnPath?.(path) === false) throw ambiguousPath();\n',
    replace: '',
  },
  {
    name: 'target-changed',
    breaks: 'the target reaches the upstream byte for byte',
    file: 'src/gateway/routing.ts',
    find: 'absolute: false, path: target }',
    replace: "absolute: false, path: target.replace('%C3', '%c3') }",
  },
  {
    name: 'goes-on-after-400',
    breaks: 'nothing is read behind a malformed request',
    file: 'src/gateway/gateway.ts',
    find: "  'bad-request',\n  'headers-too-large',\n",
    replace: "  'headers-too-large',\n",
  },
  {
    name: 'body-cut',
    breaks: 'the body reaches the upstream whole',
    file: 'src/transport/request-body.ts',
    find: '  yield* start.splice(0);\n',
    replace: '  yield* start.splice(1);\n',
  },
  {
    name: 'proof-leaks',
    breaks: 'Authentication-Info does not reach a client',
    file: 'src/gateway/headers.ts',
    find: "  'www-authenticate',\n  'authentication-info',\n",
    replace: "  'www-authenticate',\n",
  },
];
