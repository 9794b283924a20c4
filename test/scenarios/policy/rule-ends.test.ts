import { expect, test } from '@jest/globals';
import { authors, startScene } from '../../support/scene.ts';

test('a rule that ended allows nothing, and the others go on', async () => {
  const { gateway, get, simulator } = await startScene({
    abstracts: { match: { pathPrefix: '/api/abstracts/' } },
    top: {
      anonymous: false,
      clients: [
        {
          id: 'partner',
          identify: { addresses: ['127.0.0.0/8'] },
          allow: [
            { deployment: 'submissions', ends: '9999-12-31' },
            { deployment: 'abstracts', ends: '2026-01-31' },
          ],
        },
      ],
    },
  });
  expect((await get(authors)).status).toBe(200);
  const refused = await get('/api/abstracts/v3/abstracts/full/abstractsbyid?site_name=demo&ids=%27A-1001%27');
  expect([refused.status, await refused.json()]).toMatchObject([
    403,
    { code: 'client-forbidden', detail: expect.stringContaining('ended 2026-01-31') },
  ]);
  expect(simulator.counts('abstracts').requests).toBe(0);
  const metric = 'digest_gateway_client_rule_end_timestamp_seconds';
  const labels = { client: 'partner', rule: 'allow[1]' };
  expect(await gateway.metric(metric, labels)).toBe(Date.parse('2026-01-31T00:00:00Z') / 1000);
});
