import { expect, test } from '@jest/globals';
import { startApache } from '../../support/apache.ts';
import { type GatewayScene, useScenes } from '../../support/gateway-scene.ts';

const setScene = useScenes();

async function expectRefusal(asking: ReturnType<GatewayScene['ask']>): Promise<void> {
  const { status, headers, body } = await asking;
  expect([status, headers['content-type']]).toEqual([502, 'application/problem+json']);
  expect(JSON.parse(body)).toMatchObject({ status: 502, code: 'upstream-credential-refused' });
  expect(headers['www-authenticate']).toBeUndefined();
}

test.each([
  ['password', { password: 'guess' }],
  ['user name', { username: 'nobody-known' }],
])('however many clients ask with a wrong %s', async (_, account) => {
  const { ask, attempts, gateway, stop } = await setScene(startApache(), account);
  await Promise.all(Array.from({ length: 20 }, () => expectRefusal(ask('/api/abstracts'))));
  await expectRefusal(ask('/api/abstracts', { method: 'POST', body: 'ids=1' }));
  expect(await attempts()).toEqual({ challenged: 1, refused: 1 });
  const code = 'upstream-credential-refused';
  expect(await gateway.metric('digest_gateway_requests_total', { status: '502', code })).toBe(21);
  const log = await stop();
  expect(log.map(({ status, authorization }) => [status, authorization !== undefined])).toEqual([
    [401, false],
    [401, true],
  ]);
});
