import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { watchStandstill } from '../../test/support/measure.ts';
import { readRecorded } from '../../test/support/recorded-requests.ts';
import { until } from '../../test/support/until.ts';
import { type MarkedRequest, startMarkedLoad } from '../marked-load.ts';
import { Random } from '../simulation/random.ts';
import { FaultRuns, THROUGH_HAPROXY } from './fault-runs.ts';
import { drawChoices, FAULTS, type Fault, LANES, type Lane } from './faults.ts';
import { type ChaosScene, type ChaosSetup, startChaosScene } from './scene.ts';

export interface ChaosOptions extends ChaosSetup {
  readonly seed: number;
  /** The faults of which each comes once; left out: all, over and over for `seconds`. */
  readonly once?: readonly Fault[];
  readonly seconds?: number;
  /** The folder for the flight records of all replicas at the first finding. */
  readonly out: string;
  readonly progress?: (text: string) => void;
  /** Gets each event as it happens. */
  readonly onEvent?: (text: string) => void;
}

export interface ChaosReport {
  readonly figures: Readonly<Record<string, number>>;
  /** A row for each fault: as `CHAOS_HEAD` says. */
  readonly rows: readonly (readonly string[])[];
  /** Errors that the gateways logged, and how often. */
  readonly errors: ReadonlyMap<string, number>;
  readonly findings: readonly string[];
  /** Files with flight records of the moment of the first finding; empty: there was none while the replicas ran. */
  readonly flightRecords: readonly string[];
}

export const CHAOS_HEAD = [
  'fault',
  'times',
  'requests during it',
  'failures',
  'longest request in ms',
  'until all is well in ms, at most',
] as const;

/** From one fault to the next, in milliseconds. */
const EVERY_MS = 1_000;
/** How soon all has to be well after the last fault. */
const WELL_WITHIN_MS = 5_000;
const WELL_LIMIT_MS = 60_000;
/** Requests in a row that take one exchange each: then all is well at the upstream, too. */
const STEADY = 50;
/** Milliseconds from a response to the next request of its client. */
const PAUSE_MS = 50;
/** How often faults of a lane come. */
const WEIGHTS: Readonly<Record<Lane, number>> = { replica: 5, redis: 2, upstream: 2, machine: 1 };
/** The most findings of one kind that are reported one by one. */
const SHOWN = 10;

/** Runs a scene under load and faults. The order of the faults of a lane follows from the seed; real time does not. */
export async function runChaos(options: ChaosOptions): Promise<ChaosReport> {
  await using scene = await startChaosScene(options);
  await until(() => scene.isWell());
  return await new Chaos(scene, options).run();
}

class Chaos {
  readonly #scene: ChaosScene;
  readonly #options: ChaosOptions;
  readonly #random: Random;
  readonly #lanes: ReadonlyMap<Lane, FaultLane>;
  readonly #busy = new Map<Lane, Promise<void>>();
  readonly #runs: FaultRuns;
  readonly #findings: string[] = [];
  /** Resolves to the files with the flight records of the first finding; undefined: there is none so far. */
  #flightRecords: Promise<string[]> | undefined;
  /** The complete responses of gateways, by request id. */
  readonly #responses = new Map<string, Pick<MarkedRequest, 'status' | 'error'>>();
  readonly #begun = performance.now();

  constructor(scene: ChaosScene, options: ChaosOptions) {
    const { seed, redis, once } = options;
    this.#scene = scene;
    this.#options = options;
    this.#random = new Random(`chaos ${seed}`);
    const faults = once ?? FAULTS.filter((fault) => fault.redis?.includes(redis) !== false);
    const laneOf = (lane: Lane) =>
      new FaultLane(
        new Random(`chaos ${seed} ${lane}`),
        faults.filter((fault) => fault.lane === lane),
        once === undefined,
      );
    this.#lanes = new Map(LANES.map((lane) => [lane, laneOf(lane)]));
    this.#runs = new FaultRuns(scene.resets);
  }

  async run(): Promise<ChaosReport> {
    const { replicas, haProxy } = this.#scene;
    const stood = watchStandstill();
    const targets = [
      { name: THROUGH_HAPROXY, origin: haProxy.origin, gets: 6, posts: 2 },
      ...replicas.map(({ name, origin }) => ({ name, origin, gets: 1, posts: 0 })),
      // HAProxy sends a request again that gets no response; a client of a replica would wait for ever.
      ...replicas.map(({ name, origin }) => ({ name, origin, gets: 2, posts: 0, fresh: true })),
    ];
    const load = startMarkedLoad(`s${this.#options.seed}`, targets, PAUSE_MS, (each) => this.#onEnd(each));
    try {
      await this.#faults();
      const stoodBefore = stood.ms();
      const wellMs = await this.#settle();
      const limitMs = WELL_WITHIN_MS + this.#scene.startMs + stood.ms() - stoodBefore;
      if (wellMs > limitMs) this.#find(`all was well only ${wellMs.toFixed(0)} ms after the last fault`);
      await load.end();
      const flightRecords = (await this.#flightRecords) ?? [];
      await this.#checkAudit();
      return { ...this.#report(wellMs, stood.ms()), flightRecords };
    } finally {
      await load.end();
      stood.end();
    }
  }

  #event(text: string): void {
    const at = (performance.now() - this.#begun) / 1_000;
    this.#options.onEvent?.(`${at.toFixed(2).padStart(8)} s  ${text}\n`);
  }

  /** Adds a finding while the replicas run. */
  #find(finding: string): void {
    this.#findings.push(finding);
    this.#keepFlightRecords();
  }

  /** Their rings have the cause of the first finding now, and lose it within minutes. */
  #keepFlightRecords(): void {
    this.#flightRecords ??= this.#writeFlightRecords();
  }

  async #writeFlightRecords(): Promise<string[]> {
    const { seed, redis, out } = this.#options;
    await mkdir(out, { recursive: true });
    const written = this.#scene.replicas.map(async (replica) => {
      const file = join(out, `chaos-${seed}-${redis}-${replica.name}.jsonl`);
      try {
        await writeFile(file, await replica.flightRecord());
        return [file];
      } catch (error) {
        this.#event(`no flight record of ${replica.name}: ${error}`);
        return [];
      }
    });
    return (await Promise.all(written)).flat();
  }

  #onEnd(request: MarkedRequest): void {
    const { id, status, error, fromGateway, foreign } = request;
    if (foreign !== undefined) this.#find(`${id} got what belongs to another request: ${foreign}`);
    // A gateway that cannot write its audit log says so in a response without a record.
    if (fromGateway && error !== 'audit-unavailable') this.#responses.set(id, { status, error });
    const unexplained = this.#runs.add(request);
    if (unexplained !== undefined) this.#event(`UNEXPLAINED ${id}: ${unexplained}`);
    if (unexplained !== undefined || this.#scene.arrivals.duplicates > 0) this.#keepFlightRecords();
  }

  /** Begins a fault every second until the time is over, or each came once; resolves when all are over. */
  async #faults(): Promise<void> {
    const { seconds = Number.POSITIVE_INFINITY, progress } = this.#options;
    for (let second = 0; second < seconds; second += 1) {
      const left = LANES.filter((lane) => !this.#lanes.get(lane)?.isEmpty);
      if (left.length === 0) break;
      const idle = left.filter((lane) => !this.#busy.has(lane));
      const choice = idle.flatMap((lane) => Array.from({ length: WEIGHTS[lane] }, () => lane));
      if (choice.length > 0) this.#begin(this.#random.pick(choice));
      const { requests, failures } = this.#runs;
      progress?.(`${second} s, ${requests} requests, ${failures} failed, ${this.#findings.length} findings`);
      await delay(EVERY_MS);
    }
    await Promise.all(this.#busy.values());
  }

  #begin(lane: Lane): void {
    const { replicas } = this.#scene;
    const { fault, choices } = this.#lanes.get(lane)?.draw(replicas.length) ?? {};
    if (fault === undefined || choices === undefined) return;
    const target = lane === 'replica' ? (replicas[choices.replica]?.name ?? '') : '';
    const run = this.#runs.begin(fault, choices, target);
    const name = `${fault.name} ${target}`.trim();
    this.#event(`begins: ${name}`);
    const work = async (): Promise<void> => {
      try {
        await fault.run(this.#scene, choices);
        run.ended = performance.now();
        this.#event(`ended: ${name}`);
        // At most one replica has a fault at a time: HAProxy has somewhere else to go.
        if (lane === 'replica') await until(() => this.#scene.isServed(), WELL_LIMIT_MS);
      } catch (error) {
        this.#find([`${name}: ${error}`, ...(await this.#scene.describe())].join('\n'));
      }
      run.ended ??= performance.now();
      this.#runs.over(run);
      this.#busy.delete(lane);
      this.#event(`over: ${name}`);
    };
    this.#busy.set(lane, work());
  }

  /** Resolves to the milliseconds from the end of the last fault until all is well. */
  async #settle(): Promise<number> {
    const { arrivals } = this.#scene;
    const { lastEnd } = this.#runs;
    arrivals.inARow = 0;
    try {
      await until(() => this.#scene.isWell(), WELL_LIMIT_MS);
    } catch {
      this.#find(['the replicas are not well again', ...(await this.#scene.describe())].join('\n'));
    }
    const wellMs = performance.now() - lastEnd;
    try {
      await until(() => arrivals.inARow >= STEADY, WELL_LIMIT_MS);
    } catch {
      this.#find('requests still take more than one exchange');
    }
    this.#event(`well after ${wellMs.toFixed(0)} ms`);
    return Math.max(wellMs, arrivals.lastUnsteadyAt - lastEnd);
  }

  async #checkAudit(): Promise<void> {
    const recorded = new Map<string, readonly number[]>();
    let leftOut = 0;
    for (const replica of this.#scene.replicas) {
      await replica.end('close');
      const wrong = await replica.verify();
      if (wrong !== undefined) this.#findings.push(`audit verify of ${replica.name}: ${wrong}`);
      const { requests, leftOut: more } = await readRecorded(replica.audit);
      leftOut += more;
      for (const [id, statuses] of requests) recorded.set(id, [...(recorded.get(id) ?? []), ...statuses]);
    }
    const missing = [...this.#responses].filter(([id, { status }]) => !recorded.get(id)?.includes(status));
    // Of equal refusals, ten a second are recorded, and the others are counted.
    const refused = missing.filter(([, { error }]) => error !== '');
    const isCounted = refused.length <= leftOut;
    const unrecorded = isCounted ? missing.filter((each) => !refused.includes(each)) : missing;
    this.#findings.push(
      ...shown(unrecorded.map(([id, { status }]) => `the response ${id} (${status}) has no record`)),
    );
  }

  #report(wellMs: number, stoodMs: number): Omit<ChaosReport, 'flightRecords'> {
    const { replicas, arrivals, throughSecond, startMs } = this.#scene;
    const { requests, failures, notJudged, unexplained, longestMs } = this.#runs;
    const errors = new Map<string, number>();
    for (const error of replicas.flatMap((replica) => replica.errors)) {
      errors.set(error, (errors.get(error) ?? 0) + 1);
      if (/uncaught|internal/i.test(error)) this.#findings.push(`logged: ${error}`);
    }
    if (arrivals.duplicates > 0) this.#findings.push(`${arrivals.duplicates} nc were used twice`);
    return {
      figures: {
        requests,
        failures,
        'failures that no fault explains': unexplained.length,
        'failures not judged, since this process stood still': notJudged,
        'complete responses with a record': this.#responses.size,
        'requests through the second address': throughSecond,
        'heads of audit logs': replicas.reduce((sum, { heads }) => sum + heads.length, 0),
        'longest request in ms': Math.round(longestMs),
        'well after the last fault in ms': Math.round(wellMs),
        'start of the last gateway at the beginning in ms': Math.round(startMs),
        'this process stood still in ms': Math.round(stoodMs),
      },
      rows: this.#runs.rows(),
      errors,
      findings: [...this.#findings, ...shown(unexplained)],
    };
  }
}

/** The faults of one lane: each once in an order of chance, then, if it goes on, all of them again in another order. */
class FaultLane {
  readonly #random: Random;
  readonly #faults: readonly Fault[];
  readonly #goesOn: boolean;
  #left: Fault[];

  constructor(random: Random, faults: readonly Fault[], goesOn: boolean) {
    this.#random = random;
    this.#faults = faults;
    this.#goesOn = goesOn;
    this.#left = [...faults];
  }

  get isEmpty(): boolean {
    return this.#left.length === 0;
  }

  draw(replicas: number): { readonly fault: Fault; readonly choices: ReturnType<typeof drawChoices> } {
    const fault = this.#random.pick(this.#left);
    this.#left.splice(this.#left.indexOf(fault), 1);
    if (this.#left.length === 0 && this.#goesOn) this.#left = [...this.#faults];
    return { fault, choices: drawChoices(this.#random, replicas) };
  }
}

function shown(findings: readonly string[]): string[] {
  const rest = findings.length - SHOWN;
  return [...findings.slice(0, SHOWN), ...(rest > 0 ? [`and ${rest} more of this kind`] : [])];
}
