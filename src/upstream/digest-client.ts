import type { Cancellation } from '../base/cancellation.ts';
import type { Clock } from '../base/clock.ts';
import type { SingleFlight } from '../base/single-flight.ts';
import type { Opening } from '../challenges/handshake-queue.ts';
import type { Nonce } from '../challenges/nonce.ts';
import type { NoncePool } from '../challenges/pool.ts';
import type { Challenge } from '../digest/challenge.ts';
import type { AttemptResult, ChallengeReason } from '../metrics/metrics.ts';
import type { TracedWork } from '../tracing/tracing.ts';
import type { CredentialHealth } from './credential-health.ts';
import type { ExchangeRequest, ExchangeResult } from './exchange.ts';
import type { AnswerSink } from './sink.ts';

/** What authenticates requests to one upstream with one version of a credential. */
export interface DigestClient {
  readonly pool: NoncePool;
  readonly health: CredentialHealth;
  /** Led by who finds out whether the upstream takes the credential; authenticated attempts wait meanwhile. */
  readonly flights: SingleFlight;
  readonly clock: Clock;
  /** How long others wait for a request that finds out, in milliseconds. */
  readonly patienceMs: number;
  /** Those with this version of the credential, whichever connections they are on. */
  readonly clientRequests: { underWay: number };
  /** Waits for the nonce that another request asks for, or gets leave to ask for one: `pool.enter`. */
  readonly enter: (cancellation: Cancellation, trace: TracedWork | undefined) => Promise<Nonce | Opening>;
  /** Of the challenges in these field lines the one to answer. */
  readonly choose: (fieldLines: readonly string[]) => Challenge | undefined;
  /** One exchange; those without a response are counted. */
  readonly exchange: (request: ExchangeRequest, sink: AnswerSink) => Promise<ExchangeResult>;
  /** True if another version of the credential can take the place of this one. */
  readonly hasAlternatives: () => boolean;
  /** True if another version is in use in the place of this one, and the upstream accepts it. */
  readonly isReplaced: () => boolean;
  /**
   * Begins to find out, with requests of the gateway's own, whether the upstream still takes the credential; they
   * go to the path of this target if no better one is known.
   */
  readonly confirm: (target: string) => void;
  readonly onAttempt: (result: AttemptResult) => void;
  readonly onChallenge: (reason: ChallengeReason, trace: TracedWork | undefined) => void;
  /** Told of the target of a GET that succeeded. */
  readonly onSuccess: (target: string) => void;
  /** The upstream accepted the credential; with the status of its response. */
  readonly onAccepted: (status: number) => void;
  /** The upstream refused an accepted credential with a fresh nonce, which is still to be confirmed. */
  readonly onUnconfirmed: () => void;
  /** The upstream refused the credential, which it had not refused before or had accepted since. */
  readonly onRefused: () => void;
}
