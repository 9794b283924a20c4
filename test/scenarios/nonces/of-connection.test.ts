import { expect, test } from '@jest/globals';
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
}

/** An upstream of several servers behind one address: each has nonces of its own, and a connection leads to one of them. */
async function startServers(count: number, { says, qop, ms = 0 }: Form) {
  const serverOf = new WeakMap<object, number>();
  let connections = 0;
  let nonces = 0;
  return startUpstream(({ socket, headers }, res) => {
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
    const body = 'x'.repeat(100);
    statuses.add((await fetch(gateway.origin, { method: 'POST', body })).status);
    expect([...statuses]).toEqual([200]);
  },
);

test('such servers, which say stale of others, serve where nothing but POSTs is sent', async () => {
  await using upstream = await startServers(2, { says: ', stale=true', qop: ', qop="auth"' });
  await using gateway = await startGateway({
    service: { origin: upstream.origin, settings: { tls: { allowPlaintext: true } } },
  });
  for (let round = 0; round < ROUNDS; round += 1)
    expect((await fetch(gateway.origin, { method: 'POST', body: 'x' })).status).toBe(200);
});
