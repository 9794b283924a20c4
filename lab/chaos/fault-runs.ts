import { type MarkedRequest, NO_END } from '../marked-load.ts';
import type { Choices, Fault } from './faults.ts';

/** The name of HAProxy among the targets of the clients; replicas have their own. */
export const THROUGH_HAPROXY = 'haproxy';
/** A request during which the tests' own process stood still for longer, in milliseconds, says nothing. */
const STOOD_STILL_MS = 1_000;

/** A fault that began. Times are those of `performance.now()`. */
export interface FaultRun {
  readonly fault: Fault;
  readonly choices: Choices;
  /** Name of the replica that it hits, in the lane of replicas. */
  readonly target: string;
  readonly begun: number;
  /** When the fault itself was over. */
  ended: number | undefined;
  /** When its traces were over, too. */
  over: number | undefined;
}

interface Sum {
  times: number;
  requests: number;
  longestMs: number;
  /** The longest from the end of the fault until all was well. */
  wellMs: number;
  readonly failures: Map<string, number>;
}

/** Faults as they come and go, and the requests during each. */
export class FaultRuns {
  readonly #runs: FaultRun[] = [];
  readonly #sums = new Map<string, Sum>();
  readonly #resets: readonly number[];
  /** Failures that no fault explains, as text. */
  readonly unexplained: string[] = [];
  requests = 0;
  failures = 0;
  notJudged = 0;
  longestMs = 0;

  /** @param resets when all connections to the upstream were reset */
  constructor(resets: readonly number[]) {
    this.#resets = resets;
  }

  /** When the last fault was over. */
  get lastEnd(): number {
    return Math.max(0, ...this.#runs.map(({ ended = 0 }) => ended));
  }

  begin(fault: Fault, choices: Choices, target: string): FaultRun {
    const run = { fault, choices, target, begun: performance.now(), ended: undefined, over: undefined };
    this.#runs.push(run);
    this.#sumOf(fault.name).times += 1;
    return run;
  }

  over(run: FaultRun): void {
    run.over = performance.now();
    const sum = this.#sumOf(run.fault.name);
    sum.wellMs = Math.max(sum.wellMs, run.over - (run.ended ?? run.over));
  }

  /** Counts a request; resolves to why it failed if nothing explains it. */
  add(request: MarkedRequest): string | undefined {
    const { status, error, begun, ended, stoodMs } = request;
    const lasted = ended - begun - stoodMs;
    const during = this.#runs.filter((run) => run.begun < ended && (run.over ?? ended) >= begun);
    const outcome = status === 200 ? undefined : `${status === 0 ? '' : `${status} `}${error}`.trim();
    this.requests += 1;
    this.longestMs = Math.max(this.longestMs, lasted);
    const names = during.length === 0 ? ['none'] : during.map(({ fault }) => fault.name);
    for (const name of new Set(names)) {
      const sum = this.#sumOf(name);
      sum.requests += 1;
      sum.longestMs = Math.max(sum.longestMs, lasted);
      if (outcome !== undefined) sum.failures.set(outcome, (sum.failures.get(outcome) ?? 0) + 1);
    }
    if (outcome === undefined) return undefined;
    this.failures += 1;
    if (during.some((run) => explains(run, request)) || this.#resetExplains(request)) return undefined;
    if (stoodMs > STOOD_STILL_MS) {
      this.notJudged += 1;
      return undefined;
    }
    const text = `${request.method} through ${request.via} failed with ${outcome} during: ${names.join(', ')}`;
    this.unexplained.push(`${text} (${request.id})`);
    return text;
  }

  /** A row for each fault. */
  rows(): string[][] {
    return Array.from(this.#sums, ([name, { times, requests, longestMs, wellMs, failures }]) => [
      name,
      times === 0 ? '' : String(times),
      String(requests),
      Array.from(failures, ([outcome, count]) => `${count} × ${outcome}`).join(', '),
      longestMs.toFixed(0),
      times === 0 ? '' : wellMs.toFixed(0),
    ]);
  }

  /** Two resets break a request and its repetition; one is enough for a request that is not idempotent. */
  #resetExplains({ method, begun, ended }: MarkedRequest): boolean {
    const hits = this.#resets.filter((at) => at >= begun && at <= ended).length;
    return hits >= (method === 'POST' ? 1 : 2);
  }

  #sumOf(name: string): Sum {
    let sum = this.#sums.get(name);
    if (sum === undefined) {
      sum = { times: 0, requests: 0, longestMs: 0, wellMs: 0, failures: new Map() };
      this.#sums.set(name, sum);
    }
    return sum;
  }
}

function explains({ fault, target }: FaultRun, { via, method, error }: MarkedRequest): boolean {
  // Whatever happens to a gateway, its connections are closed.
  if (error === NO_END) return false;
  if (via === THROUGH_HAPROXY) return method === 'POST' && fault.explains.includes('post');
  return via === target && fault.explains.includes('direct');
}
