import { describe, expect, test } from '@jest/globals';
import { closing } from '../../support/closing.ts';
import { startGateway } from '../../support/gateway.ts';
import { startUpstream } from '../../support/scripted-upstream.ts';

const ROUNDS = 10;
const CROWD = 3;

interface Form {
  /** Of a nonce of another server. */
  readonly says: string;
  readonly qop: string;
  /** Milliseconds until it responds. */
  readonly ms?: number;
  /** Seconds for which it keeps idle connections. */
  readonly keeps?: number;
}

/**
 * An upstream of several servers behind one address: each has nonces of its own, and a connection leads to one of them.
 * `breaks`: whether an answer breaks its connection.
 */
async function startServers(count: number, { says, qop, ms = 0, keeps }: Form, breaks = () => false) {
  const serverOf = new WeakMap<object, number>();
  let connections = 0;
  let nonces = 0;
  return startUpstream(({ socket, headers }, res) => {
    if (headers.authorization !== undefined && breaks()) {
      socket.destroy();
      return;
    }
    if (keeps !== undefined)
      res.setHeader('keep-alive', `timeout=${keeps}`).setHeader('connection', 'keep-alive');
    const server = serverOf.get(socket) ?? connections++ % count;
    serverOf.set(socket, server);
    const issuer = /nonce="(\d+)-/.exec(headers.authorization ?? '')?.[1];
    if (issuer !== `${server}`) {
      const stale = issuer === undefined ? '' : says;
      nonces += 1;
      const challenge = `Digest realm="r", nonce="${server}-${nonces}"${qop}${stale}`;
      res.writeHead(401, { 'www-authenticate': challenge });
    }
    setTimeout(() => res.end(), ms);
  });
}

test.each([
  ['a plain 401, as Spring Security', { says: ', stale="false"', qop: '' }],
  ['a plain 401, after 120 ms', { says: ', stale="false"', qop: '', ms: 120 }],
  ['a plain 401 and qop', { says: '', qop: ', qop="auth"' }],
  ['stale', { says: ', stale=true', qop: ', qop="auth"' }],
  ['a plain 401 and qop, and keep connections for 2 s', { says: '', qop: ', qop="auth"', keeps: 2 }],
])(
  'servers behind one address with nonces of their own serve; of others they say: %s',
  async (_what, form) => {
    await using upstream = await startServers(2, form);
    await using gateway = await startGateway({
      service: { origin: upstream.origin, settings: { tls: { allowPlaintext: true } } },
    });
    const statuses = new Set<number>();
    for (let round = 0; round < ROUNDS; round += 1) {
      const crowd = Array.from({ length: CROWD }, (_, at) => fetch(`${gateway.origin}/${round}/${at}`));
      for (const { status } of await Promise.all(crowd)) statuses.add(status);
    }
    // Where no connection is kept, it depends on the order of the servers.
    if (!('keeps' in form))
      statuses.add((await fetch(gateway.origin, { method: 'POST', body: 'x'.repeat(100) })).status);
    expect([...statuses]).toEqual([200]);
  },
);

test.each([
  ['say stale of others', { says: ', stale=true', qop: ', qop="auth"' }],
  ['keep connections for 2 s', { says: '', qop: ', qop="auth"', keeps: 2 }],
])('such servers, which %s, serve where nothing but POSTs is sent', async (_what, form) => {
  await using upstream = await startServers(2, form);
  await using gateway = await startGateway({
    service: { origin: upstream.origin, settings: { tls: { allowPlaintext: true } } },
  });
  for (let round = 0; round < ROUNDS; round += 1)
    expect((await fetch(gateway.origin, { method: 'POST', body: 'x' })).status).toBe(200);
});

describe('a POST to servers behind one address with nonces of their own', () => {
  const start = async (breaks?: () => boolean) => {
    const upstream = await startServers(2, { says: '', qop: ', qop="auth"' }, breaks);
    closing.push(() => upstream.close());
    const gateway = await startGateway({
      service: { origin: upstream.origin, settings: { tls: { allowPlaintext: true } } },
    });
    closing.push(() => gateway.close());
    return async (method: string): Promise<number> => {
      const body = method === 'POST' ? 'x' : null;
      return (await fetch(gateway.origin, { method, body })).status;
    };
  };

  test('is served as the first request', async () => {
    const ask = await start();
    expect(await ask('POST')).toBe(200);
  });

  test('shuts the credential out after no connection that broke behind a 401', async () => {
    let left = 2;
    const ask = await start(() => left-- > 0);
    expect(await ask('GET')).toBe(502);
    expect([await ask('POST'), await ask('GET')]).toEqual([200, 200]);
  });
});
