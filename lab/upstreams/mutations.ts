import type { Mutation } from '../simulation/mutations.ts';

/** Each has to be found: see `lab/simulation/mutations.ts`. */
export const MUTATIONS: readonly Mutation[] = [
  {
    name: 'surplus-kept',
    breaks: 'what follows a response is not taken for the response to the next request',
    file: 'src/transport/response-reader.ts',
    find: '    if (at < input.length) this.isPersistent = false;',
    replace: [
      '    const rest = input.subarray(at);',
      '    if (rest.length > 0) this.begin = (...sent) => {',
      '      delete this.begin;',
      '      this.begin(...sent);',
      '      queueMicrotask(() => { try { this.read(rest); } catch {} });',
      '    };',
    ].join('\n'),
  },
  {
    name: 'short-body',
    breaks: 'a response that breaks off is broken off for the client',
    file: 'src/transport/response-reader.ts',
    find: '    if (this.#body.endsWithConnection) {\n',
    replace: '    if (this.isInBody) {\n',
  },
  {
    name: 'two-lengths',
    breaks: 'a response with two lengths is refused',
    file: 'src/transport/response-reader.ts',
    find: "const lengths = joinedValue(headers, 'content-length');",
    replace: "const lengths = joinedValue(headers, 'content-length')?.split(',')[0];",
  },
  {
    name: 'interim-flood',
    breaks: 'no more than 64 interim responses are passed on',
    file: 'src/transport/response-reader.ts',
    find: 'const MAX_INTERIM = 64;',
    replace: 'const MAX_INTERIM = 6400;',
  },
  {
    name: 'refusal-passed-on',
    breaks: 'a 401 of the upstream does not reach a client',
    file: 'src/handshake/account.ts',
    find: '  return status === RESPONSES[field].challenged;',
    replace: '  return status === 407;',
  },
  {
    name: 'challenge-leaks',
    breaks: 'WWW-Authenticate does not reach a client',
    file: 'src/gateway/headers.ts',
    find: "  'www-authenticate',\n  'authentication-info',\n",
    replace: "  'authentication-info',\n",
  },
];
