import { expect, test } from '@jest/globals';
import { Pool } from 'undici';
import { type ApacheOptions, apacheUsers, startApache } from '../../support/apache.ts';
import { startArrivals } from '../../support/arrivals.ts';
import { credentialSet } from '../../support/credential-set.ts';
import { useScenes } from '../../support/gateway-scene.ts';
import { account } from '../../support/real-server.ts';
import { until } from '../../support/until.ts';

const setScene = useScenes();
/**
 * Each turn of the event loop accepts one connection. With one for each request under way, up to 100, the last request
 * of a crowd would wait for 100 turns before the gateway hears of it: 5 s on a busy machine.
 */
const CONNECTIONS = 20;
/** The longest delay of a client by a rotation, in milliseconds; a quiet machine takes a tenth of it. */
const LONGEST_MS = 3_000;

test.each<[string, ApacheOptions]>([
  ['nonces that everyone uses', {}],
  ['nonces that serve once', { nonceLifetime: 0 }],
  ['counted nonces', { checkCount: true }],
])('%s: no request fails', async (title, options) => {
  const { gateway, server, attempts } = await setScene(startApache(options));
  gateway.app.offer(await credentialSet(gateway, 'real', account.password, 'another'));
  const clients = new Pool(gateway.origin, { connections: CONNECTIONS });
  const load = startArrivals(200, async () => {
    const { statusCode, body } = await clients.request({ path: '/api/abstracts', method: 'GET' });
    const content = await body.text();
    if (statusCode !== 200) throw new Error(content);
    return statusCode;
  });
  const rotations = (result: string) =>
    gateway.metric('digest_gateway_credential_rotations_total', { result });
  await until(async () => (await rotations('refused')) === 1);
  await until(() => load.answered > 200, 20_000);
  await server.setUsers(apacheUsers('another'));
  const changed = load.answered;
  await until(() => load.answered > changed + 400, 20_000);
  const { requests, outcomes, seconds, slowestMs, medianMs } = await load.stop();
  await clients.close();
  expect(outcomes).toEqual({ 200: requests });
  expect(slowestMs).toBeLessThan(LONGEST_MS + 10 * medianMs);
  expect([await rotations('promoted'), await rotations('refused')]).toEqual([1, 1]);
  const { refused = 0 } = await attempts();
  process.stdout.write(
    `Apache, ${title}: ${requests} requests in ${seconds.toFixed(1)} s, 0 failed, ${refused} refused attempts, slowest ${slowestMs.toFixed(0)} ms, median ${medianMs.toFixed(0)} ms\n`,
  );
});
