import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { ZodError } from 'zod';
import type { Deployment } from './deployment.ts';

const maxBody = 65_536;

/** A response on the side port. */
interface Answer {
  readonly status: number;
  readonly type: string;
  readonly body: string;
}

/** Plain HTTP on loopback: counts, changes of behaviour, and the authority's certificate. */
export class SidePort {
  readonly #server: Server;
  readonly #deployments: ReadonlyMap<string, Deployment>;
  readonly #ca: string;

  constructor(deployments: ReadonlyMap<string, Deployment>, ca: string) {
    this.#deployments = deployments;
    this.#ca = ca;
    this.#server = createServer((request, response) => void this.#serve(request, response));
  }

  /** Resolves to the port. @throws if the port cannot be opened. */
  listen(port: number): Promise<number> {
    return new Promise((resolve, reject) => {
      this.#server.once('error', reject);
      this.#server.listen(port, '127.0.0.1', () => resolve((this.#server.address() as AddressInfo).port));
    });
  }

  close(): Promise<void> {
    return new Promise((resolve) => {
      this.#server.close(() => resolve());
      this.#server.closeAllConnections();
    });
  }

  async #serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { status, type, body } = await this.#answer(request).catch(problem);
    response.writeHead(status, {
      'content-type': type,
      'content-length': Buffer.byteLength(body),
      ...(status === 413 && { connection: 'close' }),
    });
    response.end(body);
  }

  async #answer(request: IncomingMessage): Promise<Answer> {
    const [, first = '', name = '', last] = (request.url ?? '').split('/');
    const asked = `${request.method} /${first}${last === undefined ? '' : `/${last}`}`;
    if (asked === 'GET /counts' && name === '') return json(200, this.#counts());
    if (asked === 'GET /ca.pem' && name === '') {
      return { status: 200, type: 'application/x-pem-file', body: this.#ca };
    }
    if (asked !== 'PUT /deployments' && asked !== 'POST /deployments/reset') {
      return json(404, { error: 'No such path.' });
    }
    const deployment = this.#deployments.get(name);
    if (deployment === undefined) return json(404, { error: `No deployment has this name.` });
    if (last === 'reset') deployment.reset();
    else deployment.change(JSON.parse(await readBody(request)));
    return json(200, deployment.counts());
  }

  #counts(): Record<string, unknown> {
    return Object.fromEntries(
      Array.from(this.#deployments, ([name, deployment]) => [name, deployment.counts()]),
    );
  }
}

function json(status: number, value: unknown): Answer {
  return { status, type: 'application/json', body: `${JSON.stringify(value)}\n` };
}

class TooLarge extends Error {}

async function readBody(request: IncomingMessage): Promise<string> {
  const chunks: Buffer[] = [];
  let length = 0;
  // Without `destroyOnReturn: false` the connection would be destroyed before the error response is written.
  for await (const chunk of request.iterator({ destroyOnReturn: false }) as AsyncIterable<Buffer>) {
    length += chunk.length;
    if (length > maxBody) throw new TooLarge();
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString('utf8');
}

function problem(error: unknown): Answer {
  if (error instanceof ZodError) {
    return json(400, {
      error: error.issues.map(({ path, message }) => `${path.join('.')}: ${message}`).join('; '),
    });
  }
  if (error instanceof SyntaxError) return json(400, { error: 'The body is not JSON.' });
  if (error instanceof TooLarge) return json(413, { error: 'The body is too large.' });
  return json(500, { error: 'The request failed.' });
}
