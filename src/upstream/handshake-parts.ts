import type { Cancellation } from '../base/cancellation.ts';
import type { Opening } from '../challenges/handshake-queue.ts';
import type { Nonce } from '../challenges/nonce.ts';
import type { NoncePool } from '../challenges/pool.ts';
import type { Challenge } from '../digest/challenge.ts';
import type { AttemptResult, ChallengeReason } from '../metrics/metrics.ts';
import type { TracedWork } from '../tracing/tracing.ts';
import type { DoubtParts } from './doubt.ts';
import type { ExchangeRequest, ExchangeResult } from './exchange.ts';
import type { AnswerSink } from './sink.ts';

/** What a handshake needs of the upstream and of the credential. */
export interface HandshakeParts extends DoubtParts {
  readonly pool: NoncePool;
  /** Waits for the nonce that another request asks for, or gets leave to ask for one: `pool.enter`. */
  readonly enter: (cancellation: Cancellation, trace: TracedWork | undefined) => Promise<Nonce | Opening>;
  /** Of the challenges in these field lines the one to answer. */
  readonly choose: (fieldLines: readonly string[]) => Challenge | undefined;
  /** One exchange; those without an answer are counted. */
  readonly exchange: (request: ExchangeRequest, sink: AnswerSink) => Promise<ExchangeResult>;
  readonly onAttempt: (result: AttemptResult) => void;
  readonly onChallenge: (reason: ChallengeReason, trace: TracedWork | undefined) => void;
  /** Told of the target of a GET that succeeded. */
  readonly onSuccess: (target: string) => void;
  /** The upstream accepted the credential; with the status of its answer. */
  readonly onAccepted: (status: number) => void;
  /** The upstream refused the credential, which it had not refused before or had accepted since. */
  readonly onRefused: () => void;
}
