import { type RawResponse, valuesOf } from '../../test/support/raw-client.ts';
import { type Reading, readWithNode } from '../../test/support/response-readings.ts';
import type { ReadRequest } from '../wire/request-reading.ts';
import { checkForClient, checkProblem, shown } from '../wire/response-checks.ts';
import { type Answer, SECRET } from './answers.ts';
import { type ExchangeScript, KEPT_BYTES } from './script.ts';

/** Bytes that a connection delivers in one piece if they were written so: a record of TLS. */
const ONE_READ = 16 * 1024;
/** `MAX_INTERIM` of the gateway. */
const MOST_INTERIM = 64;

/** How the answer of the client's request came: whole, broken off within it, or not at all. */
export interface ClientResult {
  /** Interim responses, then the final one if it came whole. */
  readonly answers: readonly RawResponse[];
  /** Bytes of a response that did not come whole. */
  readonly partial: string;
  /** All bytes. */
  readonly text: string;
  /** The faults of the bytes as HTTP. */
  readonly fault: string | undefined;
  readonly hangs: boolean;
}

/** Other programs had the processor for so long, in milliseconds, that the gateway may have given this one up. */
const STOOD_STILL_MS = 1_000;

/** The answers that a connection of the upstream has carried before a request. */
export interface ConnectionPast {
  readonly last: Answer;
  /**
   * True if bytes that belong to no response may have come after the gateway had sent the request: then they cannot be
   * told from its response.
   */
  readonly hasLateSurplus: boolean;
}

interface Attempt {
  readonly method: string;
  readonly isAuthenticated: boolean;
  readonly answer: Answer;
  readonly past: ConnectionPast | undefined;
}

/** One request of a client, what the upstream answered, and what must hold for the response. */
export class FuzzedExchange {
  readonly script: ExchangeScript;
  readonly id: string;
  readonly attempts: Attempt[] = [];
  /** True once an attempt was sent on a connection whose answer before it was still coming. */
  overlaps = false;
  /** Milliseconds of it in which this process, which is client and upstream, stood still. */
  stoodMs = 0;

  constructor(script: ExchangeScript) {
    this.script = script;
    this.id = `x${script.seed}`;
  }

  get target(): string {
    return `/${this.script.deployment}/s${this.script.seed}`;
  }

  /** The request of the client. */
  get bytes(): string {
    const { method, version, body } = this.script;
    const kept = version === '1.0' ? 'Connection: keep-alive\r\n' : '';
    const length = body === undefined ? '' : `Content-Length: ${body.length}\r\n`;
    return `${method} ${this.target} HTTP/${version}\r\nHost: x\r\nX-Request-Id: ${this.id}\r\n${kept}${length}\r\n${body ?? ''}`;
  }

  /** The answer to an attempt of the gateway; undefined: it is not one for this request. */
  answerTo(
    { method, body }: ReadRequest,
    isAuthenticated: boolean,
    past: ConnectionPast | undefined,
  ): Answer | undefined {
    const asksFirst = !isAuthenticated && method === 'HEAD' && (this.script.body?.length ?? 0) > KEPT_BYTES;
    if (!asksFirst && (method !== this.script.method || body !== (this.script.body ?? ''))) return undefined;
    const answer = this.script.answerTo(this.attempts.length, method, isAuthenticated);
    this.attempts.push({ method, isAuthenticated, answer, past });
    return answer;
  }

  describe({ text }: ClientResult): string {
    const attempts = this.attempts.map(({ method, isAuthenticated, answer, past }) => {
      const name = isAuthenticated ? `${method} with Authorization` : method;
      return `${name} ← ${described(answer)}${past === undefined ? '' : `, behind ${described(past.last)}`}`;
    });
    return `${shown(this.bytes)}\n${attempts.join('\n')}\nthe client got: ${shown(text)}`;
  }

  /** The faults of the response that the client got. */
  *violations(result: ClientResult): Generator<string> {
    const { answers, partial, text, fault, hangs } = result;
    if (hangs) yield `hangs: no end came of the response to ${this.target}`;
    if (fault !== undefined) yield `the client got what is no response: ${fault}`;
    if (text.includes(SECRET)) yield 'a secret of the upstream reached the client';
    const behindSurplus = this.overlaps || this.attempts.some(({ past }) => past?.hasLateSurplus === true);
    const strange = behindSurplus
      ? undefined
      : this.#markersIn(text).find((marker) => !marker.startsWith(`s${this.script.seed}a`));
    if (strange !== undefined) yield `the client of ${this.target} got content of ${strange}`;
    for (const answer of answers) {
      const wrong = checkForClient(answer);
      if (wrong !== undefined) yield wrong;
    }
    const final = answers.find(({ status }) => status >= 200);
    if (answers.length - (final === undefined ? 0 : 1) > MOST_INTERIM)
      yield `the client got ${answers.length} responses`;
    if (behindSurplus) return;
    if (final !== undefined) yield* this.#finalViolations(final);
    else if (!hangs) yield* this.#brokenViolations(partial);
  }

  /** The markers of responses in a text. An answer that was mutated can have its own changed to that of another seed. */
  #markersIn(text: string): readonly string[] {
    const isMutated = this.attempts.some(({ answer }) => answer.isMutated === true);
    return text.match(isMutated ? /poison/g : /s\d+a\d+|poison/g) ?? [];
  }

  *#finalViolations(final: RawResponse): Generator<string> {
    if (isProblem(final)) {
      const problem = checkProblem(final, this.script.method, this.id);
      if ('fault' in problem) yield problem.fault;
      else if (this.script.isClean && !this.#mayTimeOut(final) && !this.#mayMeetSurplus(problem.code))
        yield `a good response was replaced: ${final.status} ${problem.code}`;
    } else if (!this.attempts.some((attempt) => isReadingOf(attempt, final))) {
      yield `the client got a whole response that the upstream did not send: ${final.status} of ${final.body.length} bytes`;
    }
  }

  *#brokenViolations(partial: string): Generator<string> {
    if (partial === '') yield `the connection ended without a response to ${this.target}`;
    if (this.script.isClean && this.stoodMs < STOOD_STILL_MS) yield 'a good response was broken off';
  }

  /** The rest of an earlier answer can come in place of the response, before the upstream reads the request. */
  #mayMeetSurplus(code: string | undefined): boolean {
    return code === 'upstream-protocol' && this.attempts.length === 0;
  }

  #mayTimeOut({ status }: RawResponse): boolean {
    return status === 504 && this.stoodMs > STOOD_STILL_MS;
  }
}

function described({ bytes, ending, pace, cuts }: Answer): string {
  return `${shown(bytes)}, ${pace}, in ${cuts.length + 1} pieces, then ${ending}`;
}

/** The response of a client: the code of a problem document, or the request that it belongs to. */
export function resultOf({ answers }: ClientResult, method: string): string {
  const final = answers.find(({ status }) => status >= 200);
  if (final === undefined) return 'broken off';
  if (!isProblem(final)) return 'of the upstream';
  const problem = checkProblem(final, method, undefined);
  return 'code' in problem ? (problem.code ?? 'a code without its document') : 'faulty';
}

function isProblem(answer: RawResponse): boolean {
  return valuesOf(answer, 'content-type')[0] === 'application/problem+json';
}

/** The past of a connection after one more answer. */
export function pastWith(before: ConnectionPast | undefined, method: string, last: Answer): ConnectionPast {
  const { bytes, cuts } = last;
  // A longer piece may be read in parts, and its last byte alone.
  const end = bytes.length > ONE_READ ? bytes.length - 1 : (cuts.at(-1) ?? 0);
  const isLate = end > 0 && readingOf(bytes.slice(0, end), method, false).result === 'whole';
  return { last, hasLateSurplus: isLate || before?.hasLateSurplus === true };
}

/** True if Node's own parser reads the answer as this response. */
function isReadingOf({ method, answer: { bytes, ending } }: Attempt, final: RawResponse): boolean {
  const reading = readingOf(bytes, method, ending === 'end');
  return (
    reading.result === 'whole' &&
    reading.status === final.status &&
    reading.body === final.body.toString('latin1')
  );
}

/** A tab may follow a coding (RFC 9110 §5.6.3), and a 100 is skipped, whatever it says; Node's parser differs. */
function readingOf(bytes: string, method: string, ends: boolean): Reading {
  const plain = bytes
    .replace(/^((?:HTTP\/1\.[01] 100[^\r\n]*\r\n(?:[^\r\n]+\r\n)*\r\n)+)/, '')
    .replace(/(transfer-encoding:[^\r\n]*?)\t+\r\n/gi, '$1\r\n');
  return readWithNode(plain, { method, ends });
}
