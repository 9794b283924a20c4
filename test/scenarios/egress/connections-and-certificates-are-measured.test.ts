import { X509Certificate } from 'node:crypto';
import { expect, test } from '@jest/globals';
import { authors, startPair } from '../../support/simulated-pair.ts';
import { until } from '../../support/until.ts';

test('the expiry of the certificate that the upstream showed', async () => {
  const { get, gateway, simulator } = await startPair();
  const name = 'digest_gateway_upstream_certificate_expiry_timestamp_seconds';
  const text = await (await fetch(`${gateway.control}/metrics`)).text();
  expect(text).not.toContain(`${name}{`);
  await get(authors);
  const seconds = await gateway.metric(name, { deployment: 'submissions' });
  // The simulator's certificate lives as long as its authority.
  expect(seconds).toBe(Date.parse(new X509Certificate(simulator.ca).validTo) / 1000);
});

test('connections, and requests on them or waiting for one', async () => {
  const { get, gateway, simulator } = await startPair({}, { settings: { connections: 1 } });
  const of = (state: string): Promise<number> =>
    gateway.metric('digest_gateway_upstream_connections', { deployment: 'submissions', state });
  expect(await of('connected')).toBe(0);
  await get(authors);
  simulator.set('submissions', { faults: [{ kind: 'hang', times: 1 }] });
  const leaving = new AbortController();
  const first = get('/echo', { signal: leaving.signal }).catch(() => 'left');
  await until(() => simulator.counts('submissions').faults.hang === 1);
  const second = get('/echo');
  await until(async () => (await of('pending')) === 1);
  expect([await of('connected'), await of('running'), await of('free')]).toEqual([1, 1, 0]);
  leaving.abort();
  expect(await first).toBe('left');
  expect((await second).status).toBe(200);
  expect([await of('connected'), await of('running'), await of('free')]).toEqual([1, 0, 1]);
});
