import { createReadStream } from 'node:fs';
import { mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { AUDIT_REPLICA, type GatewayChild, startGatewayChild } from '../wire/gateway-child.ts';
import { HeapWatch } from '../wire/heap-watch.ts';
import type { WireJob, WireReport, WireViolation } from '../wire/wire-part.ts';
import { Conversation } from './conversation.ts';
import { planOf } from './grammar.ts';
import { CLOSED_PATH, KEPT_BODY, LARGEST_BODY } from './rules.ts';
import { ACCOUNT, type Arrival, startRecordingUpstream } from './upstream.ts';

/** Connections at a time. */
const CLIENTS = 24;
/** So many connections that have ended are remembered: requests of a reset one may reach the upstream later. */
const REMEMBERED = 5_000;
/** A run that finds more is not worth going on with. */
const MOST_VIOLATIONS = 20;

/** Sends the messages of clients to a gateway, and checks what becomes of them. */
export async function runClients(job: WireJob): Promise<WireReport> {
  const folder = await mkdtemp(join(tmpdir(), 'lab-'));
  try {
    const run = new ClientsRun(job);
    await run.run(folder);
    return run.report();
  } finally {
    await rm(folder, { recursive: true });
  }
}

class ClientsRun {
  readonly #job: WireJob;
  readonly #violations: WireViolation[] = [];
  /** By the target that the upstream would get. */
  readonly #byTarget = new Map<string, Conversation[]>();
  readonly #remembered: Conversation[] = [];
  readonly #active = new Set<Conversation>();
  /** Method and path of each authenticated arrival, with their number. */
  readonly #arrived = new Map<string, number>();
  #arrivals = 0;
  #host = '';
  #next: number;
  #seeds = 0;
  #messages = 0;
  #seconds = 0;
  #heap = new HeapWatch();
  #crashed = false;

  constructor(job: WireJob) {
    this.#job = job;
    this.#next = job.first;
  }

  async run(auditDirectory: string): Promise<void> {
    await using upstream = await startRecordingUpstream({
      onArrival: (arrival) => this.#onArrival(arrival),
      onFault: (what) => this.#violate(undefined, what),
    });
    this.#host = `127.0.0.1:${upstream.port}`;
    {
      await using gateway = await startGatewayChild({
        ...configuration(this.#host),
        auditDirectory,
        mutation: this.#job.mutation,
      });
      void gateway.crashed.then((text) => this.#onCrash(text));
      await this.#send(gateway);
      if (!this.#crashed) await this.#checkState(gateway);
    }
    if (!this.#crashed) await this.#checkAudit(join(auditDirectory, AUDIT_REPLICA));
  }

  report(): WireReport {
    const figures = {
      connections: this.#seeds,
      'requests at the upstream': this.#arrivals,
      'messages a second': Math.round(this.#messages / this.#seconds),
      ...this.#heap.figures,
    };
    return { seeds: this.#seeds, messages: this.#messages, figures, violations: this.#violations };
  }

  async #send(gateway: GatewayChild): Promise<void> {
    const begun = performance.now();
    const { first, seeds, messages, limitMs, progress, stopsAtViolation } = this.#job;
    const isOver = (): boolean =>
      this.#crashed ||
      this.#next >= first + seeds ||
      this.#messages >= messages ||
      performance.now() - begun > limitMs ||
      this.#violations.length >= (stopsAtViolation === true ? 1 : MOST_VIOLATIONS);
    const work = async (): Promise<void> => {
      while (!isOver()) {
        await this.#talk(gateway, this.#next++);
        await this.#heap.look(gateway, Math.max(this.#messages / messages, this.#seeds / seeds));
        progress?.(`${this.#messages} messages, ${this.#violations.length} findings`);
      }
    };
    await Promise.all(Array.from({ length: CLIENTS }, work)).catch((error) => {
      if (!this.#crashed) throw error;
    });
    this.#seconds = (performance.now() - begun) / 1_000;
  }

  async #talk(gateway: GatewayChild, seed: number): Promise<void> {
    const plan = planOf(seed, this.#host);
    const conversation = new Conversation(plan, this.#host);
    for (const target of conversation.targets) {
      const known = this.#byTarget.get(target);
      if (known === undefined) this.#byTarget.set(target, [conversation]);
      else known.push(conversation);
    }
    this.#active.add(conversation);
    await conversation.run(gateway.port);
    this.#active.delete(conversation);
    this.#seeds += 1;
    this.#messages += plan.messages.length;
    if (!this.#crashed) this.#collect(conversation);
    this.#job.trace?.(conversation.describe());
    this.#remember(conversation);
  }

  #collect(conversation: Conversation): void {
    for (const what of conversation.violations.splice(0)) {
      this.#add({ seed: conversation.plan.seed, what, detail: conversation.describe() });
    }
  }

  #remember(conversation: Conversation): void {
    this.#remembered.push(conversation);
    if (this.#remembered.length <= REMEMBERED) return;
    const forgotten = this.#remembered.shift();
    if (forgotten === undefined) return;
    this.#collect(forgotten);
    for (const target of forgotten.targets) {
      const others = this.#byTarget.get(target)?.filter((each) => each !== forgotten) ?? [];
      if (others.length === 0) this.#byTarget.delete(target);
      else this.#byTarget.set(target, others);
    }
  }

  #onArrival(arrival: Arrival): number {
    this.#arrivals += 1;
    const { method, target } = arrival.request;
    const claimed = this.#byTarget.get(target)?.some((each) => each.claim(arrival, this.#arrivals));
    if (claimed !== true)
      this.#violate(target, `the upstream got a request that no client sent: ${JSON.stringify(arrival)}`);
    if (arrival.isAuthenticated && arrival.isWhole) {
      const key = `${method} ${target.split('?', 1)[0]}`;
      this.#arrived.set(key, (this.#arrived.get(key) ?? 0) + 1);
    }
    return this.#arrivals;
  }

  #add(violation: WireViolation): void {
    this.#violations.push(violation);
    this.#job.found?.(violation);
  }

  /** A violation of no known connection; its target may tell the seed. */
  #violate(target: string | undefined, what: string): void {
    const [, digits] = /s(\d+)m/.exec(target ?? what) ?? [];
    const active = [...this.#active].map(({ plan }) => plan.seed);
    this.#add({
      seed: Number(digits ?? active[0] ?? this.#job.first),
      what,
      detail: `open: seeds ${active}`,
    });
  }

  #onCrash(text: string): void {
    this.#crashed = true;
    this.#violate(undefined, text);
  }

  async #checkState(gateway: GatewayChild): Promise<void> {
    for (const conversation of this.#remembered) this.#collect(conversation);
    const { heap, state } = await this.#heap.end(gateway);
    if (heap !== undefined) this.#violate(undefined, heap);
    if (state.inFlight !== 0) this.#violate(undefined, `${state.inFlight} requests are in flight at the end`);
    for (const line of this.#heap.errors) this.#violate(undefined, `the gateway logged ${line}`);
  }

  /** Every request that arrived has a record, so it was judged. */
  async #checkAudit(folder: string): Promise<void> {
    for (const name of (await readdir(folder)).filter((each) => each.endsWith('.jsonl'))) {
      for await (const line of createInterface({ input: createReadStream(join(folder, name)) })) {
        if (!line.startsWith('{"seq":')) continue;
        const { kind, method, path } = JSON.parse(line);
        if (kind !== 'access') continue;
        const key = `${method} ${path}`;
        const left = (this.#arrived.get(key) ?? 0) - 1;
        if (left > 0) this.#arrived.set(key, left);
        else this.#arrived.delete(key);
      }
    }
    for (const key of this.#arrived.keys())
      this.#violate(key, `${key} reached the upstream without an audit record`);
  }
}

function configuration(host: string): Pick<Parameters<typeof startGatewayChild>[0], 'deployments' | 'top'> {
  const settings = {
    tls: { allowPlaintext: true },
    health: { interval: 'off' },
    body: { replayUpTo: `${KEPT_BODY}B`, max: `${LARGEST_BODY}B` },
    timeouts: { idle: '5s' },
  };
  const common = { origin: `http://${host}`, ...ACCOUNT };
  return {
    deployments: {
      open: { ...common, settings: { ...settings, match: { pathPrefix: '/open/' } } },
      closed: {
        ...common,
        settings: {
          ...settings,
          match: { pathPrefix: '/closed/' },
          operations: { items: { method: 'GET', path: CLOSED_PATH } },
          unlistedOperations: 'deny',
        },
      },
    },
    top: {
      listen: { port: 0, limits: { headersTimeout: '5s', keepAliveTimeout: '5s' } },
      anonymous: false,
      clients: [
        {
          id: 'torture',
          identify: { addresses: ['127.0.0.1/32'] },
          allow: [
            { deployment: 'open', operations: ['*'] },
            { deployment: 'closed', operations: ['items'], methods: ['GET', 'HEAD'] },
          ],
        },
      ],
    },
  };
}
