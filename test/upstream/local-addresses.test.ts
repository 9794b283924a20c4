import { afterEach, expect, test } from '@jest/globals';
import { Secret } from '../../src/base/secret.ts';
import { defaultSettings } from '../../src/simulator/settings.ts';
import { addressMissing } from '../../src/transport/errors.ts';
import { startSimulator } from '../support/simulator.ts';
import { USUAL_TLS } from '../support/usual-tls.ts';
import { type RequestOptions, useUpstreams } from './upstream-scene.ts';

/** Of a network for documentation (RFC 5737): nobody's. */
const GONE = '192.0.2.1';
const HERE = '127.0.0.3';

const current = {
  name: 'c',
  version: '1',
  username: 'demo-user',
  password: new Secret('demo-api-key'),
  changedAt: undefined,
};

const simulators: { close(): Promise<void> }[] = [];
afterEach(async () => {
  for (const simulator of simulators.splice(0)) await simulator.close();
});
const { open } = useUpstreams();

/** An upstream whose local addresses pass for being on this host until it looks, after 5 s, as those do that it has lost. */
async function startLosing(localAddresses: readonly string[]) {
  const { deployments } = defaultSettings();
  const submissions = { ...deployments.submissions, testPaths: true };
  const simulator = await startSimulator({ deployments: { submissions } });
  simulators.push(simulator);
  const scene = open(
    {
      origins: [simulator.deployments.submissions.origin],
      egress: { localAddresses, failback: 60_000, proxy: undefined },
      tls: { ...USUAL_TLS, ca: simulator.ca },
      connections: 64,
    },
    {
      sets: [{ name: 'c', current, next: undefined }],
      deps: { isPresent: (address) => Promise.resolve(address.startsWith('127.')) },
    },
  );
  const send = (options?: RequestOptions): Promise<string> => scene.sendFrom({ target: '/echo', ...options });
  return { ...scene, send, simulator };
}

test.each<[string, RequestOptions]>([
  ['a GET', {}],
  ['a POST', { method: 'POST', text: 'four' }],
  ['a POST whose body is streamed', { method: 'POST', text: 'longer than sixteen' }],
])('%s goes on from the next local address when the host has just lost the first', async (_what, options) => {
  const { send, events, simulator } = await startLosing([GONE, HERE]);
  expect(await send(options)).toBe(`200 from ${HERE}`);
  expect(await send()).toBe(`200 from ${HERE}`);
  expect(events).toEqual([`${GONE} missing`, '1 healthy closed']);
  expect(simulator.counts('submissions').accepted).toBe(2);
});

test('a burst that finds the first lost is served whole, and opens no circuit', async () => {
  const { send, upstream, events } = await startLosing([GONE, HERE]);
  const results = await Promise.all(Array.from({ length: 40 }, () => send()));
  expect(new Set(results)).toEqual(new Set([`200 from ${HERE}`]));
  expect(upstream.addresses.map(({ state }) => state.status.circuit)).toEqual(['closed', 'closed']);
  expect(events).toEqual([`${GONE} missing`, '1 healthy closed']);
});

test('the first is used again when the host has it', async () => {
  const { send, upstream } = await startLosing(['127.0.0.2', HERE]);
  upstream.egress.missing(upstream.egress.choose(true));
  expect(await send()).toBe(`200 from ${HERE}`);
  await upstream.egress.look();
  expect(await send()).toBe('200 from 127.0.0.2');
});

test('a request fails when the host has lost all of them', async () => {
  const { error } = await startLosing([GONE, '198.51.100.1']);
  expect((await error()).detail).toBe(addressMissing(undefined).detail);
});
