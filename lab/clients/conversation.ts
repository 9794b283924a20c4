import { connect, type Socket } from 'node:net';
import { setImmediate as turn } from 'node:timers/promises';
import { type RawResponse, readRawResponse, valuesOf } from '../../test/support/raw-client.ts';
import { type ReadRequest, type RequestReading, readRequests } from '../wire/request-reading.ts';
import { checkForClient, checkProblem, shown } from '../wire/response-checks.ts';
import { bytesOf, type ConnectionPlan } from './grammar.ts';
import type { Message } from './message.ts';
import { isForbidden, LARGEST_HEAD, upstreamTarget } from './rules.ts';
import { type Arrival, SECRET } from './upstream.ts';

/** Errors after which the start of a next request would be uncertain. */
const MALFORMED: ReadonlySet<string | undefined> = new Set(['bad-request', 'not-implemented']);
/** The longest that a connection may take, in milliseconds; the timeouts of the gateway are a tenth of it. */
const HANG_MS = 60_000;
/** So long a client waits for the end of a connection on which it sent what is malformed; then it ends its side. */
const PATIENCE_MS = 1_000;

/** One request of the connection, as RFC 9112 reads it. */
interface Expected {
  readonly request: ReadRequest;
  /** The target that is to reach the upstream. */
  readonly target: string | undefined;
  /** The message that it is; undefined: a message was read otherwise than it was meant. */
  readonly message: Message | undefined;
  readonly isWhole: boolean;
  /** The number of the authenticated arrival. */
  arrival: number | undefined;
}

/** One connection of a client with all its messages, and what must hold for it. */
export class Conversation {
  readonly plan: ConnectionPlan;
  readonly violations: string[] = [];
  readonly #host: string;
  readonly #text: string;
  readonly #reading: RequestReading;
  readonly #expected: readonly Expected[];
  #received: Buffer = Buffer.alloc(0);
  #answered = 0;
  /** The response that said that the connection ends. */
  #closedAt: number | undefined;
  #lastArrival = -1;
  #ended = false;
  #news: (() => void) | undefined;

  constructor(plan: ConnectionPlan, host: string) {
    this.plan = plan;
    this.#host = host;
    this.#text = bytesOf(plan.messages).slice(0, plan.sent);
    this.#reading = readRequests(this.#text);
    this.#expected = this.#expectations();
  }

  /** Targets with which requests of this connection may reach the upstream. */
  get targets(): readonly string[] {
    return this.#expected.flatMap(({ target }) => target ?? []);
  }

  /** The bytes that are sent, and how they are read. */
  describe(): string {
    const { rest } = this.#reading;
    const read = this.#expected.map(
      ({ request, arrival }) => `${request.method} ${request.target} → ${arrival ?? 'nowhere'}`,
    );
    return `${shown(this.#text)}\nread as: ${read.join('; ')}; then ${rest}\npace ${this.plan.pace}, then ${this.plan.ending}\nreceived: ${shown(this.#received.toString('latin1').slice(0, 500))}`;
  }

  /** True if an arrival is of this connection, which may be a violation all the same. */
  claim(arrival: Arrival, number: number): boolean {
    const index = this.#expected.findIndex((each) => isOf(arrival, each));
    const found = this.#expected[index];
    if (found === undefined) return false;
    const name = `${arrival.request.method} ${arrival.request.target}`;
    if (isForbidden(found.request, this.#host)) this.#violate(`${name} reached the upstream`);
    if (!arrival.isAuthenticated) return true;
    if (arrival.isWhole && !found.isWhole)
      this.#violate(`${name} reached the upstream whole, but was not sent whole`);
    // One that broke off is noted when its connection has closed.
    if (arrival.isWhole && index < this.#lastArrival)
      this.#violate(`${name} reached the upstream after a later request`);
    if (this.#closedAt !== undefined && index > this.#closedAt) {
      this.#violate(`${name} reached the upstream, though the connection had ended before it`);
    }
    this.#lastArrival = index;
    found.arrival = number;
    return true;
  }

  /** Resolves when the connection has ended, or has served what it is for. */
  async run(port: number): Promise<void> {
    const socket = connect({ port, host: '127.0.0.1', noDelay: true });
    const timer = setTimeout(() => {
      this.#violate(`hangs: ${this.#answered} of ${this.#expected.length} responses came`);
      this.#end();
    }, HANG_MS);
    socket.on('data', (chunk: Buffer) => this.#receive(chunk));
    socket.on('end', () => this.#end());
    socket.on('close', () => this.#end());
    socket.on('error', () => this.#end());
    try {
      await this.#send(socket);
      if (this.plan.ending === 'reset') socket.resetAndDestroy();
      else await this.#finish(socket);
    } finally {
      clearTimeout(timer);
      socket.destroy();
    }
  }

  #expectations(): Expected[] {
    const { requests, begun } = this.#reading;
    const all = begun === undefined ? requests : [...requests, begun];
    const ends = new Map<number, { message: Message; start: number }>();
    let start = 0;
    for (const message of this.plan.messages) {
      ends.set(start + message.bytes.length, { message, start });
      start += message.bytes.length;
    }
    return all.map((request, index) => {
      const meant = ends.get(request.end);
      const isMeant = meant !== undefined && meant.start === (all[index - 1]?.end ?? 0);
      const isWhole = request !== begun;
      const target = upstreamTarget(request, this.#host);
      return {
        request,
        target,
        isWhole,
        message: isMeant && isWhole ? meant.message : undefined,
        arrival: undefined,
      };
    });
  }

  async #send(socket: Socket): Promise<void> {
    const { pace } = this.plan;
    let from = 0;
    for (const to of this.#places()) {
      if (this.#ended) return;
      socket.write(this.#text.slice(from, to), 'latin1');
      from = to;
      if (pace === 'turns') await turn();
      if (pace === 'lockstep') {
        const due = readRequests(this.#text.slice(0, to)).requests.length;
        await this.#until(() => this.#answered >= due);
      }
    }
  }

  #places(): readonly number[] {
    const { pace, messages, cuts } = this.plan;
    const { length } = this.#text;
    if (pace !== 'lockstep') return [...cuts.filter((cut) => cut < length), length];
    let end = 0;
    const ends = messages.map(({ bytes }) => {
      end += bytes.length;
      return end;
    });
    return [...ends.filter((place) => place < length), length];
  }

  async #finish(socket: Socket): Promise<void> {
    const { rest, requests } = this.#reading;
    if (this.plan.ending === 'silence') {
      await this.#until(() => false);
    } else if (this.plan.ending === 'end') {
      socket.end();
      await this.#until(() => false);
    } else {
      await this.#until(() => this.#answered >= requests.length);
      // The gateway need not find malformed what this client's reading of the rules does: then it waits for more.
      if (rest === 'malformed') await this.#until(() => false, PATIENCE_MS);
      const isDone = rest === 'nothing' && this.#closedAt === undefined;
      socket.end();
      if (!isDone) await this.#until(() => false);
      this.#checkEnd();
    }
  }

  /** Waits until the check holds or the connection has ended, for so many milliseconds at most. */
  async #until(check: () => boolean, patienceMs = Number.POSITIVE_INFINITY): Promise<void> {
    const end = performance.now() + patienceMs;
    const timer = Number.isFinite(patienceMs) ? setTimeout(() => this.#news?.(), patienceMs) : undefined;
    while (!this.#ended && !check() && performance.now() < end) {
      await new Promise<void>((resolve) => {
        this.#news = resolve;
      });
    }
    clearTimeout(timer);
  }

  #checkEnd(): void {
    const { requests } = this.#reading;
    if (this.#closedAt !== undefined || this.#answered >= requests.length) return;
    this.#violate(
      `the connection ended after ${this.#answered} of ${requests.length} responses, and none said so`,
    );
  }

  #receive(chunk: Buffer): void {
    this.#received = this.#received.length === 0 ? chunk : Buffer.concat([this.#received, chunk]);
    this.#read();
    this.#news?.();
  }

  #end(): void {
    if (this.#ended) return;
    this.#ended = true;
    this.#read();
    if (this.#received.length > 0 && this.plan.ending === 'await' && this.#closedAt === undefined) {
      this.#violate(
        `the connection ended within a response: ${JSON.stringify(this.#received.toString('latin1').slice(0, 300))}`,
      );
    }
    this.#news?.();
  }

  #read(): void {
    try {
      while (this.#received.length > 0) {
        const found = this.#next();
        if (found === undefined) return;
        if (this.#received.subarray(0, found.length).includes(SECRET))
          this.#violate('a secret of the upstream reached the client');
        this.#received = this.#received.subarray(found.length);
        this.#take(found.answer);
      }
    } catch (error) {
      this.#violate(`the client got what is no response: ${String(error)}`);
      this.#received = Buffer.alloc(0);
    }
  }

  #next(): ReturnType<typeof readRawResponse> {
    const expected = this.#expected[this.#answered];
    const framing = { method: expected?.request.method ?? 'GET', ended: this.#ended };
    const found = readRawResponse(this.#received, framing);
    if (found !== undefined || expected !== undefined || !this.#ended) return found;
    return readRawResponse(this.#received, { ...framing, method: this.#malformedMethod });
  }

  /** The method of what is no request by the rules: the gateway may have read it. */
  get #malformedMethod(): string {
    const rest = this.#text.slice(this.#expected.at(-1)?.request.end ?? 0);
    return /^[\r\n]*HEAD /.test(rest) ? 'HEAD' : 'GET';
  }

  #take(answer: RawResponse): void {
    const index = this.#answered;
    const expected = this.#expected[index];
    const fault = checkForClient(answer);
    if (fault !== undefined) this.#violate(fault);
    if (this.#closedAt !== undefined) this.#violate('a response came after the last one');
    if (answer.status < 200) {
      if (answer.status === 100 && expected?.request.version === '1.1') return;
      if (answer.status !== 103 || Number(valuesOf(answer, 'x-arrival')[0]) !== expected?.arrival) {
        this.#violate(`an interim response ${answer.status} that is not that of request ${index}`);
      }
      return;
    }
    this.#answered += 1;
    if (valuesOf(answer, 'connection').includes('close')) this.#closedAt = index;
    const number = valuesOf(answer, 'x-arrival')[0];
    if (number === undefined) this.#takeProblem(answer, index, expected);
    else this.#takeServed(answer, Number(number), expected);
  }

  #takeServed({ body, status }: RawResponse, number: number, expected: Expected | undefined): void {
    if (expected?.arrival !== number) {
      this.#violate(
        `request ${this.#answered - 1} got the response to arrival ${number}, not ${expected?.arrival}`,
      );
      return;
    }
    const marker = `[${number}]`;
    if (body.toString('latin1') !== marker.repeat(body.length / marker.length)) {
      this.#violate(`the response ${status} to arrival ${number} has content of another one`);
    }
    if (expected.message?.expects === 'refused')
      this.#violate(`${expected.request.method} ${expected.request.target} was served`);
  }

  #takeProblem(answer: RawResponse, index: number, expected: Expected | undefined): void {
    const { rest } = this.#reading;
    if (expected === undefined && (index > this.#expected.length || rest === 'nothing' || rest === 'last')) {
      this.#violate(`a response ${answer.status} to no request`);
      return;
    }
    const problem = checkProblem(
      answer,
      expected?.request.method ?? this.#malformedMethod,
      requestIdOf(expected),
    );
    if ('fault' in problem) this.#violate(problem.fault);
    else if (MALFORMED.has(problem.code) && this.#closedAt !== index)
      this.#violate(`the connection went on after ${problem.code}`);
    else if (
      answer.status !== 503 &&
      expected?.message?.expects === 'served' &&
      mustBeServed(expected, this.#host)
    ) {
      this.#violate(
        `${expected.request.method} ${expected.request.target} got ${answer.status} ${problem.code}`,
      );
    }
  }

  #violate(what: string): void {
    this.violations.push(what);
  }
}

function isOf({ request, isWhole, isAuthenticated }: Arrival, expected: Expected): boolean {
  if (expected.target !== request.target || (isAuthenticated && expected.arrival !== undefined)) return false;
  // The gateway asks for a challenge with a HEAD before it sends a body that it does not keep.
  if (!isAuthenticated && request.method === 'HEAD') return true;
  if (expected.request.method !== request.method) return false;
  return isWhole ? expected.request.body === request.body : expected.request.body.startsWith(request.body);
}

/** The id that a problem document is to have; undefined: any. */
function requestIdOf(expected: Expected | undefined): string | undefined {
  if (expected === undefined) return undefined;
  const ids = expected.request.headers.filter(([name]) => name.toLowerCase() === 'x-request-id');
  const [id] = ids;
  return ids.length === 1 &&
    /^s\d+m\d+$/.test(id?.[1] ?? '') &&
    expected.isWhole &&
    expected.message !== undefined
    ? id?.[1]
    : undefined;
}

/**
 * False for requests that the gateway may refuse for what they say of the client, or their size. 503 is a disk that
 * stood still.
 */
function mustBeServed({ request }: Expected, host: string): boolean {
  return request.headLength < LARGEST_HEAD && !isForbidden(request, host);
}
