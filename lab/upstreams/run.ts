import { createCertificates } from '../../src/simulator/certificates.ts';
import { watchStandstill } from '../../test/support/measure.ts';
import { testCertificates } from '../../test/support/simulator.ts';
import { Random } from '../simulation/random.ts';
import { type GatewayChild, startGatewayChild } from '../wire/gateway-child.ts';
import { HeapWatch } from '../wire/heap-watch.ts';
import type { WireJob, WireReport, WireViolation } from '../wire/wire-part.ts';
import { type Answer, challengeAnswer, cleanAnswer } from './answers.ts';
import { KeepAliveClient } from './client.ts';
import { FuzzedExchange, resultOf } from './exchange.ts';
import { KEPT_BYTES, REFUSING, scriptOf } from './script.ts';
import { startScriptedUpstream, type UpstreamListener } from './upstream.ts';

/** Exchanges at a time. */
const CLIENTS = 24;
/** A run that finds more is not worth going on with. */
const MOST_VIOLATIONS = 20;

/** Sends requests through a gateway to an upstream that answers by scripts, and checks what the clients get. */
export async function runUpstreams(job: WireJob): Promise<WireReport> {
  const run = new UpstreamsRun(job);
  await run.run();
  return run.report();
}

type Asked = Parameters<UpstreamListener['answerTo']>;

class UpstreamsRun {
  readonly #job: WireJob;
  readonly #violations: WireViolation[] = [];
  readonly #active = new Map<string, FuzzedExchange>();
  readonly #heap = new HeapWatch();
  readonly #stood = watchStandstill();
  /** Number of results of clients. */
  readonly #results = new Map<string, number>();
  #next: number;
  #seeds = 0;
  #answers = 0;
  /** Requests of the gateway that belong to no request of a client, such as probes. */
  #others = 0;
  #seconds = 0;
  #crashed = false;

  constructor(job: WireJob) {
    this.#job = job;
    this.#next = job.first;
  }

  async run(): Promise<void> {
    const { ca, server } = testCertificates() ?? (await createCertificates());
    const listener = {
      answerTo: (...asked: Asked) => this.#answerTo(...asked),
      onOverlap: (target: string) => {
        const exchange = this.#active.get(target);
        if (exchange !== undefined) exchange.overlaps = true;
      },
      onFault: (what: string) => this.#violate(what),
    };
    await using plain = await startScriptedUpstream(listener, undefined);
    await using overTls = await startScriptedUpstream(listener, server.good);
    await using gateway = await startGatewayChild({
      ...configuration(plain.port, overTls.port, ca),
      mutation: this.#job.mutation,
    });
    void gateway.crashed.then((text) => {
      this.#crashed = true;
      this.#violate(text);
    });
    await this.#send(gateway).finally(() => this.#stood.end());
    if (this.#crashed) return;
    const { heap, state } = await this.#heap.end(gateway);
    if (heap !== undefined) this.#violate(heap);
    if (state.inFlight !== 0) this.#violate(`${state.inFlight} requests are in flight at the end`);
    for (const line of this.#heap.errors) this.#violate(`the gateway logged ${line}`);
  }

  report(): WireReport {
    const figures = {
      'requests of clients': this.#seeds,
      'requests of the gateway alone': this.#others,
      'this process stood still in ms': Math.round(this.#stood.ms()),
      'answers a second': Math.round(this.#answers / this.#seconds),
      ...this.#heap.figures,
      ...Object.fromEntries([...this.#results].sort().map(([name, count]) => [`result ${name}`, count])),
    };
    return { seeds: this.#seeds, messages: this.#answers, figures, violations: this.#violations };
  }

  async #send(gateway: GatewayChild): Promise<void> {
    const begun = performance.now();
    const { first, seeds, messages, limitMs, progress, stopsAtViolation } = this.#job;
    const most = stopsAtViolation === true ? 1 : MOST_VIOLATIONS;
    const isOver = (): boolean =>
      this.#crashed ||
      this.#next >= first + seeds ||
      this.#answers >= messages ||
      performance.now() - begun > limitMs ||
      this.#violations.length >= most;
    const work = async (): Promise<void> => {
      const client = new KeepAliveClient(gateway.port);
      while (!isOver()) {
        await this.#exchange(client, this.#next++);
        await this.#heap.look(gateway, Math.max(this.#answers / messages, this.#seeds / seeds));
        progress?.(`${this.#answers} answers, ${this.#violations.length} findings`);
      }
      client.close();
    };
    await Promise.all(Array.from({ length: CLIENTS }, work)).catch((error) => {
      if (!this.#crashed) throw error;
    });
    this.#seconds = (performance.now() - begun) / 1_000;
  }

  async #exchange(client: KeepAliveClient, seed: number): Promise<void> {
    const exchange = new FuzzedExchange(scriptOf(seed));
    this.#active.set(exchange.target, exchange);
    const stoodBefore = this.#stood.ms();
    const result = await client.send(exchange);
    exchange.stoodMs = this.#stood.ms() - stoodBefore;
    this.#active.delete(exchange.target);
    this.#seeds += 1;
    const detail = exchange.describe(result);
    this.#job.trace?.(detail);
    if (this.#crashed) return;
    const name = resultOf(result, exchange.script.method);
    this.#results.set(name, (this.#results.get(name) ?? 0) + 1);
    for (const what of exchange.violations(result)) this.#add({ seed, what, detail });
  }

  #answerTo(...[request, isAuthenticated, past]: Asked): Answer {
    this.#answers += 1;
    const { method, target } = request;
    const answer = this.#active.get(target)?.answerTo(request, isAuthenticated, past);
    if (answer !== undefined) return answer;
    this.#others += 1;
    const random = new Random(`other ${target}`);
    return isAuthenticated
      ? cleanAnswer(random, method, 'poison')
      : challengeAnswer(random, 'poison', method, false);
  }

  #add(violation: WireViolation): void {
    this.#violations.push(violation);
    this.#job.found?.(violation);
  }

  #violate(what: string): void {
    const [, digits] = /\/s(\d+)/.exec(what) ?? [];
    const active = [...this.#active.values()].map(({ script }) => script.seed);
    this.#add({
      seed: Number(digits ?? active[0] ?? this.#job.first),
      what,
      detail: `open: seeds ${active}`,
    });
  }
}

function configuration(
  plainPort: number,
  tlsPort: number,
  ca: string,
): Pick<Parameters<typeof startGatewayChild>[0], 'deployments' | 'top'> {
  const settingsOf = (name: string) => ({
    match: { pathPrefix: `/${name}/` },
    health: { interval: 'off' },
    circuit: { minimum: 1_000_000 },
    body: { replayUpTo: `${KEPT_BYTES}B` },
    timeouts: { response: '5s', idle: '5s' },
    digest: { noncePolicy: name.startsWith('refusing') ? 'auto' : 'shared' },
  });
  const plain = (name: string) => ({
    origin: `http://127.0.0.1:${plainPort}`,
    settings: { ...settingsOf(name), tls: { allowPlaintext: true } },
  });
  const refusing = Array.from({ length: REFUSING }, (_, index) => `refusing-${index}`);
  return {
    deployments: {
      plain: plain('plain'),
      tls: { origin: `https://127.0.0.1:${tlsPort}`, ca, settings: settingsOf('tls') },
      ...Object.fromEntries(refusing.map((name) => [name, plain(name)])),
    },
    top: {},
  };
}
