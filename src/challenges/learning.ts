import type { Clock } from '../base/clock.ts';
import type { Challenge } from '../digest/challenge.ts';
import { Lifetime } from './lifetime.ts';
import type { Nonce } from './nonce.ts';
import type { Replicas } from './replicas.ts';
import type { NoncePolicy } from './store.ts';
import { Tolerance } from './tolerance.ts';

export interface LearningOptions {
  readonly replicas: Replicas;
  readonly clock: Clock;
  /** `auto`: learned from refusals. */
  readonly policy: NoncePolicy | 'auto';
  /** Told of a step of the policy that was learned here. */
  readonly onStep: (policy: NoncePolicy) => void;
}

/** What is learned about an upstream's nonces from those it accepts and refuses, here and in other processes. */
export class Learning {
  readonly lifetime = new Lifetime();
  readonly #options: LearningOptions;
  readonly #tolerance: Tolerance;

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

  ageOf(nonce: Nonce): number {
    return this.#options.clock.now() - nonce.obtainedAt;
  }

  /** Whether the upstream would refuse the nonce for its age. */
  isOver(nonce: Nonce): boolean {
    return this.ageOf(nonce) >= (this.lifetime.ms ?? Number.POSITIVE_INFINITY);
  }

  challenged(challenge: Challenge): void {
    this.#tolerance.challenged(challenge);
  }

  accepted(nonce: Nonce): void {
    this.lifetime.accepted(this.ageOf(nonce));
  }

  /** A nonce that had served was refused; told once for each. */
  refused(nonce: Nonce): void {
    const ageMs = this.ageOf(nonce);
    const { oldestAcceptedMs, ms: lifetimeMs } = this.lifetime;
    this.lifetime.refused(ageMs);
    if (this.lifetime.ms !== lifetimeMs) this.#tell();
    const contested = nonce.lane.underWay > 0;
    this.#tolerance.refused({ ageMs, uses: nonce.uses, contested, oldestAcceptedMs, lifetimeMs });
  }

  /** Takes over what others learned. */
  async ask(): Promise<void> {
    const learned = await this.#options.replicas.recall();
    if (learned === undefined || !this.#tolerance.told(learned)) return;
    if (learned.lifetimeMs !== undefined) this.lifetime.told(learned.lifetimeMs);
  }

  #tell(): void {
    const learned = this.#tolerance.learned(this.lifetime.ms);
    if (learned !== undefined) void this.#options.replicas.learn(learned);
  }
}
