import { setTimeout as delay } from 'node:timers/promises';
import { expect, test } from '@jest/globals';
import { authors, problemOf, startPair } from '../../support/simulated-pair.ts';

const POLICY = '"deployment-rate";q=2;w=2, "deployment-daily";q=100;w=86400';

test('a request beyond the limit is told when to come again, and passes then', async () => {
  const { get, gateway, simulator } = await startPair(
    {},
    { settings: { limits: { rate: '1/s', burst: 2, daily: 100 } } },
  );
  const passed = [await get(authors), await get(authors)];
  expect(passed.map(({ status }) => status)).toEqual([200, 200]);
  expect(passed.map(({ headers }) => headers.get('ratelimit-policy'))).toEqual([POLICY, POLICY]);
  expect(passed[1]?.headers.get('ratelimit')).toMatch(
    /^"deployment-rate";r=0;t=1, "deployment-daily";r=98;t=\d{1,5}$/,
  );

  const refused = await get(authors);
  expect(refused.status).toBe(429);
  expect(refused.headers.get('retry-after')).toBe('1');
  expect(refused.headers.get('ratelimit-policy')).toBe(POLICY);
  expect(refused.headers.get('ratelimit')).toMatch(/^"deployment-rate";r=0;t=1, /);
  expect(await problemOf(refused)).toMatchObject({
    status: 429,
    code: 'rate-limited',
    title: 'Rate limited',
    detail: 'This deployment has used up its rate (limits.rate). Send the request again after 1 s.',
  });
  expect(simulator.counts('submissions').accepted).toBe(2);
  expect(await gateway.metric('digest_gateway_rate_limited_total', { client: 'anonymous' })).toBe(1);

  await delay(1_000);
  expect((await get(authors)).status).toBe(200);
  expect(gateway.logged).toEqual([]);
});

test('a failure of the upstream carries the limits, too', async () => {
  const { get } = await startPair(
    { faults: [{ kind: 'reset-before-head' }] },
    { settings: { limits: { concurrent: 3 } } },
  );
  const failed = await get(authors);
  expect([failed.status, failed.headers.get('ratelimit')]).toEqual([502, '"deployment-concurrent";r=2']);
});

test('without limits nothing is said of them', async () => {
  const { get } = await startPair();
  const { headers } = await get(authors);
  expect([headers.get('ratelimit'), headers.get('ratelimit-policy')]).toEqual([null, null]);
});
