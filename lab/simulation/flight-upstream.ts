import { type ErrorCode, errorKinds, GatewayError } from '../../src/base/errors.ts';
import type { Message } from '../../src/handshake/exchange.ts';
import { type Lost, UpstreamResponse } from '../../src/handshake/response.ts';
import type { RecordedExchange } from './flight.ts';
import type { UpstreamPool } from './gateway.ts';
import { answerIn, REALM, type UpstreamReply, type Verdict, valuesOf } from './upstream/server.ts';
import type { ExchangeListener } from './upstream/service.ts';
import type { Planned, SimulatedProcess } from './world.ts';

/** How long an exchange takes that the record does not have, in milliseconds. */
const UNRECORDED_MS = 5;
const BODY = Buffer.from('response');
const CODES: ReadonlySet<string> = new Set(errorKinds().map(([code]) => code));

/** The gateway's own requests are at most so far from those of the record, in milliseconds. */
const OWN_MS = 500;

type Result = UpstreamResponse | Lost | GatewayError | undefined;

/** The upstream of a flight record: each exchange has the result, and takes the time, that were recorded of it. */
export class RecordedUpstream {
  readonly #process: SimulatedProcess;
  /** What is left of the exchanges of each request. */
  readonly #left = new Map<number, RecordedExchange[]>();
  readonly #verdicts: readonly RecordedVerdict[];
  /** The nonce that was last offered. */
  #offered = 'first';
  #unrecorded = 0;

  /** `firstId`: what is added to the numbers of requests. */
  constructor(process: SimulatedProcess, exchanges: readonly RecordedExchange[], firstId: number) {
    this.#process = process;
    this.#verdicts = verdictsOf(exchanges);
    for (const each of exchanges) {
      const id = each.request === 0 ? 0 : firstId + each.request;
      const known = this.#left.get(id);
      if (known === undefined) this.#left.set(id, [each]);
      else known.push(each);
    }
  }

  /** Opens connections to it. */
  readonly connect = (listener: ExchangeListener): UpstreamPool => ({
    exchange: (message) =>
      new Promise((resolve, reject) => {
        const recorded = this.#take(message);
        const exchange = new ReplayedExchange(this.#process, message, listener);
        exchange.begin(recorded, () => this.#resultOf(recorded, message), resolve, reject);
      }),
    close() {},
  });

  /** The exchange of the record that this one is: that of the same request, with the same nonce if there is one. */
  #take({ headers }: Message): RecordedExchange {
    const [id = '0'] = valuesOf(headers, 'x-request');
    const left = this.#left.get(Number(id)) ?? [];
    const nonce = answerIn(headers)?.get('nonce') ?? '';
    const { now } = this.#process.world;
    // Requests of the gateway's own have no number, so the moment tells them.
    const fits = (each: RecordedExchange): boolean => id !== '0' || Math.abs(each.at - now) < OWN_MS;
    const same = left.findIndex((each) => each.nonce === nonce && fits(each));
    const alike = left.findIndex((each) => (each.nonce === '') === (nonce === '') && fits(each));
    const [found] = left.splice(same === -1 ? (alike === -1 ? left.length : alike) : same, 1);
    return found ?? this.#unrecordedExchange(nonce, left);
  }

  /** A gateway that was not recorded from its beginning has a nonce that this one has to ask for. */
  #unrecordedExchange(nonce: string, left: readonly RecordedExchange[]): RecordedExchange {
    const at = this.#process.world.now;
    const next = left.find((each) => each.nonce !== '');
    this.#unrecorded += 1;
    const isWrong = this.#verdicts.findLast((verdict) => verdict.at <= at)?.isWrong === true;
    const isRefused = nonce === '' || isWrong;
    return {
      kind: 'exchange',
      at,
      request: 0,
      deployment: '',
      method: '',
      nonce,
      nc: 0,
      ended: at + UNRECORDED_MS,
      result: isRefused ? 401 : 200,
      offered: nonce === '' && next !== undefined ? next.nonce : `${this.#process.name}-${this.#unrecorded}`,
      stale: false,
      counted: next === undefined || next.nc > 0,
    };
  }

  #resultOf(recorded: RecordedExchange, message: Message): { result: Result; reply?: UpstreamReply } {
    const { result, nonce, offered, stale, counted } = recorded;
    if (typeof result === 'string') return { result: failureOf(result, message) };
    if (offered !== '') this.#offered = offered;
    // A server repeats no nonce that it has refused, unless the record says so.
    const parts = [
      `realm="${REALM}"`,
      `nonce="${offered === '' ? this.#offered : offered}"`,
      'algorithm=MD5',
    ];
    if (counted) parts.push('qop="auth"');
    if (stale) parts.push('stale=true');
    const challenge = result === 401 ? ['www-authenticate', `Digest ${parts.join(', ')}`] : [];
    const next = result !== 401 && offered !== '' ? ['authentication-info', `nextnonce="${offered}"`] : [];
    const headers = [...challenge, ...next];
    const refused: Verdict = nonce === '' ? 'not-authenticated' : stale ? 'expired' : 'password';
    const reply: UpstreamReply = { status: result, headers, verdict: result === 401 ? refused : 'accepted' };
    const response = new UpstreamResponse(result, '', headers, true, NO_SOURCE);
    return { result: response, reply };
  }
}

const NO_SOURCE = { pause() {}, resume() {}, abandon() {} };

/** A recorded failure; undefined: none came back. */
function failureOf(result: string, { refusal }: Message): Result {
  if (result === '') return undefined;
  if (result.startsWith('lost')) {
    const facts = new Set(result.split(' '));
    const error = new GatewayError('upstream-unreachable', 'The connection was lost in the record.');
    return {
      kind: 'lost',
      error,
      broke: facts.has('broke'),
      sent: facts.has('sent'),
      reused: facts.has('reused'),
    };
  }
  // It was refused while it waited for a connection, if the gateway of the record knew more than this one.
  if (result === 'upstream-credential-refused') return refusal?.() ?? undefined;
  return new GatewayError(CODES.has(result) ? (result as ErrorCode) : 'internal-error', 'As in the record.');
}

type Settle = (result: UpstreamResponse | Lost) => void;

/** One exchange that is told its result. */
class ReplayedExchange {
  readonly #process: SimulatedProcess;
  readonly #message: Message;
  readonly #listener: ExchangeListener;
  #planned: Planned | undefined;
  #over = false;
  #reject: (error: GatewayError) => void = () => {};

  constructor(process: SimulatedProcess, message: Message, listener: ExchangeListener) {
    this.#process = process;
    this.#message = message;
    this.#listener = listener;
  }

  begin(
    recorded: RecordedExchange,
    result: () => { result: Result; reply?: UpstreamReply },
    resolve: Settle,
    reject: (error: GatewayError) => void,
  ): void {
    this.#reject = reject;
    const { refusal, request } = this.#message;
    const { cancellation } = request;
    cancellation.add(this);
    if (this.#over) return;
    const refused = refusal?.();
    if (refused !== undefined) {
      this.cancel(refused);
      return;
    }
    this.#listener.sent(this.#message);
    const ms = Math.max(0, recorded.ended - recorded.at);
    // Without an end it was under way when the record was written.
    if (recorded.ended === 0) return;
    this.#planned = this.#process.deliver(ms, `recorded ${recorded.result}`, () => {
      const { result: came, reply } = result();
      if (came === undefined || !this.#close(reply)) return;
      if (came instanceof GatewayError) this.#reject(came);
      else resolve(came);
      if (came instanceof UpstreamResponse) {
        if (came.status !== 401) came.push(BODY);
        came.end([]);
      }
    });
  }

  cancel(error: GatewayError): void {
    if (this.#close(undefined)) this.#reject(error);
  }

  #close(reply: UpstreamReply | undefined): boolean {
    if (this.#over) return false;
    this.#over = true;
    if (this.#planned !== undefined) this.#process.cancel(this.#planned);
    this.#message.request.cancellation.remove(this);
    this.#listener.ended(this.#message, reply);
    return true;
  }
}

export interface RecordedVerdict {
  readonly at: number;
  readonly isWrong: boolean;
}

/**
 * When the upstream of a record showed that it refuses or accepts the credential. Only the refusal of a nonce that was
 * answered for the first time shows something of the password.
 */
export function verdictsOf(exchanges: readonly RecordedExchange[]): RecordedVerdict[] {
  const known = new Set<string>();
  const verdicts: RecordedVerdict[] = [];
  for (const { nonce, at, ended, result, stale } of exchanges) {
    if (nonce === '' || typeof result === 'string') continue;
    const isFirst = !known.has(nonce);
    known.add(nonce);
    if (result !== 401) verdicts.push({ at: ended, isWrong: false });
    // The replay can be ahead of the record by what the exchange took.
    else if (isFirst && !stale) verdicts.push({ at, isWrong: true });
  }
  return verdicts.sort((one, other) => one.at - other.at);
}
