import { expect, test } from '@jest/globals';
import { type ApacheOptions, apacheUsers, startApache } from '../../support/apache.ts';
import { startArrivals } from '../../support/arrivals.ts';
import { credentialSet } from '../../support/credential-set.ts';
import { useScenes } from '../../support/gateway-scene.ts';
import { account } from '../../support/real-server.ts';
import { until } from '../../support/until.ts';

const setScene = useScenes();

test.each<[string, ApacheOptions]>([
  ['nonces that everyone uses', {}],
  ['nonces that serve once', { nonceLifetime: 0 }],
  ['counted nonces', { checkCount: true }],
])('%s: no request fails', async (title, options) => {
  const { gateway, server, ask, attempts } = await setScene(startApache(options));
  gateway.app.offer(await credentialSet(gateway, 'real', account.password, 'another'));
  const load = startArrivals(200, async () => (await ask('/api/abstracts')).status);
  const rotations = (result: string) =>
    gateway.metric('digest_gateway_credential_rotations_total', { result });
  await until(async () => (await rotations('refused')) === 1);
  await until(() => load.answered > 200, 20_000);
  await server.setUsers(apacheUsers('another'));
  const changed = load.answered;
  await until(() => load.answered > changed + 400, 20_000);
  const { requests, outcomes, seconds, slowestMs } = await load.stop();
  expect(outcomes).toEqual({ 200: requests });
  expect([await rotations('promoted'), await rotations('refused')]).toEqual([1, 1]);
  const { refused = 0 } = await attempts();
  process.stdout.write(
    `Apache, ${title}: ${requests} requests in ${seconds.toFixed(1)} s, 0 failed, ${refused} refused attempts, slowest ${slowestMs.toFixed(0)} ms\n`,
  );
});
