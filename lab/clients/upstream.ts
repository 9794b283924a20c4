import { createHash } from 'node:crypto';
import { createServer, type Socket } from 'node:net';
import { readAuthorization } from '../../test/digest/authorization-reader.ts';
import { type LoopbackServer, listenOnLoopback } from '../../test/support/loopback-server.ts';
import { Random } from '../simulation/random.ts';
import { type ReadRequest, readRequests, valuesOf } from '../wire/request-reading.ts';

export const ACCOUNT = { username: 'torture-user', password: 'torture-password' };
/** Stands in everything that no client is to get. */
export const SECRET = 'torture-secret';

const REALM = 'torture';
const NONCE = `${SECRET}-nonce`;

/** A request that reached the upstream. */
export interface Arrival {
  readonly request: ReadRequest;
  /** False: without the end of its body, before the connection closed. */
  readonly isWhole: boolean;
  readonly isAuthenticated: boolean;
}

export interface UpstreamListener {
  /** Returns the number that the response carries. */
  onArrival(arrival: Arrival): number;
  /** The gateway sent something that no upstream should get. */
  onFault(what: string): void;
}

/** An upstream with Digest that notes each request, read by the letter, and responds in many forms. */
export function startRecordingUpstream(listener: UpstreamListener): Promise<LoopbackServer> {
  return listenOnLoopback(createServer({ noDelay: true }, (socket) => serve(socket, listener)));
}

function serve(socket: Socket, listener: UpstreamListener): void {
  let text = '';
  socket.setEncoding('latin1');
  socket.on('error', () => socket.destroy());
  socket.on('data', (chunk: string) => {
    text += chunk;
    const { requests, rest } = readRequests(text);
    for (const request of requests) respond(socket, request, listener);
    if (rest === 'malformed') {
      listener.onFault(`the upstream got what is no request: ${JSON.stringify(text.slice(0, 2_000))}`);
      socket.destroy();
    }
    text = text.slice(requests.at(-1)?.end ?? 0);
  });
  socket.on('close', () => {
    const { begun } = readRequests(text);
    if (begun === undefined) return;
    listener.onArrival({ request: begun, isWhole: false, isAuthenticated: isAuthenticated(begun) });
  });
}

function isAuthenticated(request: ReadRequest): boolean {
  return valuesOf(request, 'authorization').length > 0;
}

function respond(socket: Socket, request: ReadRequest, listener: UpstreamListener): void {
  const [authorization, ...others] = valuesOf(request, 'authorization');
  const number = listener.onArrival({ request, isWhole: true, isAuthenticated: authorization !== undefined });
  if (authorization === undefined) {
    const challenge = `Digest realm="${REALM}", nonce="${NONCE}", qop="auth", algorithm=MD5`;
    socket.write(
      `HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: ${challenge}\r\nContent-Length: 0\r\n\r\n`,
      'latin1',
    );
    return;
  }
  if (others.length > 0 || !isRight(authorization, request)) {
    listener.onFault(
      `the upstream got a wrong Authorization for ${request.method} ${request.target}: ${authorization}`,
    );
  }
  const { text, closes } = responseTo(request, number);
  socket.write(text, 'latin1');
  if (closes) socket.end();
}

const md5 = (text: string): string => createHash('md5').update(text, 'latin1').digest('hex');
const HA1 = md5(`${ACCOUNT.username}:${REALM}:${ACCOUNT.password}`);

function isRight(authorization: string, { method, target }: ReadRequest): boolean {
  const given = readAuthorization(authorization);
  const value = (name: string): string => given.get(name)?.value ?? '';
  const answer = [HA1, value('nonce'), value('nc'), value('cnonce'), 'auth', md5(`${method}:${target}`)].join(
    ':',
  );
  return (
    value('uri') === target && value('username') === ACCOUNT.username && value('response') === md5(answer)
  );
}

const STATUSES = [
  '200 OK',
  '200 OK',
  '200 OK',
  '204 No Content',
  '304 Not Modified',
  '403 Forbidden',
  '404 Not Found',
  '500 Internal Server Error',
  '299',
];

/** Secrets of the upstream for the gateway alone. */
const FOR_THE_GATEWAY = [
  `WWW-Authenticate: Digest realm="${SECRET}", nonce="${SECRET}"`,
  `Authentication-Info: nextnonce="${SECRET}-next"`,
  `Set-Cookie: a=${SECRET}`,
  `Proxy-Authenticate: Basic realm="${SECRET}"`,
];

/** The form of the response follows from the target, so that a seed gives the same one again. */
function responseTo({ method, target }: ReadRequest, number: number): { text: string; closes: boolean } {
  const random = new Random(`${method} ${target}`);
  const status = random.pick(STATUSES);
  const isBodyless = method === 'HEAD' || status.startsWith('204') || status.startsWith('304');
  const body = `[${number}]`.repeat(random.pick([0, 1, 1, 3, 50, 2_000]));
  const closes = random.next() < 0.03;
  const lines = [
    `X-Arrival: ${number}`,
    ...(random.next() < 0.2 ? [random.pick(FOR_THE_GATEWAY)] : []),
    ...(closes ? ['Connection: close'] : []),
  ];
  const framing = isBodyless
    ? 'none'
    : random.pick(['length', 'length', 'chunks', closes ? 'end' : 'length']);
  if (framing === 'length') lines.push(`Content-Length: ${body.length}`);
  if (framing === 'chunks') lines.push('Transfer-Encoding: chunked');
  const interim = random.next() < 0.04 ? `HTTP/1.1 103 Early Hints\r\nX-Arrival: ${number}\r\n\r\n` : '';
  const head = `HTTP/1.1 ${status}\r\n${lines.map((line) => `${line}\r\n`).join('')}\r\n`;
  const bytes = { none: '', length: body, end: body, chunks: chunked(random, body) }[framing];
  return { text: interim + head + bytes, closes };
}

function chunked(random: Random, body: string): string {
  const half = Math.floor(body.length / 2);
  const pieces = [body.slice(0, half), body.slice(half)].filter((piece) => piece !== '');
  const chunks = pieces.map((piece) => `${piece.length.toString(16)}\r\n${piece}\r\n`).join('');
  return `${chunks}0\r\n${random.next() < 0.2 ? 'X-Trailer: 1\r\n' : ''}\r\n`;
}
