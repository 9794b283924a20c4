import { cookieIn, offeredQop } from './challenges.ts';
import { type NonceState, Nonces, NonceUses } from './nonces.ts';
import type { Behaviour } from './settings.ts';
import {
  type Accounts,
  digestFaults,
  type HashName,
  type Proof,
  readAuthorization,
  verify,
  wireText,
} from './verification.ts';

/** Reasons of a refusal: those of the digest, of the rest of the answer, of its nonce. */
export const refusals = [
  ...digestFaults,
  ...(['scheme', 'opaque', 'cookie', 'nonce-unknown', 'nonce-expired', 'nonce-used', 'nc'] as const),
];

type Refusal = (typeof refusals)[number];

/** The parts of a request that Digest needs. */
interface Attempt {
  readonly method: string;
  readonly target: string;
  readonly address: string;
  readonly authorization: string | undefined;
  readonly cookie: string | undefined;
  bodyHash(hash: HashName): Promise<string>;
}

export type Decision =
  | { readonly kind: 'accepted'; readonly proof: Proof }
  /** The request has no Authorization header. */
  | { readonly kind: 'asked' }
  | { readonly kind: 'refused'; readonly reason: Refusal; readonly stale: boolean }
  | { readonly kind: 'locked-out' };

interface Ticket {
  readonly nonce: string;
  readonly cookie: string;
  readonly opaque: string;
}

/** Checks Digest, the first check of every request. An instance has its own key and nonces. */
export class Authentication {
  readonly uses = new NonceUses();
  readonly #nonces: Nonces;
  readonly #lockouts: Lockouts;
  readonly #now: () => number;
  /** The nonce that all get who ask until then. */
  #shared: { readonly until: number; readonly nonce: string } | undefined;

  constructor(now: () => number) {
    this.#nonces = new Nonces(now);
    this.#lockouts = new Lockouts(now);
    this.#now = now;
  }

  /** Creates the variable parts of a new challenge. */
  issue(behaviour: Behaviour, address: string): Ticket {
    const nonce = this.#nonce(behaviour, address);
    return { nonce, cookie: this.#nonces.cookieOf(nonce), opaque: this.#nonces.opaque };
  }

  #nonce(behaviour: Behaviour, address: string): string {
    const { nonceLifetimeMs, sharedNonceMs } = behaviour;
    const issue = (): string => this.#nonces.issue(nonceLifetimeMs, bindingOf(behaviour, address));
    if (sharedNonceMs === null) return issue();
    const now = this.#now();
    if (this.#shared === undefined || now >= this.#shared.until) {
      this.#shared = { until: now + sharedNonceMs, nonce: issue() };
    }
    return this.#shared.nonce;
  }

  async decide(attempt: Attempt, behaviour: Behaviour, accounts: Accounts): Promise<Decision> {
    const { address, authorization } = attempt;
    if (behaviour.lockout !== null && this.#lockouts.isLocked(address)) return { kind: 'locked-out' };
    if (authorization === undefined) return { kind: 'asked' };
    const credentials = readAuthorization(authorization);
    if (credentials === undefined) return refused('malformed');
    if (credentials.scheme !== 'digest') return refused('scheme');
    const nonce = credentials.parameters.get('nonce') ?? '';
    const state = this.#nonces.inspect(nonce, bindingOf(behaviour, address));
    if (behaviour.staleFlag === 'always' && state !== 'fresh') return refused(`nonce-${state}`, true);
    const proof = await verify(credentials, {
      method: attempt.method,
      target: attempt.target,
      realm: wireText(behaviour.realm),
      accounts,
      qop: offeredQop(behaviour),
      algorithms: behaviour.algorithms,
      userhash: behaviour.userhash,
      bodyHash: attempt.bodyHash,
    });
    const { refusedTargets } = behaviour;
    const isRefused = refusedTargets !== null && attempt.target.includes(refusedTargets);
    if (typeof proof === 'string' || isRefused) {
      this.#lockouts.failed(address, behaviour.lockout);
      return refused(typeof proof === 'string' ? proof : 'wrong-response');
    }
    this.#lockouts.succeeded(address);
    return this.#admit(proof, state, credentials.parameters.get('opaque'), attempt, behaviour);
  }

  /** Checks the nonce of a correct digest. */
  #admit(
    proof: Proof,
    state: NonceState,
    opaque: string | undefined,
    attempt: Attempt,
    behaviour: Behaviour,
  ): Decision {
    const { nonce } = proof;
    if (state === 'unknown') return refused('nonce-unknown');
    const nc = proof.count === undefined ? undefined : Number.parseInt(proof.count.nc, 16);
    this.uses.see(nonce, nc);
    const offeredOpaque = behaviour.opaque ? this.#nonces.opaque : undefined;
    if (behaviour.requireMatchingOpaque && opaque !== offeredOpaque) return refused('opaque');
    if (behaviour.requireCookie && cookieIn(attempt.cookie) !== this.#nonces.cookieOf(nonce)) {
      return refused('cookie');
    }
    const flagged = behaviour.staleFlag !== 'never';
    if (state === 'expired') return refused('nonce-expired', flagged);
    const verdict = this.uses.accept(nonce, nc, behaviour);
    if (verdict === 'used-up') return refused('nonce-used', flagged);
    if (verdict === 'nc') return refused('nc');
    if (verdict === 'dead') return refused('nonce-unknown', behaviour.staleFlag === 'always');
    return { kind: 'accepted', proof };
  }
}

function bindingOf({ bindNonceToAddress }: Behaviour, address: string): string {
  return bindNonceToAddress ? address : '';
}

function refused(reason: Refusal, stale = false): Decision {
  return { kind: 'refused', reason, stale };
}

interface Record {
  failures: number;
  until: number;
}

/** Addresses with repeated wrong digests. */
class Lockouts {
  readonly #records = new Map<string, Record>();
  readonly #now: () => number;

  constructor(now: () => number) {
    this.#now = now;
  }

  isLocked(address: string): boolean {
    return (this.#records.get(address)?.until ?? 0) > this.#now();
  }

  failed(address: string, rule: Behaviour['lockout']): void {
    if (rule === null) return;
    const record = this.#records.get(address) ?? { failures: 0, until: 0 };
    record.failures += 1;
    if (record.failures >= rule.failures) {
      record.failures = 0;
      record.until = this.#now() + rule.durationMs;
    }
    this.#records.set(address, record);
  }

  succeeded(address: string): void {
    this.#records.delete(address);
  }
}
