import type { Cancellation } from '../base/cancellation.ts';
import type { Flight, Landing } from '../base/single-flight.ts';
import type { NonceAttempt } from '../challenges/nonce.ts';
import type { AttemptBudget } from './attempt-budget.ts';
import type { DigestClient } from './digest-client.ts';

/** A challenge that is older, in milliseconds, is not answered after a wait: the upstream may have dropped it. */
export const FRESH_MS = 100;

/** One authenticated attempt. */
export interface Attempt {
  readonly nonce: NonceAttempt;
  /** From `CredentialHealth`. */
  readonly number: number;
  /** True if the nonce was obtained for this request, and no other one has used it. */
  readonly own: boolean;
}

/** The request on whose behalf a credential is checked. */
export interface CheckedCall {
  readonly request: { readonly target: string };
  readonly budget: AttemptBudget;
  readonly cancellation: Cancellation;
}

/**
 * One request's part in finding out whether the upstream accepts the credential: a single request tests a doubted
 * credential while the others wait, so that a wrong password costs few attempts and a good one is not taken for wrong.
 */
export class CredentialCheck {
  readonly #client: DigestClient;
  readonly #call: CheckedCall;
  /** Held while this request is the one that tests. */
  #flight: Flight | undefined;
  /** True if a test took longer than this request waits. */
  #hasWaited = false;

  constructor(client: DigestClient, call: CheckedCall) {
    this.#client = client;
    this.#call = call;
  }

  /** True if an attempt can be made at once: the credential is accepted and not in doubt, or this request tests it. */
  get isNeedless(): boolean {
    const { health, flights } = this.#client;
    return this.leads || (health.accepted && !flights.busy);
  }

  /** True while this request tests the credential. */
  get leads(): boolean {
    return this.#flight !== undefined;
  }

  /** The upstream accepted the credential: no test of an unknown credential need be waited for. */
  accept(): void {
    this.end('check');
    const { state } = this.#client;
    state.firstTest?.land('check');
    state.firstTest = undefined;
  }

  /** Ends the test: the others look at what is known now, or go on without knowing. */
  end(landing: Landing): void {
    this.#flight?.land(landing);
    this.#flight = undefined;
  }

  /**
   * Before an authenticated attempt: waits while another request tests the credential, or begins to test it if it is
   * unknown. `refused`: the credential is.
   */
  async begin(): Promise<'at-once' | 'waited' | 'refused'> {
    const { health, flights, options } = this.#client;
    for (let entry: 'at-once' | 'waited' = 'at-once'; ; entry = 'waited') {
      if (health.refused) return 'refused';
      if (!flights.busy) {
        if (!health.accepted) this.#leadFirst();
        return entry;
      }
      // The upstream may take as long as it likes for the request that tests: each other one waits once, and not for a
      // test that has taken too long already.
      const left = options.patienceMs - flights.age;
      if (this.#hasWaited || left <= 0) return entry;
      if ((await this.#follow(left)) === 'proceed') return 'waited';
    }
  }

  #leadFirst(): void {
    const { state, flights, options } = this.#client;
    this.#flight = flights.lead(options.patienceMs);
    state.firstTest = this.#flight;
  }

  /**
   * A 401 that is not called stale may mean the nonce, its count, the target, or the credential. Returns false if it is
   * the credential, as a request of the gateway's own has shown, or if another version is in use by now. `isEvidence`: it
   * answered a challenge of its own, and its refusal names another nonce.
   */
  async survives(attempt: Attempt, isEvidence: boolean, isLast: boolean): Promise<boolean> {
    const { health, listener } = this.#client;
    const { budget } = this.#call;
    if (listener.isReplaced) return false;
    // A second refusal of a credential that was found good in between says nothing new of it.
    if (isLast && budget.confirmed && !listener.hasAlternatives && !health.refused) return true;
    if (isEvidence && !listener.isInUse && !health.accepted && !health.isSuperseded(attempt.number)) {
      if (health.refuse(attempt.number)) listener.onRefused();
      return false;
    }
    if (isEvidence && !health.refused) listener.onUnconfirmed();
    if (!(await this.#isExplained(attempt, isEvidence))) return false;
    budget.confirmed ||= attempt.own && health.accepted;
    return !isLast || !listener.hasAlternatives || this.#awaitVerdict();
  }

  /**
   * Waits until something else than the credential explains the refusal, or nobody can find out. False: it does.
   */
  async #isExplained(attempt: Attempt, isEvidence: boolean): Promise<boolean> {
    const { health, flights, listener, options } = this.#client;
    const { budget } = this.#call;
    // A later attempt can reach the upstream before this one. Where that would waste the attempt that another version
    // needs, only attempts count that are sent from now on.
    const sent = listener.hasAlternatives ? health.lastAttempt : attempt.number;
    while (!health.isSuperseded(sent)) {
      if (health.refused) return false;
      if (!health.accepted && !attempt.own) return true;
      if (this.#mayLead(attempt)) {
        this.#flight ??= flights.lead(options.patienceMs);
        return true;
      }
      this.end('check');
      if (!flights.busy) this.#confirm(attempt, isEvidence);
      if ((await this.#follow()) === 'proceed') return true;
      budget.confirmed = health.accepted;
    }
    return true;
  }

  /** Evidence takes the place of the first probe of a credential that was not accepted yet. */
  #confirm({ number }: Attempt, isEvidence: boolean): void {
    const { health, listener } = this.#client;
    listener.confirm(this.#call.request.target, isEvidence && !health.accepted ? number : undefined);
  }

  /**
   * True if this request itself can find out with its second attempt. Not if another version could be needed for
   * that, or if others wait, or if the upstream may drop several nonces within a round trip: then the gateway asks
   * with a request of its own, so that no client request fails by it.
   */
  #mayLead({ own, nonce: { nonce, sentAt } }: Attempt): boolean {
    const { flights, state, listener, clock } = this.#client;
    if (own || flights.busy || listener.hasAlternatives || state.clientRequests > 1) return false;
    return nonce.uses <= 1 || clock.now() - sentAt < FRESH_MS;
  }

  /**
   * For a request without an attempt left, when nothing is known of the credential: waits for the test in progress,
   * then for one probe, so that it does not fail while another version is accepted. False: the credential is refused.
   */
  async #awaitVerdict(): Promise<boolean> {
    const { health, flights, listener } = this.#client;
    if (!health.accepted && flights.busy) await this.#follow();
    if (!health.accepted && !health.refused && !flights.busy) {
      listener.confirm(this.#call.request.target);
      await this.#follow();
    }
    return !health.refused;
  }

  async #follow(patienceMs?: number): Promise<Landing> {
    const { cancellation } = this.#call;
    const landing = await this.#client.flights.follow(cancellation, patienceMs);
    if (cancellation.reason !== undefined) throw cancellation.reason;
    if (landing !== 'late') return landing;
    this.#hasWaited = true;
    return 'proceed';
  }
}
