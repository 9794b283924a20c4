import { getOrInsert } from '../base/maps.ts';
import { STATUS_CODES } from '../base/node-http.ts';
import type { HistogramSeries, Series, SeriesHistogram, WithSeries } from './series.ts';

const ATTEMPT_RESULTS = ['ok', 'challenged', 'stale', 'refused', 'error'] as const;
const CHALLENGE_REASONS = ['cold', 'stale', 'single_use', 'ahead'] as const;
const REQUEST_RESULTS = ['ok', 'failed'] as const;
const RETRIES = ['stale_connection', 'connection_broke', 'next_address', 'next_egress', 'denied'] as const;

/** Result of a client request, for the error budget: `failed` by an error of the gateway. */
export type RequestResult = (typeof REQUEST_RESULTS)[number];

/** Result of one exchange with the upstream. */
export type AttemptResult = (typeof ATTEMPT_RESULTS)[number];

/** Reason why a challenge was obtained. */
export type ChallengeReason = (typeof CHALLENGE_REASONS)[number];

/**
 * Why a request is sent again: the upstream had closed an idle connection, another one broke, or the next address is
 * tried.
 */
export type RetryReason = Exclude<(typeof RETRIES)[number], 'denied'>;

/** The instruments that requests change. */
interface RequestInstruments {
  readonly requests: WithSeries<'deployment' | 'operation' | 'client' | 'status' | 'code'>;
  readonly requestResults: WithSeries<'deployment' | 'result'>;
  readonly requestDuration: SeriesHistogram<'deployment' | 'operation'>;
  readonly requestsInFlight: WithSeries<'deployment'>;
  readonly requestBytes: WithSeries<'deployment'>;
  readonly responseBytes: WithSeries<'deployment'>;
  readonly upstreamDuration: SeriesHistogram<'deployment'>;
  readonly queueWait: SeriesHistogram<'deployment'>;
  readonly upstreamAttempts: WithSeries<'deployment' | 'result'>;
  readonly challenges: WithSeries<'deployment' | 'reason'>;
  readonly retries: WithSeries<'deployment' | 'reason'>;
  readonly outcomes: WithSeries<'deployment' | 'outcome'>;
}

/** The series of one deployment that requests change, each resolved once. */
export class DeploymentMetrics {
  readonly requestResults: Readonly<Record<RequestResult, Series>>;
  readonly requestsInFlight: Series;
  readonly requestBytes: Series;
  readonly responseBytes: Series;
  readonly upstreamDuration: HistogramSeries;
  readonly queueWait: HistogramSeries;
  readonly upstreamAttempts: Readonly<Record<AttemptResult, Series>>;
  readonly challenges: Readonly<Record<ChallengeReason, Series>>;
  readonly retries: Readonly<Record<RetryReason | 'denied', Series>>;
  readonly #metrics: RequestInstruments;
  readonly #deployment: string;
  readonly #operations = new Map<string, OperationMetrics>();
  readonly #outcomes = new Map<string, Series>();

  constructor(metrics: RequestInstruments, deployment: string) {
    this.#metrics = metrics;
    this.#deployment = deployment;
    this.requestResults = seriesOf(REQUEST_RESULTS, (result) =>
      metrics.requestResults.series({ deployment, result }),
    );
    this.requestsInFlight = metrics.requestsInFlight.series({ deployment });
    this.requestBytes = metrics.requestBytes.series({ deployment });
    this.responseBytes = metrics.responseBytes.series({ deployment });
    this.upstreamDuration = metrics.upstreamDuration.series({ deployment });
    this.queueWait = metrics.queueWait.series({ deployment });
    this.upstreamAttempts = seriesOf(ATTEMPT_RESULTS, (result) =>
      metrics.upstreamAttempts.series({ deployment, result }),
    );
    this.challenges = seriesOf(CHALLENGE_REASONS, (reason) =>
      metrics.challenges.series({ deployment, reason }),
    );
    this.retries = seriesOf(RETRIES, (reason) => metrics.retries.series({ deployment, reason }));
  }

  /** Lets results appear before the first request: Prometheus sees no increase in a counter that first appears with 1. */
  showResults(): void {
    for (const result of REQUEST_RESULTS) this.requestResults[result].inc(0);
  }

  /** Returns the series of an operation; the empty name is for requests without one. */
  operation(name: string): OperationMetrics {
    const known = this.#operations.get(name);
    if (known !== undefined) return known;
    const operation = new OperationMetrics(this.#metrics, this.#deployment, name);
    this.#operations.set(name, operation);
    return operation;
  }

  /** Returns the counter of responses with this outcome, a name of the configuration. */
  outcome(name: string): Series {
    const known = this.#outcomes.get(name);
    if (known !== undefined) return known;
    const series = this.#metrics.outcomes.series({ deployment: this.#deployment, outcome: name });
    this.#outcomes.set(name, series);
    return series;
  }
}

/** Makes one series for each of these labels. */
function seriesOf<Label extends string, T>(
  labels: readonly Label[],
  make: (label: Label) => T,
): Readonly<Record<Label, T>> {
  return Object.fromEntries(labels.map((label) => [label, make(label)])) as Record<Label, T>;
}

/** For a status above those of HTTP (RFC 9110 §15); one below them is not a response. */
const OUT_OF_RANGE = 'other';

/**
 * Labels by status: an upstream chooses among 900 numbers, and each label is a series for every client. Unassigned
 * statuses share the label of their class; 499 is the gateway's own, for a client that has gone.
 */
const STATUS_LABELS: readonly string[] = Array.from({ length: 600 }, (_, status) =>
  status === 499 || status in STATUS_CODES ? String(status) : `${Math.floor(status / 100)}xx`,
);

/** The series of one operation of a deployment. */
class OperationMetrics {
  readonly duration: HistogramSeries;
  readonly #metrics: RequestInstruments;
  readonly #deployment: string;
  readonly #operation: string;
  /** By client, code and status. Clients come last, because they are the most: that takes the fewest maps. */
  readonly #requests = new Map<string, Map<string, Map<string, Series>>>();

  constructor(metrics: RequestInstruments, deployment: string, operation: string) {
    this.#metrics = metrics;
    this.#deployment = deployment;
    this.#operation = operation;
    this.duration = metrics.requestDuration.series({ deployment, operation });
  }

  /** Returns the counter of requests with this outcome; `code` is empty for a response of the upstream. */
  requests(client: string, status: number, code: string): Series {
    const label = STATUS_LABELS[status] ?? OUT_OF_RANGE;
    return this.#requests.get(label)?.get(code)?.get(client) ?? this.#add(client, label, code);
  }

  #add(client: string, status: string, code: string): Series {
    const [deployment, operation] = [this.#deployment, this.#operation];
    const series = this.#metrics.requests.series({ deployment, operation, client, status, code });
    const byCode = getOrInsert(this.#requests, status, () => new Map<string, Map<string, Series>>());
    getOrInsert(byCode, code, () => new Map<string, Series>()).set(client, series);
    return series;
  }
}
