import { Readable } from 'node:stream';
import { expect, test } from '@jest/globals';
import { openUpstreamDeps } from '../../src/app/data-plane-parts.ts';
import { noAudit } from '../../src/audit/audit.ts';
import { Cancellation } from '../../src/base/cancellation.ts';
import { monotonicClock } from '../../src/base/clock.ts';
import { createLog } from '../../src/base/log.ts';
import { Secret } from '../../src/base/secret.ts';
import { MemoryChallengeStore } from '../../src/challenges/store/memory.ts';
import type { Retries } from '../../src/handshake/attempt-budget.ts';
import { FlightRecorder } from '../../src/handshake/flight-recorder.ts';
import { Metrics } from '../../src/metrics/metrics.ts';
import { defaultSettings } from '../../src/simulator/settings.ts';
import { addressMissing } from '../../src/transport/errors.ts';
import { BodyMemory } from '../../src/transport/request-body.ts';
import { type AddressesOptions, UpstreamAddresses } from '../../src/upstream/addresses.ts';
import { ActiveRequest, type RequestFacts } from '../../src/upstream/client-request.ts';
import { Upstream, type UpstreamOptions } from '../../src/upstream/upstream.ts';
import { noFacts } from '../handshake/scene.ts';
import { closing } from '../support/closing.ts';
import { startSimulator } from '../support/simulator.ts';

/** Of a network for documentation (RFC 5737): nobody's. */
const GONE = '192.0.2.1';
const HERE = '127.0.0.3';

const optionsFor = (
  origin: string,
  ca: string,
  localAddresses: readonly string[],
): UpstreamOptions & AddressesOptions => ({
  deployment: 'd',
  origins: [origin],
  egress: { localAddresses, failback: 60_000, proxy: undefined },
  tls: { ca, minVersion: 'TLSv1.2', serverName: undefined, pins: [], clientCertificate: undefined },
  algorithms: ['MD5'],
  noncePolicy: 'auto',
  renewAhead: false,
  neutralTarget: '/',
  timeouts: { connect: 5_000, response: 5_000, idle: 5_000 },
  forwardTrace: false,
  connections: 64,
  attemptsWhenRefused: 2,
  circuit: { failures: 0.5, minimum: 5, window: 10_000, open: 5_000, statuses: [] },
  health: { interval: undefined, failback: 30_000 },
  body: { replayUpTo: 4, max: 1_000_000, minRate: 0 } as UpstreamOptions['body'],
  totalTimeout: 10_000,
  outcomes: [],
  retry: { attempts: 0, budget: 0.1 },
});

/** An upstream whose local addresses all pass for being on this host, as those do that it has just lost. */
async function startLosing(localAddresses: readonly string[]) {
  const { deployments } = defaultSettings();
  const submissions = { ...deployments.submissions, testPaths: true };
  const simulator = await startSimulator({ deployments: { submissions } });
  const logged: string[] = [];
  const log = createLog({ write: (line: string) => void logged.push(JSON.parse(line).msg) });
  const metrics = new Metrics({ version: '', node: '' });
  const deps = openUpstreamDeps(new MemoryChallengeStore(), {
    audit: noAudit,
    log,
    metrics,
    clock: monotonicClock,
    bodyMemory: new BodyMemory(1_000_000),
    tracing: undefined,
    recorder: new FlightRecorder({ clock: monotonicClock }),
    flightFiles: { write: () => {} },
  });
  const current = {
    name: 'c',
    version: '1',
    username: 'demo-user',
    password: new Secret('demo-api-key'),
    changedAt: undefined,
  };
  const { origin } = simulator.deployments.submissions;
  const options = optionsFor(origin, simulator.ca, localAddresses);
  const own = { ...deps, metrics: deps.metrics.deployment('d'), isPresent: () => Promise.resolve(true) };
  const addresses = new UpstreamAddresses(options, own, [{ name: 'c', current, next: undefined }]);
  const upstream = new Upstream(options, own, addresses.all, undefined);
  closing.push(async () => {
    await addresses.close(upstream.close());
    await simulator.close();
  });
  const send = async (method: string, text = ''): Promise<string> => {
    const request = requestOf(method, text, upstream.retries);
    try {
      const response = await upstream.send(request, 'c');
      await response.skip();
      return `${response.status} from ${request.facts.egress}`;
    } finally {
      upstream.end(request);
    }
  };
  return { send, upstream, logged, simulator };
}

function requestOf(method: string, text: string, retries: Retries): ActiveRequest {
  const facts: RequestFacts = { ...noFacts(), client: 'a', method, trace: undefined };
  const open = () => Readable.from([Buffer.from(text)]);
  const body = { length: text.length, open, framing: () => 0, onBytes: () => {} };
  const headers = text === '' ? [] : ['content-length', `${text.length}`];
  const toSend = { target: '/echo', headers, noTotalTimeout: false };
  const interim = { information: () => {} };
  return new ActiveRequest(
    facts,
    toSend,
    text === '' ? undefined : body,
    interim,
    new Cancellation(),
    retries,
  );
}

test.each([
  ['a GET', 'GET', ''],
  ['a POST', 'POST', 'four'],
  ['a POST whose body is streamed', 'POST', 'longer than four'],
])(
  '%s goes on from the next local address when the host has just lost the first',
  async (_title, method, text) => {
    const { send, logged, simulator } = await startLosing([GONE, HERE]);
    expect(await send(method, text)).toBe(`200 from ${HERE}`);
    expect(await send('GET')).toBe(`200 from ${HERE}`);
    expect(logged).toEqual(['egress address not on this host; passing it over']);
    expect(simulator.counts('submissions').accepted).toBe(2);
  },
);

test('a burst that finds the first lost is served whole, and opens no circuit', async () => {
  const { send, upstream, logged } = await startLosing([GONE, HERE]);
  const results = await Promise.all(Array.from({ length: 40 }, () => send('GET')));
  expect(new Set(results)).toEqual(new Set([`200 from ${HERE}`]));
  expect(upstream.addresses.map(({ state }) => state.status.circuit)).toEqual(['closed', 'closed']);
  expect(logged).toHaveLength(1);
});

test('the first is used again when the host has it', async () => {
  const { send, upstream } = await startLosing(['127.0.0.2', HERE]);
  upstream.egress.missing(upstream.egress.choose(true));
  expect(await send('GET')).toBe(`200 from ${HERE}`);
  await upstream.egress.look();
  expect(await send('GET')).toBe('200 from 127.0.0.2');
});

test('a request fails when the host has lost all of them', async () => {
  const { send } = await startLosing([GONE, '198.51.100.1']);
  await expect(send('GET')).rejects.toThrow(addressMissing(undefined).detail);
});
