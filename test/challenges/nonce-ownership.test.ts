import { expect, test } from '@jest/globals';
import type { NonceAttempt } from '../../src/challenges/nonce.ts';
import type { PendingChallenge } from '../../src/challenges/pending-challenges.ts';
import { NoncePool } from '../../src/challenges/pool.ts';
import { MemoryChallengeStore } from '../../src/challenges/store/memory.ts';
import type { ChallengeStore, NoncePolicy } from '../../src/challenges/store/store.ts';
import { parseChallenges } from '../../src/digest/challenge.ts';
import { generator, unreliableStore } from '../contracts/unreliable-store.ts';
import { poolOptions } from '../support/challenges.ts';

const STEPS = 400;
const POOLS = 4;

interface UnderWay {
  readonly pool: NoncePool;
  readonly pending: PendingChallenge | undefined;
  readonly attempt: NonceAttempt;
}

/** Pools on one store that come and go while requests of theirs are under way, in an order that the seed decides. */
class Fleet {
  /** How often each nonce and nc went out. */
  readonly sent = new Map<string, number>();
  readonly #random: () => number;
  readonly #store: () => ChallengeStore;
  readonly #policy: NoncePolicy;
  readonly #leaving: Promise<void>[] = [];
  #pools: NoncePool[] = [];
  #underWay: UnderWay[] = [];
  #issued = 0;
  readonly #names = new Map<NoncePool, number>();

  constructor(seed: number, policy: NoncePolicy, isReliable: boolean) {
    const memory = new MemoryChallengeStore();
    this.#random = generator(seed);
    this.#policy = policy;
    const rates = { delayMs: 1, loseState: 0 };
    this.#store = () => (isReliable ? memory.join() : unreliableStore(memory.join(), seed, rates));
  }

  async run(): Promise<void> {
    const steps = [
      () => this.#start(),
      () => this.#obtain(),
      () => this.#reserve(),
      () => this.#reserve(),
      () => this.#accept(),
      () => this.#accept(),
      () => this.#refuse(),
      () => this.#repeat(),
      () => this.#stop(),
    ];
    for (let step = 0; step < STEPS; step += 1) await this.#pick(steps)?.();
    for (const { attempt } of this.#underWay) attempt.nonce.endAttempt();
    await Promise.all(this.#leaving);
  }

  async #start(): Promise<void> {
    if (this.#pools.length === POOLS) return;
    const pool = new NoncePool(poolOptions({ random: this.#random, policy: this.#policy }, this.#store()));
    this.#pools.push(pool);
    this.#names.set(pool, this.#names.size);
    await pool.restore();
  }

  /** The pool goes, the requests under way with its nonces do not. */
  #stop(): void {
    const pool = this.#pick(this.#pools);
    if (pool === undefined || this.#random() < 0.7) return;
    this.#pools = this.#pools.filter((other) => other !== pool);
    this.#leaving.push(pool.handOver());
  }

  #obtain(): void {
    const pool = this.#pick(this.#pools);
    if (pool === undefined || this.#random() < 0.5) return;
    this.#issued += 1;
    const [challenge] = parseChallenges([`Digest realm="r", nonce="${this.#issued}", qop="auth"`]);
    if (challenge === undefined) throw new Error('no challenge');
    const pending = pool.open(pool.known);
    this.#send(pool, pending, pool.begin(pool.offer(pending, { challenge, cookies: [] })));
    pool.close(pending);
  }

  #reserve(): void {
    const pool = this.#pick(this.#pools);
    const nonce = pool?.reserve();
    if (pool !== undefined && nonce !== undefined) this.#send(pool, undefined, pool.begin(nonce));
  }

  #accept(): void {
    const ended = this.#end();
    if (ended === undefined) return;
    const { pool, attempt, pending } = ended;
    // The same process may get the same nextnonce twice, as within one millisecond; two processes do not.
    const next = `${attempt.nonce.challenge.nonce}/${this.#names.get(pool)}`;
    pool.accept(attempt, pending, this.#random() < 0.1 ? next : undefined);
    attempt.nonce.endAttempt();
  }

  #refuse(): void {
    if (this.#random() < 0.7) return;
    const ended = this.#end();
    ended?.pool.refuse(ended.attempt);
    ended?.attempt.nonce.endAttempt();
  }

  /** A connection breaks, and the request is sent again, with the same nonce if it may be. */
  #repeat(): void {
    const ended = this.#end();
    if (ended === undefined) return;
    const { pool, pending, attempt } = ended;
    attempt.nonce.endAttempt();
    this.#send(pool, pending, pool.begin(attempt.nonce));
  }

  #send(pool: NoncePool, pending: PendingChallenge | undefined, attempt: NonceAttempt | undefined): void {
    if (attempt === undefined) return;
    const sent = `${attempt.nonce.challenge.nonce} ${attempt.nc}`;
    this.sent.set(sent, (this.sent.get(sent) ?? 0) + 1);
    this.#underWay.push({ pool, pending, attempt });
  }

  #end(): UnderWay | undefined {
    const ended = this.#pick(this.#underWay);
    this.#underWay = this.#underWay.filter((other) => other !== ended);
    return ended;
  }

  #pick<T>(items: readonly T[]): T | undefined {
    return items[Math.floor(this.#random() * items.length)];
  }
}

test.each([
  ['shared', true],
  ['exclusive', true],
  ['shared', false],
  ['exclusive', false],
] as const)('no count goes out twice with a nonce: %s, reliable store: %s', async (policy, isReliable) => {
  let sent = 0;
  for (let seed = 1; seed <= (isReliable ? 150 : 20); seed += 1) {
    const fleet = new Fleet(seed, policy, isReliable);
    await fleet.run();
    const twice = [...fleet.sent].filter(([, times]) => times > 1);
    expect([seed, ...twice]).toEqual([seed]);
    sent += fleet.sent.size;
  }
  expect(sent).toBeGreaterThan(1_000);
});
