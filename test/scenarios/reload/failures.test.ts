import { afterEach, expect, test } from '@jest/globals';
import { setupFor } from '../../support/running-gateway.ts';
import { openPair, type Pair } from '../../support/simulated-pair.ts';

const closing: (() => Promise<void>)[] = [];
afterEach(async () => {
  for (const close of closing.splice(0).reverse()) await close();
});

async function setScene(): Promise<Pair> {
  const pair = await openPair({ behaviour: { testPaths: true } });
  closing.push(pair.close);
  return pair;
}

test('a reload that fails while it is prepared changes nothing, and counts as one failure', async () => {
  const { simulator, gateway, get } = await setScene();
  const { origin } = simulator.deployments.submissions;
  const setup = await setupFor(
    {
      submissions: { origin, ca: simulator.ca },
      other: { origin, ca: simulator.ca, settings: { match: { pathPrefix: '/other' } } },
    },
    {},
    gateway.versions,
  );
  // A credential is missing that a deployment needs: the last deployment cannot be built.
  const credentials = new Map([...setup.credentials].filter(([name]) => name !== 'other'));
  await gateway.app.reload(async () => ({ ...setup, credentials }));
  expect((await get('/echo')).status).toBe(200);
  const reloads = (result: string) => gateway.metric('digest_gateway_config_reloads_total', { result });
  expect([await reloads('success'), await reloads('failure')]).toEqual([0, 1]);
  expect(gateway.logged.at(-1)).toMatchObject({
    level: 50,
    msg: 'configuration refused; keeping the current one',
  });
});

test('a failure after the new configuration is in force is told as that, and counts as a success', async () => {
  const { simulator, gateway, get } = await setScene();
  const { origin } = simulator.deployments.submissions;
  const upstream = { origin, ca: simulator.ca, settings: { match: { pathPrefix: '/api' } } };
  const setup = await setupFor({ submissions: upstream }, {}, gateway.versions);
  // Complete while it is prepared, and not any more when credentials are handed out.
  let reads = 0;
  const credentials = new Map(setup.credentials);
  credentials.get = (name) => {
    reads += 1;
    return reads > 2 ? undefined : setup.credentials.get(name);
  };
  await gateway.app.reload(async () => ({ ...setup, credentials }));
  expect((await get('/echo')).status).toBe(404);
  const reloads = (result: string) => gateway.metric('digest_gateway_config_reloads_total', { result });
  expect([await reloads('success'), await reloads('failure')]).toEqual([1, 0]);
  expect(gateway.logged.at(-1)).toMatchObject({
    level: 50,
    msg: expect.stringContaining('configuration in use, but'),
  });
});
