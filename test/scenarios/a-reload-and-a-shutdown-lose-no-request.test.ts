import { once } from 'node:events';
import { Agent, type IncomingMessage, request } from 'node:http';
import { expect, test } from '@jest/globals';
import { setupFor } from '../support/running-gateway.ts';
import { authors, startPair } from '../support/simulated-pair.ts';

test('a reload takes over a new credential while requests are under way', async () => {
  const { simulator, gateway, get } = await startPair({
    accounts: [
      { username: 'demo-user', password: 'demo-api-key', sites: ['demo'] },
      { username: 'demo-user-2', password: 'another', sites: ['demo'] },
    ],
    faults: [{ kind: 'delay', ms: 30 }],
  });
  const { origin } = simulator.deployments.submissions;
  const upstream = { origin, ca: simulator.ca, username: 'demo-user-2', password: 'another' };
  const under = Array.from({ length: 10 }, () => get(authors));
  await gateway.app.reload(async () => setupFor({ submissions: upstream }, {}, gateway.versions));
  const after = Array.from({ length: 10 }, () => get(authors));
  const statuses = (await Promise.all([...under, ...after])).map(({ status }) => status);
  expect(statuses).toEqual(Array(20).fill(200));
  expect(await gateway.metric('digest_gateway_config_reloads_total', { result: 'success' })).toBe(1);
});

test('a reload keeps connections and nonces where nothing changes, and nonces where something does', async () => {
  const { simulator, gateway, get } = await startPair({ qop: 'auth', nc: 'window' });
  const { origin } = simulator.deployments.submissions;
  expect((await get(authors)).status).toBe(200);
  const reloadWith = (settings: Record<string, unknown>) =>
    gateway.app.reload(async () =>
      setupFor({ submissions: { origin, ca: simulator.ca, settings } }, {}, gateway.versions),
    );
  const opened = simulator.counts('submissions').connections;
  const grown: number[] = [];
  for (const settings of [{}, { match: { pathPrefix: '/api/' } }, { connections: 7 }]) {
    await reloadWith(settings);
    expect((await get(authors)).status).toBe(200);
    grown.push(simulator.counts('submissions').connections - opened);
  }
  expect([grown, simulator.counts('submissions').challenges]).toEqual([[0, 0, 1], 1]);
});

test('a configuration that cannot be read leaves the one in force', async () => {
  const { gateway, get } = await startPair();
  await gateway.app.reload(() => Promise.reject(new Error('broken.yaml:1:1 nothing there')));
  expect((await get(authors)).status).toBe(200);
  expect(await gateway.metric('digest_gateway_config_reloads_total', { result: 'failure' })).toBe(1);
  expect(gateway.logged.at(-1)).toMatchObject({ level: 50, reason: 'broken.yaml:1:1 nothing there' });
});

test('a client that nobody knows is refused unless anonymous is on', async () => {
  const { simulator, gateway, get } = await startPair();
  const { origin } = simulator.deployments.submissions;
  const clients = [{ id: 'elsewhere', identify: { addresses: ['192.0.2.1'] } }];
  const known = await setupFor(
    { submissions: { origin, ca: simulator.ca } },
    { anonymous: false, clients },
    gateway.versions,
  );
  await gateway.app.reload(() => Promise.resolve(known));
  const answer = await get(authors);
  expect([answer.status, answer.headers.has('www-authenticate')]).toEqual([401, true]);
  expect(simulator.counts('submissions').requests).toBe(0);
});

test('a shutdown finishes what is under way and refuses what comes on kept connections', async () => {
  const { simulator, gateway } = await startPair({
    faults: [{ kind: 'delay', ms: 200, when: 'authenticated', times: 1 }],
  });
  const agent = new Agent({ keepAlive: true, maxSockets: 1 });
  const slow = ask(gateway.origin, agent);
  while (simulator.counts('submissions').accepted === 0)
    await new Promise((resolve) => setImmediate(resolve));
  const closed = gateway.close();
  expect((await slow).statusCode).toBe(200);
  await closed;
  await expect(ask(gateway.origin, agent)).rejects.toThrow();
  agent.destroy();
});

async function ask(origin: string, agent: Agent): Promise<IncomingMessage> {
  const sent = request(`${origin}${authors}`, { agent }).end();
  const [answer] = (await once(sent, 'response')) as [IncomingMessage];
  await answer.resume().toArray();
  return answer;
}
