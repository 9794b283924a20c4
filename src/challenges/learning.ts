import { isDeepStrictEqual } from 'node:util';
import type { Clock } from '../base/clock.ts';
import { putBounded } from '../base/maps.ts';
import type { Challenge } from '../digest/challenge.ts';
import type { Nonce, NonceAttempt } from './nonce.ts';
import { ReusePolicy, type ReuseRefusal } from './reuse-policy.ts';
import type { SharedChallenges } from './shared-challenges.ts';
import {
  LEARNED_MS,
  type Learned,
  LONGEST_LIFE_MS,
  type NoncePolicy,
  SHORTEST_LIFE_MS,
} from './store/store.ts';

/**
 * Times that the last thing learned here is written while the store confirms none of them. Each write makes every other
 * process ask, so a slow store would be written to without end.
 */
const WRITES_AT_MOST = 3;
/** Nonces of other processes refused in a row after which nonces count as bound to their process. */
const BOUND_AFTER = 3;
/** A nonce that is older than this share of a life may have been refused for its age … */
const EARLY = 0.5;
/** … in milliseconds, while no life is known. */
const SHORT_LIFE_MS = 60_000;
/** From this share of its life on a nonce is to be renewed. */
const AGING = 0.7;
/** Refusals in a row, at an age that was accepted before, after which the upstream counts as changed. */
const ENOUGH = 3;

/** Requests whose lessons wait for their next attempt. */
const MAX_PENDING = 1_000;

/** For how long an accepted attempt says what a HEAD ahead of a body would say, in milliseconds. */
const HEALTHY_MS = 1_000;

/** How long an upstream's nonces live, learned from the ages at which they are accepted and refused. */
export class Lifetime {
  /** The youngest age at which a nonce was refused for its age; undefined: not known. */
  ms: number | undefined;
  #oldestAccepted = 0;
  #tooEarly = 0;

  /** True if a nonce of this age is to be renewed soon. */
  isAging(ageMs: number): boolean {
    return this.ms !== undefined && ageMs > AGING * this.ms;
  }

  /** A nonce of this age was accepted. */
  accepted(ageMs: number): void {
    if (ageMs <= this.#oldestAccepted) return;
    this.#oldestAccepted = ageMs;
    this.#tooEarly = 0;
    if (this.ms !== undefined && ageMs > this.ms) this.ms = undefined;
  }

  /** A nonce of this age, used before, was refused. */
  refused(ageMs: number): void {
    if (ageMs < SHORTEST_LIFE_MS) return;
    if (ageMs < this.#oldestAccepted) {
      this.#tooEarly += 1;
      if (this.#tooEarly < ENOUGH) return;
      this.forget();
    }
    this.#tooEarly = 0;
    this.ms = Math.min(this.ms ?? ageMs, ageMs, LONGEST_LIFE_MS);
  }

  /** Takes over the lifetime that another process learned, unless an older nonce was accepted here. */
  adopt(ms: number | undefined): void {
    const isLife = ms === undefined || (ms >= SHORTEST_LIFE_MS && ms <= LONGEST_LIFE_MS);
    if (isLife && (ms === undefined || ms > this.#oldestAccepted)) this.ms = ms;
  }

  forget(): void {
    this.ms = undefined;
    this.#oldestAccepted = 0;
    this.#tooEarly = 0;
  }
}

export interface LearningOptions {
  readonly sharedChallenges: SharedChallenges;
  readonly clock: Clock;
  /** `auto`: learned from refusals. */
  readonly policy: NoncePolicy | 'auto';
}

/** A refusal at a time of the clock, and how it is learned from once it is confirmed. */
interface Lesson {
  readonly since: number;
  readonly learn: () => void;
}

/**
 * Learns about an upstream's nonces from those that it accepts and refuses, here and in other processes. Everything is
 * forgotten together, an hour after the first of it was learned. `issued`, `accepted` and `refused` return true if
 * something was learned, which other processes are then to be told, with `tell`.
 */
export class Learning {
  readonly lifetime = new Lifetime();
  readonly #options: LearningOptions;
  readonly #policy: ReusePolicy;
  /**
   * True if a nonce is good for other processes, and theirs here. Some upstreams bind it to the address that asked for
   * it (Tomcat does), and replicas may leave from several.
   */
  portable = true;
  /** Nonces of other processes that were refused since one was last accepted. */
  #foreignRefused = 0;
  /** When the first of what is known was learned, here or elsewhere; undefined: nothing is known. */
  #learnedAt: number | undefined;
  /** Realm and algorithm that everything learned holds for. */
  #upstream: Pick<Learned, 'realm' | 'algorithm'> | undefined;
  #counted: boolean | undefined;
  /** Nonces obtained until then may have been hit by the last event that refused one … */
  #lastEventEnd = Number.NEGATIVE_INFINITY;
  /** … but for these challenges, which came with its refusals. */
  #issuedSinceEvent = new WeakSet<Challenge>();
  /**
   * Lessons of refusals by request. A changed password, or a target that the upstream refuses, would explain them as well:
   * only an accepted attempt of the same request confirms them.
   */
  readonly #pending = new Map<unknown, readonly Lesson[]>();
  /** How often something was learned here. */
  #changes = 0;
  /** True if the store has said what others learned. */
  #asked = false;
  /** Times that the store did not confirm the last thing that was learned here. */
  #unconfirmed = 0;

  constructor(options: LearningOptions) {
    this.#options = options;
    const { policy, clock } = options;
    this.#policy = new ReusePolicy(policy, clock);
  }

  get policy(): NoncePolicy {
    return this.#policy.policy;
  }

  /** True if another process can hold a nonce that serves here, as far as it is known. */
  get sharesNonces(): boolean {
    return this.policy === 'shared' && this.#counted !== true && this.portable;
  }

  ageOf(nonce: Nonce): number {
    return this.#options.clock.now() - nonce.obtainedAt;
  }

  /** True if the upstream would refuse the nonce for its age. */
  isOver(nonce: Nonce): boolean {
    return this.ageOf(nonce) >= (this.lifetime.ms ?? Number.POSITIVE_INFINITY);
  }

  /** Forgets what was learned an hour ago. Cheap: the pool calls it for each request. */
  expire(): void {
    if (this.#learnedAt !== undefined && this.#options.clock.now() - this.#learnedAt >= LEARNED_MS)
      this.#forget();
  }

  /** True if the upstream accepted the nonce more than once, just now, too, and has no known reason to refuse it next. */
  isHealthy(nonce: Nonce): boolean {
    const now = this.#options.clock.now();
    const ends = nonce.obtainedAt + (this.lifetime.ms ?? Number.POSITIVE_INFINITY);
    const isReused = nonce.accepted > 1 && now - nonce.acceptedAt < HEALTHY_MS;
    return isReused && !nonce.exhausted && now + HEALTHY_MS < ends;
  }

  /** The upstream issued it; with another realm or algorithm it is another upstream, and nothing is known. */
  issued({ challenge, shareable }: Nonce): boolean {
    const { realm, algorithm } = challenge;
    const about = { realm, algorithm: algorithm.token };
    if (this.#upstream !== undefined && !isSame(this.#upstream, about)) this.#forget();
    this.#upstream = about;
    const counted = !shareable;
    if (this.#counted === counted) return false;
    this.#counted = counted;
    this.#note();
    return true;
  }

  /** The upstream accepted an attempt of this request. */
  accepted({ nonce, nc, ageMs, isReuse, sentAt }: NonceAttempt, request?: object): boolean {
    const changes = this.#changes;
    if (this.#pending.size > 0) this.#learnPending(sentAt, request);
    nonce.noteAccepted(nc, this.#options.clock.now());
    const { ms } = this.lifetime;
    this.lifetime.accepted(ageMs);
    if (nonce.isOutOfOrderRefused && this.#policy.overtaken()) this.#note();
    if (isReuse) this.#policy.reused();
    if (nonce.foreign) this.#foreignRefused = 0;
    if (this.lifetime.ms !== ms) this.#note();
    return this.#changes !== changes;
  }

  /**
   * The upstream refused the nonce of an attempt of this request; `stale`: because it expired, as the upstream says.
   * `challenge`: the usable one that came with the refusal.
   */
  refused(attempt: NonceAttempt, stale: boolean, challenge?: Challenge, request?: object): boolean {
    const changes = this.#changes;
    const learn = this.#lessonOf(attempt, stale);
    if (stale) learn();
    else {
      const lesson = { since: this.#options.clock.now(), learn };
      putBounded(this.#pending, request, [...(this.#pending.get(request) ?? []), lesson], MAX_PENDING);
    }
    if (challenge !== undefined) this.#issuedSinceEvent.add(challenge);
    return this.#changes !== changes;
  }

  #lessonOf(attempt: NonceAttempt, stale: boolean): () => void {
    const { nonce, nc, ageMs } = attempt;
    // At the end of a life, attempts that overtake each other on the way are accepted and refused in any order.
    const isExpiry = stale && this.lifetime.isAging(ageMs);
    const isOvertaken = !isExpiry && this.policy === 'shared' && nonce.isOvertaken(nc);
    const isNews = !isOvertaken && !nonce.retired && this.#isNewEvent(attempt);
    const learn = isNews ? this.#lessonOfReuse(attempt, stale) : undefined;
    return () => {
      if (!isExpiry) nonce.noteRefused(nc);
      const isStep = this.policy === 'shared' && nonce.isOutOfOrderRefused;
      if (!isStep) learn?.();
      else if (this.#policy.overtaken()) this.#note();
    };
  }

  /** Takes over what others learned, which it returns true for, or tells it to a store that has lost it. */
  async ask(): Promise<boolean> {
    this.expire();
    const found = await this.#recall();
    if (found === 'nothing') await this.#write();
    return found === 'adopted';
  }

  /** Tells other processes what was learned here. Returns true if this took over what they learned. */
  async tell(): Promise<boolean> {
    // Others may know more than a process that has just started.
    const isAdopted = !this.#asked && (await this.#recall()) === 'adopted';
    void this.#write();
    return isAdopted;
  }

  /**
   * `nothing`: the store is there, and holds nothing of it, or not the last that was learned here. Undefined: there is
   * nothing to take over from it now.
   */
  async #recall(): Promise<'adopted' | 'nothing' | undefined> {
    const changes = this.#changes;
    const reply = await this.#options.sharedChallenges.recall();
    this.#asked ||= reply !== undefined;
    // Something newer was learned here meanwhile.
    if (reply === undefined || changes !== this.#changes) return undefined;
    const { learned } = reply;
    if (learned === undefined) return 'nothing';
    const own = this.#learned && { ...this.#learned, ageMs: learned.ageMs };
    const isUnwritten = this.#unconfirmed > 0 && !isDeepStrictEqual(learned, own);
    if (isUnwritten && this.#unconfirmed < WRITES_AT_MOST) return 'nothing';
    this.#unconfirmed = 0;
    return this.#adopt(learned) ? 'adopted' : undefined;
  }

  /** False: it is of another upstream. */
  #adopt(learned: Learned): boolean {
    const { realm, algorithm, policy, counted, portable, lifetimeMs, ageMs } = learned;
    this.#upstream ??= { realm, algorithm };
    if (!isSame(this.#upstream, learned)) return false;
    this.#counted = counted;
    this.#policy.adopt(policy);
    this.portable = portable;
    this.lifetime.adopt(lifetimeMs);
    this.#learnedAt = this.#knowsSomething ? this.#options.clock.now() - ageMs : undefined;
    return true;
  }

  /** Takes over what was learned with another credential, for a pool that has learned nothing. Returns whether it did. */
  inherit(former: Learning): boolean {
    former.expire();
    const learned = former.#learned;
    return this.#upstream === undefined && learned !== undefined && this.#adopt(learned);
  }

  /**
   * False: what was refused before explains this refusal, too. One event, as a flush at the upstream, hits every
   * nonce that was issued before, and the refusals arrive for as long as such nonces are left.
   */
  #isNewEvent({ nonce, sentAt }: NonceAttempt): boolean {
    if (nonce.obtainedAt <= this.#lastEventEnd && !this.#issuedSinceEvent.has(nonce.challenge)) return false;
    this.#issuedSinceEvent = new WeakSet();
    const now = this.#options.clock.now();
    // A challenge that arrives within a round trip from now may have been issued before the event.
    this.#lastEventEnd = now + (now - sentAt);
    return true;
  }

  #lessonOfReuse({ nonce, ageMs }: NonceAttempt, stale: boolean): (() => void) | undefined {
    const { accepted } = nonce;
    if (accepted === 0) {
      if (nonce.foreign && !stale) this.#learnFromForeign(ageMs);
      return undefined;
    }
    const isCrowd = nonce.lane.underWay > 0;
    const { isFirstCrowd } = nonce;
    return () => {
      // A nonce that went on to serve others was not refused for the way in which it was used, unless some were
      // accepted after that, too.
      const contested = isCrowd && (isFirstCrowd || nonce.accepted > accepted);
      this.#learnFromReuse({ ageMs, accepted, contested, counted: !nonce.shareable });
    };
  }

  /** An attempt of this request was accepted that was sent at this time. */
  #learnPending(sentAt: number, request: object | undefined): void {
    const lessons = this.#pending.get(request);
    if (lessons === undefined) return;
    const open = lessons.filter(({ since }) => since > sentAt);
    if (open.length > 0) this.#pending.set(request, open);
    else this.#pending.delete(request);
    for (const { since, learn } of lessons) if (since <= sentAt) learn();
  }

  #learnFromReuse(refusal: Omit<ReuseRefusal, 'lifetimeMs'>): void {
    const { ms: lifetimeMs } = this.lifetime;
    this.lifetime.refused(refusal.ageMs);
    const isStep = this.#policy.refused({ ...refusal, lifetimeMs });
    if (isStep || this.lifetime.ms !== lifetimeMs) this.#note();
  }

  #learnFromForeign(ageMs: number): void {
    if (ageMs > EARLY * (this.lifetime.ms ?? SHORT_LIFE_MS)) return;
    this.#foreignRefused += 1;
    if (!this.portable || this.#foreignRefused < BOUND_AFTER) return;
    this.portable = false;
    this.#note();
  }

  #forget(): void {
    this.#policy.forget();
    this.portable = true;
    this.#foreignRefused = 0;
    this.lifetime.forget();
    this.#learnedAt = undefined;
  }

  get #knowsSomething(): boolean {
    return this.policy !== 'shared' || !this.portable || this.lifetime.ms !== undefined;
  }

  #note(): void {
    this.#learnedAt = this.#knowsSomething ? (this.#learnedAt ?? this.#options.clock.now()) : undefined;
    this.#changes += 1;
    this.#unconfirmed = 0;
  }

  async #write(): Promise<void> {
    const learned = this.#learned;
    if (learned === undefined) return;
    const changes = this.#changes;
    const isWritten = await this.#options.sharedChallenges.learn(learned);
    // A process that does not know the lessons of others has none to share later.
    if (changes === this.#changes) this.#unconfirmed = this.#asked && !isWritten ? this.#unconfirmed + 1 : 0;
  }

  /** Everything learned here; undefined: nothing. */
  get #learned(): Learned | undefined {
    if (this.#upstream === undefined) return undefined;
    const { policy, portable, lifetime } = this;
    const counted = this.#counted ?? false;
    const now = this.#options.clock.now();
    const ageMs = now - (this.#learnedAt ?? now);
    return { ...this.#upstream, policy, counted, portable, lifetimeMs: lifetime.ms, ageMs };
  }
}

function isSame(a: Pick<Learned, 'realm' | 'algorithm'>, b: Pick<Learned, 'realm' | 'algorithm'>): boolean {
  return a.realm === b.realm && a.algorithm === b.algorithm;
}
