import { randomBytes } from 'node:crypto';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { Agent, type ClientRequest, type IncomingMessage, request as startRequest } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import type { BehaviourChange, DeploymentSettings } from '../../src/simulator/settings.ts';
import { seededRandom } from '../bench/compare/statistics.ts';
import { startGatewayProcess } from '../support/gateway-process.ts';
import { startSimulator } from '../support/simulator.ts';
import { type Held, probed, readHeld } from './held-resources.ts';

export interface LeakScene extends AsyncDisposable {
  readonly mix: FaultyMix;
  /** Port of the gateway. */
  readonly port: number;
  /** Attempts so far whose nonce the upstream refused as stale. */
  stale(): Promise<number>;
  /** The resources of the gateway when no upstream connection is open any more. */
  settled(): Promise<Held>;
  /**
   * Its resources as soon as every count is the same as before, but for heap and external memory, or else after
   * `limitMs`: a difference that stays is a leak.
   */
  settledAs(before: Held, limitMs: number): Promise<Held>;
}

/** The counts that must be the same before and after. */
export const COUNTS = [
  'sockets',
  'handles',
  'timers',
  'promises',
  'socketObjects',
  'inFlight',
  'connected',
  'running',
  'pending',
] as const satisfies (keyof Held)[];

/** The gateway closes an idle connection 2 s before the upstream would. */
const KEEP_ALIVE_MS = 12_000;
/** One timer for all deadlines of a deployment may last so long: no longer than idle connections. */
const TOTAL = '10s';
const RESPONSE = '250ms';
const POLL_MS = 200;
const SETTLE_MS = 120_000;

/**
 * A gateway in a process of its own, with an audit log, before an upstream of the simulator for each fault, over TLS.
 * @param seed of the requests
 */
export async function startLeakScene(seed: number): Promise<LeakScene> {
  const folder = await mkdtemp(join(tmpdir(), 'leaks-'));
  const names = Object.keys(UPSTREAMS) as FaultyUpstream[];
  const well: DeploymentSettings = {
    kind: 'submissions',
    family: 'manuscripts',
    testPaths: true,
    keepAliveTimeoutMs: KEEP_ALIVE_MS,
  };
  const simulator = await startSimulator<FaultyUpstream>({
    deployments: {
      ...{ plain: well, slow: well, 'slow-body': well },
      ...{ 'reset-before-head': well, 'reset-in-body': well, silent: well },
    },
  });
  const keyFile = join(folder, 'key');
  await writeFile(keyFile, randomBytes(32).toString('hex'), { mode: 0o600 });
  const deployments = names.map((name) => {
    const { origin } = simulator.deployments[name];
    return [name, { origin, ca: simulator.ca, settings: settingsOf(name) }];
  });
  const gateway = await startGatewayProcess(
    Object.fromEntries(deployments),
    { audit: { directory: join(folder, 'audit'), keyFile } },
    probed(folder),
  );
  const read = (): Promise<Held> => readHeld(gateway, folder);
  const settledIf = async (isSettled: (held: Held) => boolean, limitMs: number): Promise<Held> => {
    const end = performance.now() + limitMs;
    for (;;) {
      const held = await read();
      if (isSettled(held) || performance.now() > end) return held;
      await delay(POLL_MS);
    }
  };
  // Before the faults each upstream accepts its credential, so that no failure looks like one of the credential.
  for (const name of names) {
    const response = await fetch(`${gateway.origin}/${name}/echo`);
    if (response.status !== 200) throw new Error(await response.text());
    await response.arrayBuffer();
    simulator.set(name, UPSTREAMS[name]);
  }
  return {
    mix: new FaultyMix(gateway.origin, seed),
    port: Number(new URL(gateway.origin).port),
    stale: () => gateway.metric('digest_gateway_upstream_attempts_total', { result: 'stale' }),
    settled: () => settledIf(({ inFlight, connected }) => inFlight + connected === 0, SETTLE_MS),
    settledAs: (before, limitMs) =>
      settledIf((held) => COUNTS.every((name) => held[name] === before[name]), limitMs),
    async [Symbol.asyncDispose]() {
      await gateway.close();
      await simulator.close();
      await rm(folder, { recursive: true, force: true });
    },
  };
}

function settingsOf(name: FaultyUpstream): Record<string, unknown> {
  return {
    match: { pathPrefix: `/${name}/` },
    rewrite: { stripPrefix: `/${name}` },
    circuit: { minimum: 1_000_000 },
    // Otherwise the gateway learns to use each nonce once, or to renew it before it is stale.
    digest: { noncePolicy: 'shared', renewAhead: false },
    timeouts: { total: TOTAL, ...(name === 'silent' && { response: RESPONSE }) },
  };
}

/** Bytes of a long response, and of an upload that is never finished. */
const LONG = 20_000;
const UPLOAD = 200_000;
/** Clients abort within this time: before the head of a response that takes longer, or after it, in milliseconds. */
const ABORT_WITHIN_MS = 30;
const SLOW_BODY = { kind: 'slow-body', bytes: LONG / 20, everyMs: 4, when: 'authenticated' } as const;
/** Clients, with one request at a time each: fewer than the connections to an upstream, so that none waits for one. */
const CLIENTS = 32;
/** Share of the requests for each fault. */
const SHARE = 0.05;
/** Share of POST among the others. */
const POSTS = 0.1;

/** Behaviour of the upstreams, one for each fault, so that no circuit keeps other requests away. */
export const UPSTREAMS = {
  /** Several requests meet the end of each nonce, which makes 5 % of them. */
  plain: { maxNonceUses: 65 },
  slow: { faults: [{ kind: 'delay', ms: 2 * ABORT_WITHIN_MS, when: 'authenticated' }] },
  'slow-body': { faults: [SLOW_BODY] },
  'reset-before-head': { faults: [{ kind: 'reset-before-head', when: 'authenticated' }] },
  'reset-in-body': {
    faults: [{ kind: 'reset-in-body', afterBytes: LONG / 4, when: 'authenticated' }, SLOW_BODY],
  },
  silent: { faults: [{ kind: 'hang', when: 'authenticated' }] },
} as const satisfies Record<string, BehaviourChange>;

export type FaultyUpstream = keyof typeof UPSTREAMS;

/** The purpose of a request, and the outcomes that its client may see: a status, or how the request or the body ended. */
const EXPECTED = {
  get: /^200$/,
  post: /^200$/,
  'abort before head': /^ECONNRESET$/,
  // A client that is late gets all of it.
  'abort in body': /^200( broken off)?$/,
  'abort of upload': /^ECONNRESET$/,
  'reset before head': /^502$/,
  'reset in body': /^(502|200 broken off)$/,
  timeout: /^504$/,
};
type Kind = keyof typeof EXPECTED;

interface Ask {
  readonly path: string;
  readonly body?: Buffer;
  /** More than the bytes of the body: it is never whole. */
  readonly length?: number;
  /** The client leaves so long after its request, or after the head of the response. */
  readonly abort?: { readonly after: 'request' | 'head'; readonly ms: number };
}

/** Requests of which some are aborted by their clients, and some meet faults of their upstreams. */
export class FaultyMix {
  readonly #origin: string;
  readonly #random: () => number;
  readonly #seen = new Map<string, number>();
  #done = 0;
  #unexpected = 0;

  /** @param origin of a gateway whose deployments have the names of `UPSTREAMS`, which begin their paths */
  constructor(origin: string, seed: number) {
    this.#origin = origin;
    this.#random = seededRandom(seed);
  }

  /** Requests that are over. */
  get done(): number {
    return this.#done;
  }

  /** Those of them whose client saw something else than the fault explains. */
  get unexpected(): number {
    return this.#unexpected;
  }

  /** Number of requests by kind and by what the client saw. */
  get seen(): readonly (readonly [string, number])[] {
    return [...this.#seen].sort(([one], [other]) => one.localeCompare(other));
  }

  /** Sends so many requests; resolves when they are over and the connections of the clients are closed. */
  async run(requests: number): Promise<void> {
    const agent = new Agent({ keepAlive: true });
    let left = requests;
    const client = async (): Promise<void> => {
      for (; left > 0; ) {
        left -= 1;
        const kind = this.#kind();
        this.#record(kind, await this.#send(agent, this.#ask(kind)));
      }
    };
    await Promise.all(Array.from({ length: CLIENTS }, client));
    agent.destroy();
  }

  #kind(): Kind {
    const value = this.#random();
    const either = this.#random();
    if (value < SHARE) {
      if (either < 1 / 3) return 'abort before head';
      return either < 2 / 3 ? 'abort in body' : 'abort of upload';
    }
    if (value < 2 * SHARE) return either < 0.5 ? 'reset before head' : 'reset in body';
    if (value < 3 * SHARE) return 'timeout';
    return either < POSTS ? 'post' : 'get';
  }

  #ask(kind: Kind): Ask {
    const [some, soon] = [Math.floor(this.#random() * LONG), this.#random() * ABORT_WITHIN_MS];
    switch (kind) {
      case 'get':
        return { path: `/plain/bytes/${some}` };
      case 'post':
        return { path: '/plain/echo', body: Buffer.alloc(some, 'x') };
      case 'abort before head':
        return { path: '/slow/echo', abort: { after: 'request', ms: soon } };
      case 'abort in body':
        return { path: `/slow-body/bytes/${LONG}`, abort: { after: 'head', ms: soon } };
      case 'abort of upload':
        return {
          path: '/slow/echo',
          body: Buffer.alloc(some * (UPLOAD / LONG), 'x'),
          length: UPLOAD,
          abort: { after: 'request', ms: soon },
        };
      case 'reset before head':
        return { path: '/reset-before-head/echo' };
      case 'reset in body':
        return { path: `/reset-in-body/bytes/${LONG}` };
      case 'timeout':
        return { path: '/silent/echo' };
    }
  }

  #send(agent: Agent, { path, body, length = body?.length, abort }: Ask): Promise<string> {
    const request = startRequest(`${this.#origin}${path}`, {
      agent,
      method: length === undefined ? 'GET' : 'POST',
      ...(length !== undefined && { headers: { 'content-length': length } }),
    });
    if (body?.length === length) request.end(body);
    else request.write(body);
    if (abort !== undefined) {
      const leave = (): unknown => setTimeout(() => request.destroy(), abort.ms);
      if (abort.after === 'request') leave();
      else request.on('response', leave);
    }
    return outcomeOf(request);
  }

  #record(kind: Kind, outcome: string): void {
    this.#done += 1;
    const isExpected = EXPECTED[kind].test(outcome);
    if (!isExpected) this.#unexpected += 1;
    const label = `${kind}: ${outcome}${isExpected ? '' : ' (unexpected)'}`;
    this.#seen.set(label, (this.#seen.get(label) ?? 0) + 1);
  }
}

/** Status, with `broken off` if its body is not whole, or the code of the error without a response. */
function outcomeOf(request: ClientRequest): Promise<string> {
  return new Promise((resolve) => {
    request.on('error', (error: NodeJS.ErrnoException) => resolve(error.code ?? error.message));
    request.on('response', (response: IncomingMessage) => {
      response.on('error', () => resolve(`${response.statusCode} broken off`));
      response.on('end', () => resolve(`${response.statusCode}`));
      response.resume();
    });
  });
}
