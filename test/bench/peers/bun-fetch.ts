import { randomBytes } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { Secret } from '../../../src/base/secret.ts';
import { type PreparedAnswer, prepareAnswer } from '../../../src/digest/authorization.ts';
import { parseChallenges } from '../../../src/digest/challenge.ts';

/**
 * A Digest proxy of what Bun brings, `serve` and `fetch`: it signs, sends, and passes the response on.
 *
 * Arguments: port, origin of the upstream, file of its authority, most connections, user name, password.
 */
const [, , port, origin = '', caFile = '', , username = '', password = ''] = process.argv;
const tls = { ca: readFileSync(caFile, 'utf8') };

interface Bun {
  serve(options: { port: number; hostname: string; fetch(request: Request): Promise<Response> }): void;
}

/** What Bun adds to the options of `fetch`. */
interface FetchOptions extends RequestInit {
  readonly tls: { readonly ca: string };
  readonly decompress: boolean;
}

let prepared: PreparedAnswer | undefined;
let count = 0;

(globalThis as unknown as { Bun: Bun }).Bun.serve({
  port: Number(port),
  hostname: '127.0.0.1',
  async fetch(request) {
    // The path of the URL is what the benchmark sent, since it sends nothing that a parser changes.
    const target = request.url.slice(request.url.indexOf('/', 'http://'.length));
    let response = await send(request, target);
    if (response.status === 401 && takeChallenge(response)) {
      await response.arrayBuffer();
      response = await send(request, target);
    }
    return response;
  },
});

function send(request: Request, target: string): Promise<Response> {
  const headers = new Headers(request.headers);
  headers.delete('host');
  headers.delete('connection');
  if (prepared !== undefined) {
    count += 1;
    headers.set('authorization', prepared.authorize({ method: request.method, uri: target, nc: count }));
  }
  const options: FetchOptions = {
    method: request.method,
    headers,
    tls,
    decompress: false,
    redirect: 'manual',
  };
  return fetch(origin + target, options);
}

/** Takes the first challenge of a 401; false if there is none. */
function takeChallenge(response: Response): boolean {
  const [parsed] = parseChallenges([response.headers.get('www-authenticate') ?? '']);
  if (parsed === undefined) return false;
  const credential = { username, password: new Secret(password) };
  prepared = prepareAnswer(parsed, credential, randomBytes(8).toString('hex'));
  count = 0;
  return true;
}
