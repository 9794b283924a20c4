import { randomBytes } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { connect, type TLSSocket } from 'node:tls';
import { Secret } from '../../../src/base/secret.ts';
import { type PreparedAnswer, prepareAnswer } from '../../../src/digest/authorization.ts';
import { parseChallenges } from '../../../src/digest/challenge.ts';

/**
 * The least that a Digest gateway has to do on the sockets of Node.js: find the end of a head, sign, send, pass head and
 * body on in one write. It reads what the benchmark sends and what lighttpd answers, checks nothing, and ends with any
 * error.
 *
 * Arguments: port, origin of the upstream, file of its authority, most connections, user name, password.
 */
const [, , port, originText = '', caFile = '', most, username = '', password = ''] = process.argv;
const origin = new URL(originText);
const ca = readFileSync(caFile);

const HEAD_END = Buffer.from('\r\n\r\n');
const REQUEST_LINE = /^([A-Z]+) (\S+) HTTP\/1\.1\r\n/;
const LENGTH = /content-length: (\d+)/i;
const CHALLENGE = /www-authenticate: ([^\r]*)/i;
const OF_CONNECTION = /^(?:host|connection|keep-alive|authorization)$/i;

/** Gets the status line and fields of a response without the empty line, and its body. */
type OnResponse = (head: string, body: Buffer) => void;

const idle: UpstreamConnection[] = [];
const waiting: ((connection: UpstreamConnection) => void)[] = [];
let connections = 0;
let prepared: PreparedAnswer | undefined;
let count = 0;

class UpstreamConnection {
  readonly #socket: TLSSocket;
  #onResponse: OnResponse | undefined;
  #head = '';
  #missing = 0;
  #pieces: Buffer[] = [];

  constructor() {
    this.#socket = connect({ host: origin.hostname, port: Number(origin.port), ca });
    this.#socket.setNoDelay(true);
    this.#socket.once('secureConnect', () => offer(this));
    this.#socket.on('data', (bytes: Buffer) => this.#read(bytes));
  }

  send(text: string, onResponse: OnResponse): void {
    this.#onResponse = onResponse;
    this.#socket.write(text, 'latin1');
  }

  #read(bytes: Buffer): void {
    let piece = bytes;
    if (this.#head === '') {
      const end = bytes.indexOf(HEAD_END);
      this.#head = bytes.toString('latin1', 0, end + 2);
      this.#missing = Number(LENGTH.exec(this.#head)?.[1]);
      piece = bytes.subarray(end + HEAD_END.length);
    }
    this.#pieces.push(piece);
    this.#missing -= piece.length;
    if (this.#missing <= 0) this.#end();
  }

  #end(): void {
    const head = this.#head;
    const [only, ...others] = this.#pieces;
    const body = only === undefined || others.length > 0 ? Buffer.concat(this.#pieces) : only;
    this.#head = '';
    this.#pieces = [];
    const onResponse = this.#onResponse;
    offer(this);
    onResponse?.(head, body);
  }
}

function offer(connection: UpstreamConnection): void {
  const first = waiting.shift();
  if (first === undefined) idle.push(connection);
  else first(connection);
}

function withConnection(use: (connection: UpstreamConnection) => void): void {
  const connection = idle.pop();
  if (connection !== undefined) {
    use(connection);
    return;
  }
  waiting.push(use);
  if (connections >= Number(most)) return;
  connections += 1;
  new UpstreamConnection();
}

/** The lines of a head from `start` on, without those of the connection. */
function passedOn(head: string, start: number): string {
  let lines = '';
  for (let at = start, end = 0; at < head.length; at = end) {
    end = head.indexOf('\r\n', at) + 2;
    if (!OF_CONNECTION.test(head.slice(at, head.indexOf(':', at)))) lines += head.slice(at, end);
  }
  return lines;
}

function ask(method: string, target: string, fields: string, onAnswer: OnResponse): void {
  let authorization = '';
  if (prepared !== undefined) {
    count += 1;
    authorization = `authorization: ${prepared.authorize({ method, uri: target, nc: count })}\r\n`;
  }
  const text = `${method} ${target} HTTP/1.1\r\nhost: ${origin.host}\r\n${fields}${authorization}\r\n`;
  withConnection((connection) =>
    connection.send(text, (head, body) => {
      if (head.startsWith('HTTP/1.1 401') && takeChallenge(head)) ask(method, target, fields, onAnswer);
      else onAnswer(head, body);
    }),
  );
}

/** Takes the nonce of a challenge; false if there is none that can be answered. */
function takeChallenge(head: string): boolean {
  const [parsed] = parseChallenges([CHALLENGE.exec(head)?.[1] ?? '']);
  if (parsed === undefined) return false;
  const credential = { username, password: new Secret(password) };
  prepared = prepareAnswer(parsed, credential, randomBytes(8).toString('hex'));
  count = 0;
  return true;
}

createServer({ noDelay: true }, (socket) => {
  socket.on('error', () => socket.destroy());
  socket.on('data', (bytes: Buffer) => {
    const head = bytes.toString('latin1', 0, bytes.indexOf(HEAD_END) + 2);
    const [line = '', method = '', target = ''] = REQUEST_LINE.exec(head) ?? [];
    ask(method, target, passedOn(head, line.length), (response, body) => {
      const statusEnd = response.indexOf('\r\n') + 2;
      socket.cork();
      socket.write(
        `${response.slice(0, statusEnd)}${passedOn(response, statusEnd)}connection: keep-alive\r\n\r\n`,
        'latin1',
      );
      socket.write(body);
      socket.uncork();
    });
  });
}).listen(Number(port), '127.0.0.1');
