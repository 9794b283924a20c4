import { isDeepStrictEqual } from 'node:util';
import type { Clock } from '../base/clock.ts';
import type { Challenge } from '../digest/challenge.ts';
import { CrossProcessReuse } from './cross-process-reuse.ts';
import { Lifetime } from './lifetime.ts';
import type { Nonce, NonceAttempt } from './nonce.ts';
import { ReusePolicy } from './reuse-policy.ts';
import type { SharedChallenges } from './shared-challenges.ts';
import type { Learned, NoncePolicy } from './store/store.ts';

/**
 * Times that the last thing learned here is written while the store confirms none of them. Each write makes every other
 * process ask, so a slow store would be written to without end.
 */
const WRITES_AT_MOST = 3;

/** For how long an accepted attempt says what a HEAD ahead of a body would say, in milliseconds. */
const HEALTHY_MS = 1_000;

export interface LearningOptions {
  readonly sharedChallenges: SharedChallenges;
  readonly clock: Clock;
  /** `auto`: learned from refusals. */
  readonly policy: NoncePolicy | 'auto';
  /** Called after a step of the policy that was learned here. */
  readonly onStep: (policy: NoncePolicy, from: NoncePolicy) => void;
  /** Called when it was learned here that nonces of other processes are of use, or are not. */
  readonly onCrossProcess: (works: boolean) => void;
  /** Called after something was taken over that was learned elsewhere. */
  readonly onAdopted: () => void;
}

/** Learns about an upstream's nonces from those that it accepts and refuses, here and in other processes. */
export class Learning {
  readonly lifetime: Lifetime;
  readonly #options: LearningOptions;
  readonly #policy: ReusePolicy;
  readonly #crossProcess: CrossProcessReuse;
  /** Realm and algorithm that everything learned holds for. */
  #upstream: Pick<Learned, 'realm' | 'algorithm'> | undefined;
  #counted: boolean | undefined;
  /** Nonces obtained until then may have been hit by the last event that refused one … */
  #lastEventEnd = Number.NEGATIVE_INFINITY;
  /** … but for these challenges, which came with its refusals. */
  #issuedSinceEvent = new WeakSet<Challenge>();
  /** Lessons of refusals that a changed password would explain as well; an accepted attempt confirms them. */
  #pending: { readonly since: number; readonly learn: () => void }[] = [];
  /** How often something was learned here. */
  #changes = 0;
  /** True if the store has said what others learned. */
  #asked = false;
  /** Times that the store did not confirm the last thing that was learned here. */
  #unconfirmed = 0;

  constructor(options: LearningOptions) {
    this.#options = options;
    const { policy, clock, onStep } = options;
    const now = (): number => clock.now();
    this.lifetime = new Lifetime(now);
    this.#crossProcess = new CrossProcessReuse(now);
    this.#policy = new ReusePolicy({
      policy,
      now,
      onStep: (step, from) => {
        onStep(step, from);
        this.#tell();
      },
    });
  }

  get policy(): NoncePolicy {
    return this.#policy.policy;
  }

  /** True if a nonce is good for other processes, and theirs here. */
  get portable(): boolean {
    return this.#crossProcess.works;
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
    return this.ageOf(nonce) >= (this.lifetime.of(nonce) ?? Number.POSITIVE_INFINITY);
  }

  /** True if the upstream accepted the nonce more than once, just now, too, and has no known reason to refuse it next. */
  isHealthy(nonce: Nonce): boolean {
    const now = this.#options.clock.now();
    const ends = nonce.obtainedAt + (this.lifetime.of(nonce) ?? Number.POSITIVE_INFINITY);
    const isReused = nonce.accepted > 1 && now - nonce.acceptedAt < HEALTHY_MS;
    return isReused && !nonce.exhausted && now + HEALTHY_MS < ends;
  }

  /** The upstream issued it; with another realm or algorithm it is another upstream, and nothing is known. */
  issued({ challenge, shareable }: Nonce): void {
    const { realm, algorithm } = challenge;
    const about = { realm, algorithm: algorithm.token };
    if (this.#upstream !== undefined && !isSame(this.#upstream, about)) this.#forget();
    this.#upstream = about;
    const counted = !shareable;
    if (this.#counted === counted) return;
    this.#counted = counted;
    this.#tell();
  }

  /** The upstream accepted an attempt. */
  accepted({ nonce, nc, ageMs, isReuse, isOutOfOrder, sentAt }: NonceAttempt): void {
    if (this.#pending.length > 0) this.#learnPending(sentAt);
    nonce.noteAccepted(nc, this.#options.clock.now());
    const { ms } = this.lifetime;
    this.lifetime.accepted(ageMs, nonce);
    if (nonce.isOutOfOrderRefused) this.#policy.overtaken();
    const { trial, shareable } = nonce;
    if (isReuse)
      this.#policy.reused({ counted: !shareable, outOfOrder: isOutOfOrder, onTrial: trial === 'policy' });
    if (!nonce.hasCountLeftOut) nonce.trial = undefined;
    const isNews = nonce.foreign && this.#crossProcess.accepted();
    if (isNews) this.#options.onCrossProcess(true);
    if (isNews || this.lifetime.ms !== ms) this.#tell();
  }

  /**
   * The upstream refused the nonce of an attempt; `stale`: because it expired, as the upstream says. `challenge`: the
   * usable one that came with the refusal.
   */
  refused(attempt: NonceAttempt, stale: boolean, challenge?: Challenge): void {
    this.#learnRefused(attempt, stale);
    if (challenge !== undefined) this.#issuedSinceEvent.add(challenge);
  }

  #learnRefused(attempt: NonceAttempt, stale: boolean): void {
    const { nonce, nc, ageMs } = attempt;
    // At the end of a life, attempts that overtake each other on the way are accepted and refused in any order.
    const isExpiry = stale && this.lifetime.isAging(ageMs, nonce);
    if (!isExpiry) nonce.noteRefused(nc);
    const isStep = this.policy === 'shared' && nonce.isOutOfOrderRefused;
    if (isStep) this.#policy.overtaken();
    if (isStep || nonce.retired) return;
    if (nonce.trial === 'policy') this.#policy.trialRefused();
    else if (nonce.trial === 'age') this.lifetime.trialRefused();
    else if (this.#isNewEvent(attempt)) this.#learnFrom(attempt, stale);
  }

  /** True if a nonce is to try the freer policy now that it is given back. */
  takePolicyTrial(): boolean {
    if (this.#policy.beginTrial()) void this.#askForTrial();
    return this.#policy.takeTrial();
  }

  /** True if a nonce of another process is to be tried although they do not work here. */
  takeCrossProcessTrial(): boolean {
    return this.#crossProcess.takeTrial();
  }

  /** Takes over what others learned, or tells it to a store that has lost it. */
  async ask(): Promise<void> {
    const isWanting = await this.#recall();
    if (isWanting) await this.#write();
  }

  /** True: the store is there, and holds nothing of it, or not the last that was learned here. */
  async #recall(): Promise<boolean> {
    const changes = this.#changes;
    const reply = await this.#options.sharedChallenges.recall();
    this.#asked ||= reply !== undefined;
    // Something newer was learned here meanwhile.
    if (reply === undefined || changes !== this.#changes) return false;
    const { learned } = reply;
    if (learned === undefined) return true;
    const isUnwritten = this.#unconfirmed > 0 && !isDeepStrictEqual(learned, this.#learned);
    if (isUnwritten && this.#unconfirmed < WRITES_AT_MOST) return true;
    this.#unconfirmed = 0;
    this.#adopt(learned);
    return false;
  }

  #adopt(learned: Learned): void {
    const { realm, algorithm, policy, lifetimeMs } = learned;
    this.#upstream ??= { realm, algorithm };
    if (!isSame(this.#upstream, learned)) return;
    this.#policy.adopt(policy);
    this.#counted = learned.counted;
    this.#crossProcess.adopt(learned.portable);
    this.lifetime.adopt(lifetimeMs);
    this.#options.onAdopted();
  }

  /** Takes over what was learned with another credential, for a pool that has learned nothing. */
  inherit(former: Learning): void {
    if (this.#upstream !== undefined || former.#upstream === undefined) return;
    this.#upstream = former.#upstream;
    this.#policy.adopt(former.policy);
    this.#counted = former.#counted;
    this.#crossProcess.adopt(former.portable);
    this.lifetime.adopt(former.lifetime.ms);
    this.#options.onAdopted();
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

  #learnFrom({ nonce, ageMs }: NonceAttempt, stale: boolean): void {
    const { accepted } = nonce;
    if (accepted === 0) {
      if (nonce.foreign && !stale) this.#learnFromForeign(nonce, ageMs);
      return;
    }
    const isCrowd = nonce.lane.underWay > 0;
    const { isFirstCrowd } = nonce;
    const learn = (): void => {
      // A nonce that went on to serve others was not refused for the way in which it was used, unless some were
      // accepted after that, too.
      const contested = isCrowd && (isFirstCrowd || nonce.accepted > accepted);
      this.#learnFromReuse(nonce, { ageMs, accepted, contested, stale });
    };
    if (stale) learn();
    else this.#pending.push({ since: this.#options.clock.now(), learn });
  }

  /** An attempt was accepted that was sent at this time: earlier refusals were not about the credential. */
  #learnPending(sentAt: number): void {
    const due = this.#pending.filter(({ since }) => since <= sentAt);
    this.#pending = this.#pending.filter(({ since }) => since > sentAt);
    for (const { learn } of due) learn();
  }

  #learnFromReuse(
    nonce: Nonce,
    { stale, ...refusal }: { ageMs: number; accepted: number; contested: boolean; stale: boolean },
  ): void {
    const { ms: lifetimeMs } = this.lifetime;
    this.lifetime.refused(refusal.ageMs, nonce, stale);
    if (this.lifetime.ms !== lifetimeMs) this.#tell();
    this.#policy.refused({ ...refusal, counted: !nonce.shareable, lifetimeMs });
  }

  #learnFromForeign(nonce: Nonce, ageMs: number): void {
    if (!this.#crossProcess.refused(ageMs, this.lifetime.of(nonce))) return;
    this.#options.onCrossProcess(false);
    this.#tell();
  }

  /** One process at a time tries the freer policy. */
  async #askForTrial(): Promise<void> {
    if (await this.#options.sharedChallenges.leadTrial(this.#policy.trialMs)) this.#policy.allowTrial();
  }

  #forget(): void {
    this.#policy.forget();
    this.#crossProcess.forget();
    this.lifetime.forget();
  }

  #tell(): void {
    this.#changes += 1;
    this.#unconfirmed = 0;
    void this.#share();
  }

  async #share(): Promise<void> {
    // Others may know more than a process that has just started.
    if (!this.#asked) await this.#recall();
    await this.#write();
  }

  async #write(): Promise<void> {
    const learned = this.#learned;
    if (learned === undefined) return;
    const changes = this.#changes;
    const isWritten = await this.#options.sharedChallenges.learn(learned);
    // A process that does not know what others learned has nothing to tell them later.
    if (changes === this.#changes) this.#unconfirmed = this.#asked && !isWritten ? this.#unconfirmed + 1 : 0;
  }

  /** Everything learned here; undefined: nothing. */
  get #learned(): Learned | undefined {
    if (this.#upstream === undefined) return undefined;
    const { policy, portable, lifetime } = this;
    const counted = this.#counted ?? false;
    return { ...this.#upstream, policy, counted, portable, lifetimeMs: lifetime.ms };
  }
}

function isSame(a: Pick<Learned, 'realm' | 'algorithm'>, b: Pick<Learned, 'realm' | 'algorithm'>): boolean {
  return a.realm === b.realm && a.algorithm === b.algorithm;
}
