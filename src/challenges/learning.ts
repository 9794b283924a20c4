import type { Clock } from '../base/clock.ts';
import { Lifetime } from './lifetime.ts';
import type { Nonce } from './nonce.ts';
import { Portability } from './portability.ts';
import type { Replicas } from './replicas.ts';
import type { Learned, NoncePolicy } from './store.ts';
import { Tolerance } from './tolerance.ts';

export interface LearningOptions {
  readonly replicas: Replicas;
  readonly clock: Clock;
  /** `auto`: learned from refusals. */
  readonly policy: NoncePolicy | 'auto';
  /** Told of a step of the policy that was learned here. */
  readonly onStep: (policy: NoncePolicy) => void;
  /** Told when the nonces of other processes turn out to be of no use here. */
  readonly onApart: () => void;
}

/** What is learned about an upstream's nonces from those it accepts and refuses, here and in other processes. */
export class Learning {
  readonly lifetime = new Lifetime();
  readonly #options: LearningOptions;
  readonly #tolerance: Tolerance;
  readonly #portability = new Portability();
  /** What all of it is about. */
  #upstream: Pick<Learned, 'realm' | 'algorithm'> | undefined;
  #counted: boolean | undefined;

  constructor(options: LearningOptions) {
    this.#options = options;
    const { policy, clock, onStep } = options;
    this.#tolerance = new Tolerance({
      policy,
      now: () => clock.now(),
      onStep: (step) => {
        onStep(step);
        this.#tell();
      },
    });
  }

  get policy(): NoncePolicy {
    return this.#tolerance.policy;
  }

  /** Whether a nonce is good for other processes, and theirs here. */
  get portable(): boolean {
    return this.#portability.portable;
  }

  /** Whether another process can hold a nonce that serves here, as far as it is known. */
  get sharesNonces(): boolean {
    return this.policy === 'shared' && this.#counted !== true && this.portable;
  }

  ageOf(nonce: Nonce): number {
    return this.#options.clock.now() - nonce.obtainedAt;
  }

  /** Whether the upstream would refuse the nonce for its age. */
  isOver(nonce: Nonce): boolean {
    return this.ageOf(nonce) >= (this.lifetime.of(nonce) ?? Number.POSITIVE_INFINITY);
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

  /** `ageMs`: when the answer to it was sent. */
  accepted(nonce: Nonce, ageMs: number): void {
    this.lifetime.accepted(ageMs, nonce);
    if (nonce.foreign) this.#portability.accepted();
  }

  /** A nonce was refused; told once for each. */
  refused(nonce: Nonce): void {
    const ageMs = this.ageOf(nonce);
    if (nonce.uses > 0) this.#refusedAfterUse(nonce, ageMs);
    else if (nonce.foreign) this.#refusedAtOnce(nonce, ageMs);
  }

  /** Takes over what others learned. */
  async ask(): Promise<void> {
    const learned = await this.#options.replicas.recall();
    if (learned === undefined) return;
    const { realm, algorithm, policy, lifetimeMs } = learned;
    this.#upstream ??= { realm, algorithm };
    if (!isSame(this.#upstream, learned)) return;
    this.#tolerance.told(policy);
    this.#counted = learned.counted;
    if (!learned.portable) this.#portability.told();
    if (lifetimeMs !== undefined) this.lifetime.told(lifetimeMs);
  }

  #refusedAfterUse(nonce: Nonce, ageMs: number): void {
    const { oldestAcceptedMs, ms: lifetimeMs } = this.lifetime;
    this.lifetime.refused(ageMs, nonce);
    if (this.lifetime.ms !== lifetimeMs) this.#tell();
    const contested = nonce.lane.underWay > 0;
    const { uses, shareable } = nonce;
    const counted = !shareable;
    this.#tolerance.refused({ ageMs, uses, contested, counted, oldestAcceptedMs, lifetimeMs });
  }

  #refusedAtOnce(nonce: Nonce, ageMs: number): void {
    this.#portability.refused(ageMs, this.lifetime.of(nonce));
    if (this.portable) return;
    this.#options.onApart();
    this.#tell();
  }

  #forget(): void {
    this.#tolerance.forget();
    this.#portability.forget();
    this.lifetime.forget();
  }

  #tell(): void {
    if (this.#upstream === undefined) return;
    const { policy, portable } = this;
    const lifetimeMs = this.lifetime.ms;
    const counted = this.#counted ?? false;
    void this.#options.replicas.learn({ ...this.#upstream, policy, counted, portable, lifetimeMs });
  }
}

function isSame(a: Pick<Learned, 'realm' | 'algorithm'>, b: Pick<Learned, 'realm' | 'algorithm'>): boolean {
  return a.realm === b.realm && a.algorithm === b.algorithm;
}
