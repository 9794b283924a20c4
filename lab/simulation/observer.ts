import type { NoncePolicy } from '../../src/challenges/store/store.ts';
import { REFUSED_WINDOW_MS, refusedTooOften } from './bounds.ts';
import { answerIn, type UpstreamMessage, type UpstreamReply, valuesOf } from './upstream/server.ts';
import type { ExchangeListener } from './upstream/service.ts';
import type { SimulatedProcess, World } from './world.ts';

/** Authenticated attempts of a request that the upstream answers, and those that are sent; more in a rotation. */
const ANSWERED_AT_MOST = 2;
const SENT_AT_MOST = 3;
const IN_ROTATION = 2;
/** Where servers of one address have nonces of their own: a known nonce can go to a server that does not know it. */
const IN_FARM = 1;

/** One client request and what became of it. */
export interface RequestRecord {
  readonly id: number;
  readonly process: SimulatedProcess;
  readonly begunAt: number;
  endedAt: number | undefined;
  /** Status of the response; undefined: none came. */
  status: number | undefined;
  /** Code of the gateway's error; undefined: none. */
  code: string | undefined;
  exchanges: number;
  authenticated: number;
  answered: number;
  /** Reasons for which the upstream refused its attempts. */
  readonly refusals: string[];
}

/** A broken invariant. */
export interface Violation {
  readonly invariant: string;
  readonly detail: string;
}

/** Facts of a schedule that explain what would be wrong otherwise. */
export interface Expectations {
  readonly attemptsWhenRefused: number;
  /** Nonces that the upstream issued more than once. */
  readonly reissued: ReadonlySet<string>;
  /** True if servers of one address have nonces of their own. */
  readonly isFarm: boolean;
}

/** Watches gateways and upstream, and checks what must hold after each step. */
export class Observer {
  readonly #world: World;
  readonly #expectations: Expectations;
  readonly violations: Violation[] = [];
  readonly requests: (RequestRecord | undefined)[] = [];
  /** Times of admissions of the limited client, by the name of the process. */
  readonly admissions = new Map<string, number[]>();
  readonly #inFlight = new Map<string, number>();
  readonly mostInFlight = new Map<string, number>();
  /** Each nonce with each count, and the process that sent it. */
  readonly #used = new Map<string, string>();
  readonly #promotions = new Map<SimulatedProcess, number[]>();
  /** Attempts that were refused for the password, while the process knew that it is refused. */
  readonly #refused = new Map<SimulatedProcess, number[]>();
  /** Processes that had, at some time, no password that the upstream accepts. */
  readonly wrong = new Set<SimulatedProcess>();
  /** When the upstream last forgot nonces. */
  forgotAt = Number.NEGATIVE_INFINITY;
  /** True if connections to the upstream broke. */
  haveBroken = false;
  /** True: a credential was refused for what only looks like a wrong password. */
  isAmbiguous = false;

  constructor(world: World, expectations: Expectations) {
    this.#world = world;
    this.#expectations = expectations;
  }

  violate(invariant: string, detail: string): void {
    this.#world.trace(`VIOLATION ${invariant}: ${detail}`);
    this.violations.push({ invariant, detail });
  }

  note(process: SimulatedProcess, text: string): void {
    this.#world.trace(`${process.name} ${text}`);
  }

  policyStep(process: SimulatedProcess, policy: NoncePolicy): void {
    this.note(process, `policy ${policy}`);
  }

  /** An error that is a defect of the program. */
  fault(process: SimulatedProcess | undefined, error: unknown): void {
    const cause = error instanceof Error && error.cause instanceof Error ? error.cause : error;
    const text = cause instanceof Error ? (cause.stack ?? cause.message) : String(cause);
    this.violate('no error is unexpected', `${process?.name ?? ''} ${text}`);
  }

  begin(id: number, process: SimulatedProcess): RequestRecord {
    const record: RequestRecord = {
      id,
      process,
      begunAt: this.#world.now,
      endedAt: undefined,
      status: undefined,
      code: undefined,
      exchanges: 0,
      authenticated: 0,
      answered: 0,
      refusals: [],
    };
    this.requests[id] = record;
    return record;
  }

  /** The gateway took no more requests when this one came. */
  drop(record: RequestRecord): void {
    delete this.requests[record.id];
  }

  end(record: RequestRecord): void {
    record.endedAt = this.#world.now;
    const { id, status, code, exchanges } = record;
    this.#world.trace(
      `${record.process.name} request ${id} ends: ${code ?? status} after ${exchanges} exchanges`,
    );
    if (code === 'upstream-credential-refused') this.#checkRefusal(record.process, `request ${id}`);
    if (code === undefined && status === undefined)
      this.violate('every request gets a response', `request ${id}`);
  }

  admitted(process: SimulatedProcess, by: 1 | -1): void {
    const { name } = process;
    const count = (this.#inFlight.get(name) ?? 0) + by;
    this.#inFlight.set(name, count);
    this.mostInFlight.set(name, Math.max(count, this.mostInFlight.get(name) ?? 0));
    if (by === 1) this.admissions.set(name, [...(this.admissions.get(name) ?? []), this.#world.now]);
  }

  health(process: SimulatedProcess, version: string, refused: boolean): void {
    this.note(process, `version ${version} ${refused ? 'refused' : 'accepted'}`);
  }

  rotation(process: SimulatedProcess, version: string, result: string): void {
    this.note(process, `version ${version} ${result}`);
    if (result !== 'promoted') return;
    this.#promotions.set(process, [...(this.#promotions.get(process) ?? []), this.#world.now]);
  }

  /** Listens to the exchanges of one process. */
  exchanges(process: SimulatedProcess, isRefused: () => boolean): ExchangeListener {
    const sentWhileRefused = new WeakSet<Pick<UpstreamMessage, 'headers'>>();
    return {
      sent: (message) => {
        const record = this.#recordOf(message);
        if (record !== undefined) record.exchanges += 1;
        const answer = answerIn(message.headers);
        if (answer === undefined) return;
        if (isRefused()) sentWhileRefused.add(message);
        const nc = answer.get('nc');
        if (nc !== undefined) this.#checkCount(process, answer.get('nonce') ?? '', nc);
        if (record !== undefined) this.#checkAttempts(record, 'authenticated', SENT_AT_MOST);
      },
      ended: (message, reply) => {
        if (reply === undefined || answerIn(message.headers) === undefined) return;
        this.#answered(process, this.#recordOf(message), reply, sentWhileRefused.has(message));
      },
    };
  }

  #answered(
    process: SimulatedProcess,
    record: RequestRecord | undefined,
    { verdict }: UpstreamReply,
    whileRefused: boolean,
  ): void {
    if (record !== undefined) {
      this.#checkAttempts(record, 'answered', ANSWERED_AT_MOST);
      if (verdict !== 'accepted') record.refusals.push(verdict);
    }
    if (verdict !== 'password' || !whileRefused) return;
    const times = [...(this.#refused.get(process) ?? []), this.#world.now];
    this.#refused.set(process, times);
    const { attemptsWhenRefused } = this.#expectations;
    if (refusedTooOften(times, attemptsWhenRefused)) {
      this.violate(
        'a refused credential is tried attemptsWhenRefused times a minute at most',
        `${process.name}: more than ${attemptsWhenRefused} in ${REFUSED_WINDOW_MS} ms`,
      );
    }
  }

  #checkCount(process: SimulatedProcess, nonce: string, nc: string): void {
    // Two processes that are given the same nonce cannot know of each other.
    const holder = this.#expectations.reissued.has(nonce) ? process.name : '';
    const use = `${holder} ${nonce} ${nc}`;
    const before = this.#used.get(use);
    this.#used.set(use, process.name);
    if (before === undefined) return;
    this.violate('no nc is sent twice with a nonce', `nc ${nc} of ${nonce} by ${before} and ${process.name}`);
  }

  #checkAttempts(record: RequestRecord, kind: 'authenticated' | 'answered', limit: number): void {
    record[kind] += 1;
    const promotions = this.#promotions.get(record.process) ?? [];
    const isRotation = promotions.some((at) => at >= record.begunAt);
    const more = (isRotation ? IN_ROTATION : 0) + (this.#expectations.isFarm ? IN_FARM : 0);
    if (record[kind] <= limit + more) return;
    this.violate(
      'a request makes two authenticated attempts at most',
      `request ${record.id}: ${record[kind]} ${kind}`,
    );
  }

  #checkRefusal(process: SimulatedProcess, which: string): void {
    if (this.wrong.has(process) || this.isAmbiguous) return;
    // An answer whose connection broke goes out on another one: there, to another server.
    const hasStrayed = this.#expectations.isFarm && this.haveBroken;
    // An upstream that forgets a nonce before it is answered for the first time cannot be told from a wrong password.
    if (hasStrayed || this.forgotAt > Number.NEGATIVE_INFINITY) {
      this.isAmbiguous = true;
      return;
    }
    this.violate('a right password is not called wrong', which);
  }

  #recordOf({ headers }: Pick<UpstreamMessage, 'headers'>): RequestRecord | undefined {
    const [id] = valuesOf(headers, 'x-request');
    return id === undefined ? undefined : this.requests[Number(id)];
  }
}
