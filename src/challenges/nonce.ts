import type { Clock } from '../base/clock.ts';
import { putBounded } from '../base/maps.ts';
import { type Credential, type PreparedAnswer, prepareAnswer } from '../digest/authorization.ts';
import { type Challenge, withNonce } from '../digest/challenge.ts';
import type { AgedChallenge, HeldChallenge, ParkedChallenge } from './store/store.ts';

/** RFC 7616 §3.4: nc is eight hex digits. */
const LAST_COUNT = 0xffffffff;

/** Nonces that continue one another by nextnonce: an upstream may keep one state for them all, by opaque. */
export interface Lane {
  /** Attempts under way with one of these nonces. */
  underWay: number;
  /** Attempts that began with one of them. */
  begun: number;
}

/** Counts the attempts with one nonce of the upstream, however often the upstream issues it. */
export class NonceCounter {
  /** The last nc that went out. */
  last: number;
  /** True if the upstream issued the nonce more than once. */
  isShared = false;

  constructor(last = 0) {
    this.last = last;
  }
}

/** Where a nonce comes from, beside its challenge. */
export interface NonceOrigin {
  readonly cnonce: string;
  readonly obtainedAt: number;
  /** Left out: no attempt was made with it yet. */
  readonly counter?: NonceCounter;
  /** The lane of the nonce that named this one. */
  readonly lane?: Lane;
  /** True if another process obtained it. */
  readonly foreign?: boolean;
}

/** One challenge in use by this process: what answers it, and the count of answers. */
export class Nonce implements HeldChallenge {
  readonly challenge: Challenge;
  readonly cookies: readonly string[];
  readonly answer: PreparedAnswer;
  /** One for the life of the nonce: with -sess it is part of A1 (RFC 7616 §3.4.2). */
  readonly cnonce: string;
  readonly lane: Lane;
  /** When the upstream issued it, on this process's clock. */
  readonly obtainedAt: number;
  readonly foreign: boolean;
  /** Without qop there is no count, so nothing is lost when several processes use the nonce. */
  readonly shareable: boolean;
  /** Attempts that the upstream accepted. */
  accepted = 0;
  /** When the upstream last accepted it, on this process's clock. */
  acceptedAt = Number.NEGATIVE_INFINITY;
  /** Client requests that it served. */
  uses = 0;
  /** True if a younger one was asked for to take its place. */
  renewed = false;
  #highestAccepted = 0;
  #lowestRefused = Number.POSITIVE_INFINITY;
  #retired = false;
  #underWay = 0;
  #mostUnderWay = 0;
  #onUnused: (() => void) | undefined;
  readonly #counter: NonceCounter;

  constructor(held: HeldChallenge, credential: Credential, origin: NonceOrigin) {
    this.challenge = held.challenge;
    this.cookies = held.cookies;
    this.cnonce = origin.cnonce;
    this.lane = origin.lane ?? { underWay: 0, begun: 0 };
    this.obtainedAt = origin.obtainedAt;
    this.foreign = origin.foreign ?? false;
    this.#counter = origin.counter ?? new NonceCounter();
    this.answer = prepareAnswer(held.challenge, credential, origin.cnonce);
    this.shareable = this.answer.qop === undefined;
  }

  /** True while it has served no more requests than were under way with it at once. */
  get isFirstCrowd(): boolean {
    return this.accepted <= this.#mostUnderWay;
  }

  /** True if a count was refused although a higher one was accepted, whichever response came first. */
  get isOutOfOrderRefused(): boolean {
    return !this.shareable && this.#lowestRefused < this.#highestAccepted;
  }

  /** True if a higher count was accepted. */
  isOvertaken(nc: number): boolean {
    return !this.shareable && nc < this.#highestAccepted;
  }

  noteAccepted(nc: number, now: number): void {
    this.accepted += 1;
    this.acceptedAt = now;
    this.#highestAccepted = Math.max(this.#highestAccepted, nc);
  }

  noteRefused(nc: number): void {
    this.#lowestRefused = Math.min(this.#lowestRefused, nc);
  }

  /** True if this process may count on the same nonce elsewhere, since the upstream issued it again. */
  get isIssuedAgain(): boolean {
    return this.#counter.isShared;
  }

  /** True: no attempt begins with it any more, whatever becomes of those under way. */
  get retired(): boolean {
    return this.#retired;
  }

  /** Ends the use of the nonce by this process, for good. */
  retire(): void {
    this.#retired = true;
  }

  /** Calls back when no attempt is under way, at once if there is none; for a nonce that is retired. */
  whenUnused(callback: () => void): void {
    if (this.#underWay === 0) callback();
    else this.#onUnused = callback;
  }

  /**
   * The challenge with its final count, for the next owner.
   * @throws TypeError while this process could still count on it
   */
  handOver(now: number): ParkedChallenge {
    if (!this.#retired || this.#underWay > 0) throw new TypeError('the nonce is still in use here');
    const { challenge, cookies, cnonce } = this;
    const count = this.#counter.last;
    // The upstream may issue the same nonce here once more.
    this.#counter.last = LAST_COUNT;
    return { challenge, cookies, cnonce, count, ageMs: now - this.obtainedAt };
  }

  /**
   * True if the upstream holds this challenge in the state that the nonce had, named by opaque. Apache does,
   * for one-time nonces and to check nc: a concurrent request that arrives first makes it refuse a right answer.
   */
  sharesStateWith({ opaque }: Challenge): boolean {
    return opaque !== undefined && opaque === this.challenge.opaque;
  }

  get exhausted(): boolean {
    return this.#counter.last >= LAST_COUNT - 1;
  }

  /** Begins one attempt, with an nc that no other one has; undefined: the nonce is retired or exhausted. */
  begin(now: number): NonceAttempt | undefined {
    if (this.#retired || this.exhausted) return undefined;
    this.#underWay += 1;
    this.#mostUnderWay = Math.max(this.#mostUnderWay, this.#underWay);
    this.lane.underWay += 1;
    this.lane.begun += 1;
    this.#counter.last += 1;
    return new NonceAttempt(this, this.#counter.last, now);
  }

  /** An attempt is over, with a response or without: once for each that began. */
  endAttempt(): void {
    this.#underWay -= 1;
    this.lane.underWay -= 1;
    if (this.#underWay > 0) return;
    const onUnused = this.#onUnused;
    this.#onUnused = undefined;
    onUnused?.();
  }
}

/** One request that goes out with a nonce: the only way to get an nc. */
export class NonceAttempt {
  readonly nonce: Nonce;
  readonly nc: number;
  /** On this process's clock. */
  readonly sentAt: number;
  /** Age of the nonce then, in milliseconds. */
  readonly ageMs: number;
  /** True if the upstream had accepted the nonce before it was sent. */
  readonly isReuse: boolean;
  readonly #beganAlone: boolean;
  /** Attempts in the lane that began until then, this one included. */
  readonly #begun: number;

  constructor(nonce: Nonce, nc: number, sentAt: number) {
    this.nonce = nonce;
    this.nc = nc;
    this.sentAt = sentAt;
    this.ageMs = sentAt - nonce.obtainedAt;
    this.isReuse = nonce.accepted > 0;
    this.#beganAlone = nonce.lane.underWay === 1;
    this.#begun = nonce.lane.begun;
  }

  /**
   * True if, since this attempt began, another one used the nonce, or one that continues it or is continued by it.
   * It stays true when all of them are over, since those that were refused hold challenges of the same state.
   */
  get contested(): boolean {
    return !this.#beganAlone || this.nonce.lane.begun !== this.#begun;
  }
}

/** Number of nonces that are recognised when the upstream issues them again. */
const REMEMBERED = 1_000;

/**
 * Counters of nonces with qop, by nonce (RFC 7616 §3.4). Some upstreams issue the same nonce within one millisecond, even
 * for two versions of a credential: it goes on with its count, so that no nc goes out twice.
 */
export class NonceCounters {
  /** The latest last. */
  readonly #counters = new Map<string, NonceCounter>();
  #byOpaque = false;

  /** From now on counts for each opaque, whatever its nonce: WEBrick does, whose nonce is the same for a second. */
  countByOpaque(): void {
    this.#byOpaque = true;
  }

  /** The counter for a challenge that was issued now, or that another process has answered this many times. */
  of({ nonce, opaque }: Challenge, count: number): NonceCounter {
    // No field value has a line feed, so no nonce is equal to the key of an opaque.
    const key = this.#byOpaque && opaque !== undefined ? `\n${opaque}` : nonce;
    const known = this.#counters.get(key);
    const counter = known ?? new NonceCounter();
    counter.isShared = known !== undefined;
    counter.last = Math.max(counter.last, count);
    putBounded(this.#counters, key, counter, REMEMBERED);
    return counter;
  }
}

export interface NonceFactoryOptions {
  readonly credential: Credential;
  /** Those of other nonces of the same upstream; left out: there are none. */
  readonly counters?: NonceCounters;
  readonly clock: Clock;
  /** A new random cnonce. */
  readonly newCnonce: () => string;
}

/** Makes challenges into nonces that can be used, wherever they come from. */
export class NonceFactory {
  readonly #options: NonceFactoryOptions;
  readonly #counters: NonceCounters;

  constructor(options: NonceFactoryOptions) {
    this.#options = options;
    this.#counters = options.counters ?? new NonceCounters();
  }

  /** The upstream has just issued it. */
  issued(held: HeldChallenge): Nonce {
    return this.#make(held, 0, {});
  }

  /**
   * Another process obtained it, and counted on it if it has a count.
   * @throws GatewayError `credential-unavailable` when the credential, a stored hash, is not good for it
   */
  adopted(held: AgedChallenge | ParkedChallenge): Nonce {
    const owned = 'count' in held ? { cnonce: held.cnonce } : {};
    return this.#make(held, held.ageMs, { foreign: true, ...owned }, 'count' in held ? held.count : 0);
  }

  /** The upstream named it to be used after this one (nextnonce, RFC 7616 §3.5). */
  following(nonce: Nonce, nextnonce: string): Nonce {
    if (nextnonce === nonce.challenge.nonce) return nonce;
    const held = { challenge: withNonce(nonce.challenge, nextnonce), cookies: nonce.cookies };
    return this.#make(held, 0, { lane: nonce.lane });
  }

  /**
   * The upstream called an answer with this nonce stale, and sent this challenge. With the same nonce and another opaque
   * it shows that it has nothing against the nonce: it counts the answers to each opaque.
   */
  calledStale(nonce: Nonce, { nonce: next, opaque }: Challenge): void {
    const { challenge } = nonce;
    const isIssuedAgain = next === challenge.nonce && opaque !== undefined && opaque !== challenge.opaque;
    if (isIssuedAgain) this.#counters.countByOpaque();
  }

  #make(held: HeldChallenge, ageMs: number, origin: Partial<NonceOrigin>, count = 0): Nonce {
    const counter =
      held.challenge.qop.length === 0 ? new NonceCounter() : this.#counters.of(held.challenge, count);
    const { credential, clock, newCnonce } = this.#options;
    return new Nonce(held, credential, {
      cnonce: newCnonce(),
      obtainedAt: clock.now() - ageMs,
      counter,
      ...origin,
    });
  }
}
