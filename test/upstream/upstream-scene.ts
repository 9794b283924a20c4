import type { RequestListener } from 'node:http';
import { Readable } from 'node:stream';
import { afterEach } from '@jest/globals';
import { Cancellation } from '../../src/base/cancellation.ts';
import { GatewayError } from '../../src/base/errors.ts';
import { Secret } from '../../src/base/secret.ts';
import { MemoryChallengeStore } from '../../src/challenges/store/memory.ts';
import type { ChallengeStore } from '../../src/challenges/store/store.ts';
import type { CredentialSet } from '../../src/credentials/credentials.ts';
import { FlightRecorder } from '../../src/handshake/flight-recorder.ts';
import { Metrics } from '../../src/metrics/metrics.ts';
import { BodyMemory } from '../../src/transport/request-body.ts';
import { ActiveRequest, type RequestFacts } from '../../src/upstream/client-request.ts';
import { CredentialRegistry } from '../../src/upstream/credential-registry.ts';
import type { EgressNews } from '../../src/upstream/egress-addresses.ts';
import { CheckPace } from '../../src/upstream/health-check.ts';
import { Upstream, type UpstreamDeps, type UpstreamOptions } from '../../src/upstream/upstream.ts';
import {
  type AddressChange,
  type AddressesOptions,
  eachAddress,
  UpstreamAddress,
} from '../../src/upstream/upstream-address.ts';
import { noFacts } from '../handshake/scene.ts';
import { startUpstream } from '../support/scripted-upstream.ts';
import { USUAL_TLS } from '../support/usual-tls.ts';

export function setOf(name = 'c', version = '1'): CredentialSet {
  const current = { name, version, username: 'u', password: new Secret('p'), changedAt: undefined };
  return { name, current, next: undefined };
}

type Options = UpstreamOptions & AddressesOptions;

const OPTIONS: Options = {
  deployment: 'd',
  origins: [],
  egress: { localAddresses: [], failback: 60_000, proxy: undefined },
  tls: USUAL_TLS,
  algorithms: ['MD5'],
  noncePolicy: 'auto',
  renewAhead: false,
  neutralTarget: '/neutral',
  timeouts: { connect: 60_000, response: 60_000, idle: 60_000 },
  forwardTrace: false,
  connections: 4,
  attemptsWhenRefused: 2,
  circuit: { failures: 0.5, minimum: 2, window: 10_000, open: 5_000, statuses: [] },
  health: { interval: undefined, failback: 30_000 },
  body: { replayUpTo: 16, max: 1_000_000 },
  totalTimeout: 60_000,
  outcomes: [],
  retry: { attempts: 0, budget: 0.1 },
};

export interface RequestOptions {
  readonly method?: string;
  readonly target?: string;
  readonly client?: string;
  readonly credential?: string;
  /** Its body; left out: it has none. */
  readonly text?: string;
}

/** An upstream on real sockets, whose time a test moves. */
export interface UpstreamScene {
  readonly upstream: Upstream;
  readonly clock: { ahead: number; now(): number };
  /** Changes of addresses, each as `NUMBER HEALTH CIRCUIT`, and what became of local addresses. */
  readonly events: string[];
  /** Bytes that bodies take. */
  readonly memory: BodyMemory;
  /** How often the body of a request was opened. */
  opened(): number;
  /** Makes a request, which the caller ends. */
  request(options?: RequestOptions): ActiveRequest;
  /** Sends a request, reads its response, and ends it; resolves to its status, or the code of its error. */
  send(options?: RequestOptions): Promise<number | string>;
  /** Does the same; resolves to `STATUS from LOCAL ADDRESS`. */
  sendFrom(options?: RequestOptions): Promise<string>;
  /** The error of a request. */
  error(options?: RequestOptions): Promise<GatewayError>;
  /** The value of a series; 0 if there is none. */
  metric(line: RegExp): Promise<number>;
}

export interface UpstreamScenes {
  /** The origin of a server of the upstream. */
  listen(listener: RequestListener): Promise<string>;
  /** The origin of a port on which nobody listens. */
  closedPort(): Promise<string>;
  /** An upstream with these settings and credentials. */
  open(
    options: Partial<Options>,
    more?: {
      readonly sets?: readonly CredentialSet[];
      readonly deps?: Partial<UpstreamDeps>;
      readonly store?: ChallengeStore;
    },
  ): UpstreamScene;
}

export function useUpstreams(): UpstreamScenes {
  const ends: (() => Promise<void>)[] = [];
  afterEach(async () => {
    for (const end of ends.splice(0).reverse()) await end();
  });
  return {
    listen: async (listener) => {
      const { origin, close } = await startUpstream(listener);
      ends.push(close);
      return origin;
    },
    closedPort: async () => {
      const { origin, close } = await startUpstream(() => {});
      await close();
      return origin;
    },
    open: (options, more) => {
      const scene = openScene(options, more);
      ends.push(() => scene.upstream.close());
      return scene;
    },
  };
}

function openScene(
  change: Partial<Options>,
  {
    sets = [setOf()],
    deps = {},
    store = new MemoryChallengeStore(),
  }: Parameters<UpstreamScenes['open']>[1] = {},
): UpstreamScene {
  const clock = { ahead: 0, now: () => performance.now() + clock.ahead };
  const options = { ...OPTIONS, ...change };
  const events: string[] = [];
  const metrics = new Metrics({ version: '', node: '' });
  const memory = new BodyMemory(1_000_000);
  const numberOf = (address: string): number =>
    options.origins.findIndex((origin) => new URL(origin).host === address) + 1;
  const shared = { clock, metrics: metrics.deployment('d') };
  const addressDeps = {
    ...shared,
    credentials: new CredentialRegistry({
      store,
      clock,
      tracing: undefined,
      onPolicyStep: () => {},
      onBound: () => {},
      onRotation: () => {},
      onHealth: () => {},
      recorder: new FlightRecorder({ clock }),
    }),
    checkPace: new CheckPace(clock),
    onAddress: ({ address, after }: AddressChange) =>
      void events.push(`${numberOf(address)} ${after.health} ${after.circuit}`),
  };
  const addresses = eachAddress(options).map((each) => new UpstreamAddress(each, addressDeps, sets));
  const upstream = new Upstream(
    options,
    {
      ...shared,
      bodyMemory: memory,
      onPause: () => {},
      onEgress: ({ address, status }: EgressNews) => void events.push(`${address} ${status}`),
      ...deps,
    },
    addresses,
    undefined,
  );
  // So that no request waits while another one tests them.
  for (const { name } of sets)
    for (const address of addresses) {
      const health = address.credential(name)?.versions.inUse.health;
      health?.accept(health.attempt());
    }
  let opened = 0;
  const request = ({ method = 'GET', target = '/x', client = 'a', text }: RequestOptions = {}) => {
    const facts: RequestFacts = { ...noFacts(), client, method, trace: undefined };
    const open = (): Readable => {
      opened += 1;
      return Readable.from([Buffer.from(text ?? '')]);
    };
    const source =
      text === undefined
        ? undefined
        : { length: text.length, expectsContinue: false, open, framing: () => 0, onBytes: () => {} };
    const headers = text === undefined ? [] : ['content-length', `${text.length}`];
    const toSend = { target, headers, noTotalTimeout: false };
    const interim = { information: () => {} };
    return new ActiveRequest(facts, toSend, source, interim, new Cancellation(), upstream.retries);
  };
  const send = async (each: RequestOptions = {}) => {
    const made = request(each);
    try {
      const response = await upstream.send(made, each.credential ?? 'c');
      await response.skip();
      return { status: response.status, egress: made.facts.egress };
    } finally {
      upstream.end(made);
    }
  };
  const error = async (each?: RequestOptions): Promise<GatewayError> => {
    try {
      const { status } = await send(each);
      throw new Error(`it got ${status}`);
    } catch (caught) {
      if (caught instanceof GatewayError) return caught;
      throw caught;
    }
  };
  return {
    upstream,
    clock,
    events,
    memory,
    opened: () => opened,
    request,
    error,
    sendFrom: async (each) => {
      const { status, egress } = await send(each);
      return `${status} from ${egress}`;
    },
    send: async (each) => {
      try {
        return (await send(each)).status;
      } catch (caught) {
        if (caught instanceof GatewayError) return caught.code;
        throw caught;
      }
    },
    metric: async (line) => {
      const found = (await metrics.registry.metrics()).split('\n').find((each) => line.test(each));
      return found === undefined ? 0 : Number(found.split(' ').at(-1));
    },
  };
}
