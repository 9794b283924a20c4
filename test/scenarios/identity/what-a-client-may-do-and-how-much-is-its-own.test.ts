import { expect, test } from '@jest/globals';
import { call } from '../../support/caller.ts';
import { openPair } from '../../support/simulated-pair.ts';
import { useRunning } from '../../support/wire.ts';

const allow = [{ deployment: 'submissions', methods: ['GET'] }];
const running = useRunning(() =>
  openPair({
    top: {
      anonymous: false,
      clients: [
        { id: 'limited', identify: { addresses: ['127.0.5.1'] }, allow, limits: { rate: '1/h' } },
        { id: 'other', identify: { addresses: ['127.0.5.2'] }, allow },
        { id: 'idle', identify: { addresses: ['127.0.5.3'] } },
      ],
    },
  }),
);

test('a client that is known and has no rules may do nothing, and is told so', async () => {
  const { gateway, simulator } = running();
  const before = simulator.counts('submissions').requests;
  expect(await call(gateway, { from: '127.0.5.3' })).toMatchObject({
    status: 403,
    code: 'client-forbidden',
    detail: expect.stringMatching(/^The client idle /),
  });
  expect(simulator.counts('submissions').requests).toBe(before);
});

test('a client that has used its limit does not use that of another', async () => {
  const { gateway } = running();
  const statusFrom = async (from: string) => (await call(gateway, { from })).status;
  expect([await statusFrom('127.0.5.1'), await statusFrom('127.0.5.1')]).toEqual([200, 429]);
  expect([await statusFrom('127.0.5.2'), await statusFrom('127.0.5.2')]).toEqual([200, 200]);
  expect(await gateway.metric('digest_gateway_rate_limited_total', { client: 'limited' })).toBe(1);
});
