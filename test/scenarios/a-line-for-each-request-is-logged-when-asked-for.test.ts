import { expect, test } from '@jest/globals';
import { setupFor } from '../support/running-gateway.ts';
import { authors, startPair } from '../support/simulated-pair.ts';

test('nothing by default; each request without its query once log.requests is true; levels change by a reload', async () => {
  const settings = { match: { pathPrefix: '/api/' } };
  const pair = await startPair({}, { settings });
  const { gateway, simulator } = pair;
  const { origin } = simulator.deployments.submissions;
  const reload = async (log: Record<string, unknown>): Promise<void> => {
    const setup = await setupFor({ submissions: { origin, ca: simulator.ca, settings } }, { log });
    await gateway.app.reload(() => Promise.resolve(setup));
    gateway.logged.length = 0;
  };
  await (await pair.get(authors)).text();
  expect(gateway.logged).toEqual([]);

  await reload({ requests: true });
  const answer = await pair.get(authors, { headers: { 'x-request-id': 'a-request' } });
  const body = await answer.text();
  expect(gateway.logged).toEqual([
    expect.objectContaining({
      msg: 'request',
      requestId: 'a-request',
      client: 'anonymous',
      deployment: 'submissions',
      operation: '',
      method: 'GET',
      path: authors.split('?')[0],
      status: 200,
      code: '',
      bytes: Buffer.byteLength(body),
      durationMs: expect.any(Number),
    }),
  ]);
  expect(JSON.stringify(gateway.logged)).not.toContain('DEMO-2026');

  await reload({ requests: true, level: 'warn' });
  await (await pair.get(authors)).text();
  expect(gateway.logged).toEqual([]);

  const refused = await pair.get('/nowhere', { headers: { 'x-request-id': 'b-request' } });
  expect(refused.status).toBe(404);
  expect(gateway.logged).toEqual([]);
  await reload({ level: 'debug' });
  await (await pair.get('/nowhere', { headers: { 'x-request-id': 'c-request' } })).text();
  expect(gateway.logged).toEqual([
    expect.objectContaining({ level: 20, code: 'no-deployment', requestId: 'c-request' }),
  ]);
});
