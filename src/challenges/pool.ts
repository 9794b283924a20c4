import type { Cancellation } from '../base/cancellation.ts';
import type { Challenge } from '../digest/challenge.ts';
import { IdleNonces } from './idle-nonces.ts';
import { Learning, type LearningOptions } from './learning.ts';
import { type Nonce, type NonceAttempt, NonceFactory, type NonceFactoryOptions } from './nonce.ts';
import { PendingChallenge, PendingChallenges } from './pending-challenges.ts';
import { Renewal, type RenewalDeps } from './renewal.ts';
import { AdoptionGuard, type AdoptionGuardOptions } from './shared-challenges.ts';
import type { AgedChallenge, HeldChallenge, NoncePolicy, ParkedChallenge } from './store/store.ts';

/** How long a cold start waits for the challenge that another process obtains, in milliseconds: several round trips. */
const ELSEWHERE_MS = 1_000;
/** More than any number of requests that the process before this one had under way at once. */
const RESTORED_AT_MOST = 64;

/** The options of all parts of a pool. Those by which the parts know each other are the pool's own. */
export type PoolOptions = NonceFactoryOptions &
  AdoptionGuardOptions &
  LearningOptions &
  Omit<RenewalDeps, 'learning'> & {
    /** Called after a step of the reuse policy that was learned here. */
    readonly onStep: (policy: NoncePolicy, from: NoncePolicy) => void;
    /** Called when it was learned here that nonces of other processes are of no use. */
    readonly onBound: () => void;
  };

/**
 * The nonces of one key in this process. `reserve` answers at once; a request that finds no nonce waits for
 * the handshake of another one here, or for a moment, of another process.
 */
export class NoncePool {
  readonly #options: PoolOptions;
  readonly #queue = new PendingChallenges();
  readonly #learning: Learning;
  readonly #factory: NonceFactory;
  /** None with the policy `shared`. */
  readonly #idle: IdleNonces;
  readonly #renewal: Renewal;
  readonly #guard: AdoptionGuard;
  #known: Nonce | undefined;
  #closed = false;
  /** False: its nonces are left to nobody. */
  #leaves = true;
  /** Nonces that were refused since one was last used again. */
  #refusedInARow = 0;

  constructor(options: PoolOptions) {
    this.#options = options;
    this.#factory = new NonceFactory(options);
    this.#guard = new AdoptionGuard(options);
    this.#learning = new Learning(options);
    this.#idle = new IdleNonces(this.#learning, options.renew);
    this.#renewal = new Renewal({ ...options, learning: this.#learning });
  }

  /** The nonce in use, for the metrics; undefined: none is known. */
  get known(): Nonce | undefined {
    return this.#known;
  }

  /** The nonce in use, if a body that can be sent only once may go out with it at once; undefined: ask before. */
  get healthy(): Nonce | undefined {
    return this.#known !== undefined && this.#learning.isHealthy(this.#known) ? this.#known : undefined;
  }

  get policy(): NoncePolicy {
    return this.#learning.policy;
  }

  /** Learned lifetime of nonces, in milliseconds; undefined: unknown. */
  get lifetimeMs(): number | undefined {
    return this.#learning.lifetime.ms;
  }

  /**
   * Takes over what other processes share or left behind, and what the pool of another credential learned. For
   * the start: no request waits for it.
   */
  async restore(former?: NoncePool): Promise<void> {
    if (former !== undefined && this.#learning.inherit(former.#learning)) this.#applyAdopted();
    if (await this.#learning.ask()) this.#applyAdopted();
    if (this.#known !== undefined || !this.#learning.portable) return;
    if (this.#learning.policy !== 'shared') return this.#restoreIdle();
    const { sharedChallenges } = this.#options;
    const held = (await sharedChallenges.load()) ?? (await sharedChallenges.take());
    const nonce = held && this.#adopted(held);
    if (nonce !== undefined && this.#known === undefined) this.#use(nonce);
  }

  /** Looks up what another process learned or shared; a newer challenge takes the place of an older one. */
  async adopt(): Promise<void> {
    if (await this.#learning.ask()) this.#applyAdopted();
    if (!this.#learning.portable) return;
    const held = await this.#options.sharedChallenges.load();
    if (this.#learning.policy !== 'shared' || this.#closed) return;
    const own = this.#known;
    if (held !== undefined && held.challenge.nonce === own?.challenge.nonce) return;
    const nonce = held && this.#adopted(held);
    if (nonce !== undefined && (own === undefined || nonce.obtainedAt > own.obtainedAt)) this.#use(nonce);
    // A store that lost everything, or was out of reach, gets the values that are still good here.
    // It does not replace one that does not fit here: where another process meets another realm, each would write again.
    else if (own !== undefined && (held === undefined || nonce !== undefined)) void this.#share(own);
  }

  /**
   * Ends the pool: a request under way that needs another attempt obtains a nonce of its own. A nonce with a
   * count is left for the next process; one with requests under way when the last of them is over. Resolves
   * when those that nobody uses now are left. `isReplaced`: true if another pool here goes on with the key. Then none is
   * left, so that this process may go on counting on a nonce that the upstream issues again.
   */
  async handOver(isReplaced = false): Promise<void> {
    this.#closed = true;
    this.#leaves = !isReplaced;
    const nonces = [...this.#idle.drain(), ...(this.#known === undefined ? [] : [this.#known])];
    this.#dropKnown();
    this.#queue.dissolve();
    await Promise.all(nonces.map((nonce) => this.#leave(nonce)));
  }

  /** The nonce in use; undefined: none is known, so `enter`. */
  reserve(): Nonce | undefined {
    if (this.#closed) return undefined;
    this.#learning.expire();
    if (this.#learning.policy !== 'shared') return this.#idle.take();
    if (this.#known?.exhausted === true) this.#known = undefined;
    // One that is left from a stricter policy, or from another process.
    const idle = this.#known === undefined ? this.#idle.take() : undefined;
    if (idle !== undefined) this.#publish(idle);
    return this.#known;
  }

  /**
   * A nonce from the handshake under way, here or in another process; or the duty to obtain one: when none
   * is under way, when it takes too long, when it ended without a challenge, or when the request is given up.
   */
  async enter(cancellation: Cancellation): Promise<Nonce | PendingChallenge> {
    if (this.#closed) return this.open();
    if (this.#queue.busy) return this.#queue.wait(cancellation);
    const pending = this.open();
    if (!this.#learning.sharesNonces) return pending;
    // Processes that start together ask for one challenge, not each for its own.
    const { sharedChallenges, clock } = this.#options;
    const until = clock.now() + ELSEWHERE_MS;
    if (await sharedChallenges.lead(ELSEWHERE_MS)) return this.#known ?? pending;
    return this.#known ?? this.#queue.waitElsewhere(pending, until - clock.now(), cancellation);
  }

  /**
   * Begins a handshake, to replace a nonce that is still good, or the first one. Others wait for it
   * unless a nonce is known or another is under way.
   */
  open(replaces?: Nonce): PendingChallenge {
    const pending = new PendingChallenge(replaces);
    if (this.#known === undefined && this.#learning.policy === 'shared' && !this.#closed)
      this.#queue.lead(pending);
    return pending;
  }

  /**
   * Begins an attempt; undefined: the nonce was refused meanwhile, or belongs to another process now, so the
   * request needs another one. The caller calls `endAttempt` of the nonce.
   */
  begin(nonce: Nonce): NonceAttempt | undefined {
    return nonce.begin(this.#options.clock.now());
  }

  /**
   * The upstream refused the nonce of this attempt, and called it expired (`stale`) or did not. A newer one,
   * learned meanwhile, stays. `challenge`: the usable one that came with the refusal. `request`: an object that stands for
   * the request of the attempt.
   */
  refuse(attempt: NonceAttempt, stale = false, challenge?: Challenge, request?: object): void {
    const { nonce } = attempt;
    if (stale && challenge !== undefined) this.#factory.calledStale(nonce, challenge);
    if (this.#known === nonce) this.#dropKnown();
    if (nonce.foreign && nonce.accepted === 0 && !nonce.retired) {
      // A nonce that only expired says nothing against who left it, and costs no failed attempt.
      if (!stale) this.#guard.refused();
      void this.#options.sharedChallenges.discard(nonce);
    }
    const { policy, portable } = this.#learning;
    if (this.#learning.refused(attempt, stale, challenge, request)) this.#apply(policy, portable);
    if (!nonce.retired) this.#refusedInARow += 1;
    nonce.retire();
  }

  /**
   * The attempt got no response. A nonce with a count, or for one request at a time, is used no more: the upstream
   * may have seen the attempt or not, and a strict one accepts only one of the two counts.
   */
  abandon({ nonce }: NonceAttempt): void {
    if (nonce.shareable && this.#learning.policy === 'shared' && nonce.uses > 0) return;
    if (this.#known === nonce) this.#dropKnown();
    nonce.retire();
  }

  /**
   * For a credential that was found good after nonces were refused: drops the idle nonces if several were, with none
   * used again in between, since the upstream has dropped others that it issued at the same time.
   */
  dropIdle(): void {
    if (this.#refusedInARow < 2) return;
    this.#refusedInARow = 0;
    for (const nonce of this.#idle.drain()) nonce.retire();
  }

  /** True if other requests used the lane of this attempt's nonce since it began, or can still begin to. */
  isContested({ contested, nonce }: NonceAttempt): boolean {
    return contested || this.#known?.lane === nonce.lane;
  }

  /**
   * The upstream's challenge came: the nonce with which this request answers. It is this request's own
   * until the upstream has accepted it: somebody else's answer could be there first, and the server
   * refuse a brand-new nonce (nc out of order, or a nonce that serves once), which would look like a
   * refused credential.
   */
  offer(pending: PendingChallenge, held: HeldChallenge): Nonce {
    this.#guard.issued(held.challenge);
    const nonce = this.#factory.issued(held);
    if (this.#learning.issued(nonce)) void this.#tell();
    pending.nonce = nonce;
    return nonce;
  }

  /**
   * The upstream accepted an attempt of this request, and named the nonce to use after it or did not. From now on it serves
   * others, as the policy has it, unless a newer one does.
   */
  accept(
    attempt: NonceAttempt,
    pending: PendingChallenge | undefined,
    nextnonce: string | undefined,
    request?: object,
  ): void {
    const { nonce } = attempt;
    if (nonce.uses > 0) this.#refusedInARow = 0;
    // Its own renewal is no use: a nonce that only renewals use would be renewed for ever.
    if (pending?.replaces === undefined) nonce.uses += 1;
    const { policy: from, portable } = this.#learning;
    const wasTaken = from !== 'shared';
    if (this.#learning.accepted(attempt, request)) this.#apply(from, portable);
    if (nonce.foreign) this.#guard.accepted();
    const next = nextnonce === undefined ? nonce : this.#factory.following(nonce, nextnonce);
    if (this.#closed) {
      if (next === nonce) void this.#leave(nonce);
    } else if (wasTaken || this.#learning.policy !== 'shared') {
      this.#idle.giveBack(nonce, next);
    } else if (nonce === this.#known) {
      if (next !== nonce) this.#publish(next);
    } else if (nonce === pending?.nonce && this.#known === pending.replaces) {
      this.#publish(next);
    }
  }

  /** The nonce of a handshake serves others although no request has tried it. */
  acceptUntried(pending: PendingChallenge): void {
    const { nonce, replaces } = pending;
    if (nonce === undefined || this.#closed) return;
    if (this.#learning.policy !== 'shared') this.#idle.giveBack(nonce, nonce);
    else if (this.#known === replaces) this.#publish(nonce);
  }

  /** The upstream asked for no authentication: ends the wait for a challenge that does not come. */
  unchallenged(pending: PendingChallenge): void {
    this.#queue.unchallenged(pending);
  }

  /** Ends a handshake. If it brought no nonce, the first who waits begins the next one. */
  close(pending: PendingChallenge): void {
    this.#queue.close(pending);
  }

  /** Makes a nonce of a stored challenge if this process may use it; otherwise removes it from the store. */
  #adopted(held: AgedChallenge | ParkedChallenge): Nonce | undefined {
    if (!this.#learning.portable || this.#guard.paused) return undefined;
    if (this.#guard.fits(held.challenge)) return this.#factory.adopted(held);
    void this.#options.sharedChallenges.discard(held);
    return undefined;
  }

  /** Something was learned here: reports it, and shares it with other processes. */
  #apply(from: NoncePolicy, wasPortable: boolean): void {
    const { policy, portable } = this.#learning;
    if (policy !== from) {
      this.#options.onStep(policy, from);
      this.#stopSharing();
    }
    if (portable !== wasPortable) this.#options.onBound();
    void this.#tell();
  }

  async #tell(): Promise<void> {
    if (await this.#learning.tell()) this.#applyAdopted();
  }

  /** Something was taken over that was learned elsewhere. */
  #applyAdopted(): void {
    if (this.#learning.policy !== 'shared') this.#stopSharing();
    else if (!this.#learning.sharesNonces) this.#queue.stopWaiting();
  }

  /** Retires the nonce in use; requests that wait for one obtain their own. */
  #stopSharing(): void {
    this.#known?.retire();
    this.#dropKnown();
    this.#queue.dissolve();
  }

  async #restoreIdle(): Promise<void> {
    for (let count = 0; count < RESTORED_AT_MOST; count += 1) {
      const held = await this.#options.sharedChallenges.take();
      if (held === undefined) return;
      const nonce = this.#adopted(held);
      // One that was used already may be used no more.
      const isOver = this.#learning.policy === 'single-use' && 'count' in held && held.count > 0;
      if (nonce !== undefined && !isOver) this.#idle.adopt(nonce);
    }
  }

  /** Leaves a nonce with a count for the next process, once it is not in use. Resolves at once while it is. */
  #leave(nonce: Nonce): Promise<void> {
    const isLeft = this.#leaves && !nonce.shareable && !nonce.isIssuedAgain;
    if (!isLeft || nonce.retired) return Promise.resolve();
    nonce.retire();
    const { sharedChallenges, clock } = this.#options;
    let left = Promise.resolve();
    nonce.whenUnused(() => {
      if (!nonce.isIssuedAgain) left = sharedChallenges.park(nonce.handOver(clock.now()), this.lifetimeMs);
    });
    return left;
  }

  #publish(nonce: Nonce): void {
    this.#use(nonce);
    void this.#share(nonce);
  }

  #dropKnown(): void {
    this.#known = undefined;
    this.#renewal.cancel();
  }

  #use(nonce: Nonce): void {
    this.#known = nonce;
    this.#renewal.plan(nonce);
    this.#queue.serve(nonce);
  }

  /** Offers a nonce without a count to other processes, where they can use it. */
  async #share(nonce: Nonce): Promise<void> {
    if (!nonce.shareable || !this.#learning.portable) return;
    const { challenge, cookies } = nonce;
    const next = { challenge, cookies, ageMs: this.#learning.ageOf(nonce) };
    const quicker = await this.#options.sharedChallenges.share(next, this.lifetimeMs);
    const adopted = quicker && this.#adopted(quicker);
    if (adopted !== undefined && this.#known === nonce) this.#use(adopted);
  }
}
