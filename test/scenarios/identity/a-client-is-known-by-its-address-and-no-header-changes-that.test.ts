import { Agent } from 'node:http';
import { describe, expect, test } from '@jest/globals';
import { type Call, call, requestsOf } from '../../support/caller.ts';
import { setupFor } from '../../support/running-gateway.ts';
import { openPair } from '../../support/simulated-pair.ts';
import { useRunning } from '../../support/wire.ts';

const clients = [
  { id: 'narrow', identify: { addresses: ['127.0.5.7'] } },
  { id: 'wide', identify: { addresses: ['127.0.5.0/24', '2001:db8::/32'] } },
  { id: 'balancer', identify: { addresses: ['127.0.9.1'] } },
].map((client) => ({ ...client, allow: [{ deployment: 'submissions' }] }));

const direct = useRunning(() => openPair({ top: { anonymous: false, clients } }));
const listen = { port: 0, trustedProxies: ['127.0.9.0/30'] };
const proxied = useRunning(() => openPair({ top: { anonymous: false, clients, listen } }));
const standard = useRunning(() =>
  openPair({ top: { anonymous: false, clients, listen: { ...listen, forwardedHeader: 'Forwarded' } } }),
);

/** Whom the gateway takes a call for: the client for which it is counted more than before. */
async function takenFor({ gateway }: ReturnType<typeof direct>, call_: Call): Promise<string> {
  const ids = clients.map(({ id }) => id);
  const counts = () => Promise.all(ids.map((id) => requestsOf(gateway, id)));
  const before = await counts();
  const { status, code } = await call(gateway, call_);
  const after = await counts();
  const found = ids.filter((_, index) => after[index] !== before[index]);
  expect([status, code]).toEqual(found.length === 1 ? [200, ''] : [401, 'client-unknown']);
  return found.join();
}

describe('without trusted proxies', () => {
  test.each([
    ['an address of one client', '127.0.5.7', 'narrow'],
    ['another of the network', '127.0.5.8', 'wide'],
    ['an address of nobody', '127.0.6.1', ''],
  ])('%s', async (_title, from, client) => expect(await takenFor(direct(), { from })).toBe(client));

  test.each([
    ['X-Forwarded-For', '127.0.5.7'],
    ['X-Forwarded-For', '127.0.9.1, 127.0.5.7'],
    ['Forwarded', 'for=127.0.5.7'],
    ['X-Real-IP', '127.0.5.7'],
    ['True-Client-IP', '127.0.5.7'],
    ['Client-IP', '127.0.5.7'],
    ['Via', '1.1 127.0.5.7'],
  ])('%s: %s from a stranger is a forgery', async (name, value) => {
    expect(await takenFor(direct(), { from: '127.0.6.1', headers: { [name]: value } })).toBe('');
    expect(await takenFor(direct(), { from: '127.0.5.8', headers: { [name]: value } })).toBe('wide');
  });
});

describe('behind trusted proxies', () => {
  const through = (value: string | string[], from = '127.0.9.1') => ({
    from,
    headers: { 'X-Forwarded-For': value },
  });

  test.each([
    ['the client', through('127.0.5.7'), 'narrow'],
    ['the client, over IPv6', through('[2001:db8::7]:4711'), 'wide'],
    ['the client, over two proxies', through('127.0.5.7, 127.0.9.2'), 'narrow'],
    ['what a stranger claims, left of its own address', through('127.0.5.7, 127.0.6.1'), ''],
    ['what a stranger claims, over two proxies', through('127.0.5.7, 127.0.6.1, 127.0.9.2'), ''],
    ['what a stranger claims on a line of its own', through(['127.0.5.7', '127.0.6.1']), ''],
    ['what is no address', through('127.0.5.7, unknown'), ''],
    ['the proxy for itself', through('127.0.9.1'), 'balancer'],
    ['the proxy without a word of the client', { from: '127.0.9.1' }, ''],
    ['a proxy that is not trusted', through('127.0.5.7', '127.0.9.4'), ''],
    ['the header that is not read', { from: '127.0.9.1', headers: { Forwarded: 'for=127.0.5.7' } }, ''],
    [
      'the header that is not read, beside the one that is',
      { from: '127.0.9.1', headers: { Forwarded: 'for=127.0.5.7', 'X-Forwarded-For': '127.0.6.1' } },
      '',
    ],
  ])('%s', async (_title, call_, client) => expect(await takenFor(proxied(), call_)).toBe(client));

  test('with Forwarded, the same, and X-Forwarded-For is a forgery', async () => {
    const from = '127.0.9.1';
    const headers = {
      Forwarded: 'for=127.0.6.1, for="127.0.5.7:_x";proto=https',
      'X-Forwarded-For': '127.0.6.1',
    };
    expect(await takenFor(standard(), { from, headers })).toBe('narrow');
    expect(await takenFor(standard(), { from, headers: { 'X-Forwarded-For': '127.0.5.7' } })).toBe('');
  });

  test('a refusal says that the proxy told no address', async () => {
    const { detail } = await call(proxied().gateway, { from: '127.0.9.1' });
    expect(detail).toContain('no address (the proxy did not send it)');
  });
});

test('a reload changes who is trusted, also for connections that are open', async () => {
  const { gateway } = direct();
  const agent = new Agent({ keepAlive: true, maxSockets: 1 });
  const headers = { 'X-Forwarded-For': '127.0.5.7' };
  const ask = async () => (await call(gateway, { from: '127.0.9.1', headers, agent })).status;
  expect([await ask(), await requestsOf(gateway, 'balancer')]).toEqual([200, 1]);
  const { origin } = direct().simulator.deployments.submissions;
  const setup = await setupFor(
    { submissions: { origin, ca: direct().simulator.ca } },
    { anonymous: false, clients, listen },
  );
  const before = await requestsOf(gateway, 'narrow');
  await gateway.app.reload(() => Promise.resolve(setup));
  expect([await ask(), await requestsOf(gateway, 'narrow')]).toEqual([200, before + 1]);
  expect(gateway.logged.map(({ msg }) => msg)).toEqual(['configuration reloaded']);
  agent.destroy();
});

test('where everyone is served, clients are still told from the others', async () => {
  const pair = await openPair({ top: { clients } });
  for (const from of ['127.0.5.7', '127.0.6.1', '127.0.6.2']) {
    expect((await call(pair.gateway, { from })).status).toBe(200);
  }
  const counts = ['narrow', 'anonymous', ''].map((client) => requestsOf(pair.gateway, client));
  expect(await Promise.all(counts)).toEqual([1, 2, 0]);
  await pair.close();
});
