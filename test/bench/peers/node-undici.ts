import { randomBytes } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { createServer, type IncomingMessage, type OutgoingHttpHeaders, type ServerResponse } from 'node:http';
import { type Dispatcher, Pool } from 'undici';
import { Secret } from '../../../src/base/secret.ts';
import { type PreparedAnswer, prepareAnswer } from '../../../src/digest/authorization.ts';
import { parseChallenges } from '../../../src/digest/challenge.ts';

/**
 * The least that a Digest gateway on node:http and undici has to do: sign, send, pass the response on. No policy, no
 * limits, no metrics, no audit, one nonce. With "held", a small response is written at once, head and body, together
 * with all others of the same turn of the event loop.
 *
 * Arguments: port, origin of the upstream, file of its authority, most connections, user name, password, "held" or none.
 */
const [, , port, origin = '', caFile = '', connections, username = '', password = '', mode] = process.argv;
const HELD_BYTES = 64 * 1024;

const pool = new Pool(origin, {
  connections: Number(connections),
  keepAliveTimeout: 600_000,
  connect: { ca: readFileSync(caFile, 'utf8') },
});
const finished: Relay[] = [];
let prepared: PreparedAnswer | undefined;
let count = 0;

class Relay implements Dispatcher.DispatchHandler {
  readonly #req: IncomingMessage;
  readonly #res: ServerResponse;
  readonly #chunks: Buffer[] = [];
  #status = 0;
  #headers: OutgoingHttpHeaders = {};
  #held = false;
  #refused = false;
  #attempts = 0;

  constructor(req: IncomingMessage, res: ServerResponse) {
    this.#req = req;
    this.#res = res;
  }

  send(): void {
    this.#attempts += 1;
    const path = this.#req.url ?? '/';
    const headers: Record<string, string> = {};
    if (prepared !== undefined) {
      count += 1;
      headers['authorization'] = prepared.authorize({ method: 'GET', uri: path, nc: count });
    }
    pool.dispatch({ path, method: 'GET', headers }, this);
  }

  /** undici requires it. */
  onRequestStart(): void {}

  onResponseStart(_: Dispatcher.DispatchController, status: number, headers: OutgoingHttpHeaders): void {
    this.#refused =
      status === 401 && this.#attempts === 1 && takeChallenge(String(headers['www-authenticate']));
    if (this.#refused) return;
    delete headers['connection'];
    delete headers['keep-alive'];
    this.#status = status;
    this.#headers = headers;
    this.#held = mode === 'held' && Number(headers['content-length']) <= HELD_BYTES;
    if (!this.#held) this.#res.writeHead(status, headers);
  }

  onResponseData(controller: Dispatcher.DispatchController, chunk: Buffer): void {
    if (this.#refused) return;
    if (this.#held) {
      this.#chunks.push(chunk);
    } else if (!this.#res.write(chunk)) {
      controller.pause();
      this.#res.once('drain', () => controller.resume());
    }
  }

  onResponseEnd(): void {
    if (this.#refused) {
      this.send();
    } else if (!this.#held) {
      this.#res.end();
    } else {
      if (finished.length === 0) setImmediate(releaseAll);
      finished.push(this);
    }
  }

  onResponseError(): void {
    this.#res.destroy();
  }

  release(): void {
    const [only] = this.#chunks;
    const body = this.#chunks.length === 1 ? only : Buffer.concat(this.#chunks);
    this.#res.writeHead(this.#status, this.#headers).end(body);
  }
}

function releaseAll(): void {
  for (const relay of finished.splice(0)) relay.release();
}

/** Takes the nonce of a challenge; false if there is none that can be answered. */
function takeChallenge(challenge: string): boolean {
  const [parsed] = parseChallenges([challenge]);
  if (parsed === undefined) return false;
  prepared = prepareAnswer(
    parsed,
    { username, password: new Secret(password) },
    randomBytes(8).toString('hex'),
  );
  count = 0;
  return true;
}

createServer((req, res) => new Relay(req, res).send()).listen(Number(port), '127.0.0.1');
