import { monotonicClock } from '../base/clock.ts';
import { type Flight, SingleFlight } from '../base/single-flight.ts';
import type { Call } from '../handshake/account.ts';
import type { CredentialVersion, Transport } from './credential-version.ts';

/** The longest that a request waits for others that find out about a credential, in milliseconds. */
export const PATIENCE_MS = 10_000;

/** A client's request under way. */
export interface Sending extends Call {
  readonly transport: Transport;
  /** Held while this request tests an unknown version, for which others wait; undefined: it does not. */
  flight: Flight | undefined;
  /** The version of its last handshake; undefined: there was none. */
  version: CredentialVersion | undefined;
  /** True: it has waited for others as long as it may. */
  isLate: boolean;
}

/** How a wait ended; `proceed`: whoever led found out nothing; `late`: it took longer than the request may wait. */
export type WaitEnd = 'check' | 'proceed' | 'late';

/** What requests with one credential wait for: a request that tests an unknown version, or a verification. */
export class Waiting extends SingleFlight {
  /** Of the request that tests an unknown version; undefined: none does. */
  #test: Flight | undefined;

  /** This request tests an unknown version, while others wait. */
  beginTest(call: Sending): void {
    call.flight = this.lead();
    this.#test = call.flight;
  }

  endTest(call: Sending, landing: 'check' | 'proceed'): void {
    if (call.flight === undefined) return;
    call.flight.land(landing);
    if (this.#test === call.flight) this.#test = undefined;
    call.flight = undefined;
  }

  /** Some request has shown what is to be tested. */
  endAnyTest(): void {
    this.#test?.land('check');
    this.#test = undefined;
  }

  /** Begins a verification; requests wait until the function that it returns is called. */
  beginVerification(): () => void {
    const flight = this.lead();
    return () => flight.land('check');
  }

  /** Waits as `waitFor`, and no longer than the wait may have lasted for all. */
  async enter(call: Sending): Promise<WaitEnd> {
    const end = await this.waitFor(call, this.age);
    call.isLate ||= end === 'late';
    return end;
  }

  /**
   * Waits for what finds out about a version, in all as long as a request may wait. `since`: how long others have waited.
   * @throws the reason of the cancellation
   */
  async waitFor(call: Sending, since = 0): Promise<WaitEnd> {
    const { request, budget } = call;
    const left = patienceOf(call) - Math.max(budget.waitedMs, since);
    if (left <= 0) return 'late';
    const begun = monotonicClock.now();
    const landing = await this.follow(request.cancellation, left);
    budget.waitedMs += monotonicClock.now() - begun;
    if (request.cancellation.reason !== undefined) throw request.cancellation.reason;
    return landing;
  }
}

function patienceOf({ transport }: Sending): number {
  return Math.min(PATIENCE_MS, transport.options.timeouts.response);
}
