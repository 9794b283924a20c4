import { expect, test } from '@jest/globals';
import { call } from '../../support/client-call.ts';
import { closing } from '../../support/closing.ts';
import { startGateway } from '../../support/gateway.ts';
import { startUpstream } from '../../support/scripted-upstream.ts';
import { until } from '../../support/until.ts';
import { codeOf, connect } from '../../support/wire.ts';

const CHALLENGE = 'Digest realm="r", nonce="n", qop="auth"';

/** A gateway whose upstream never responds to /held, responds 429 to /paused, and breaks off /broken. */
async function start(settings: object) {
  const upstream = await startUpstream((req, res) => {
    if (req.headers.authorization === undefined) res.writeHead(401, { 'www-authenticate': CHALLENGE }).end();
    else if (req.url === '/paused') res.writeHead(429).end();
    else if (req.url === '/broken') res.destroy();
    else if (req.url !== '/held') res.end('ok');
  });
  closing.push(() => upstream.close());
  const gateway = await startGateway({
    up: {
      origin: upstream.origin,
      settings: { tls: { allowPlaintext: true }, timeouts: { idle: '2s' }, ...settings },
    },
  });
  closing.push(() => gateway.close());
  return gateway;
}

/** Sends the head of a request with a body, which stays away; resolves to the status and code of the first response. */
async function announceBody(port: number): Promise<[number, string]> {
  const client = await connect(port);
  await client.send('POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 1000\r\n\r\n');
  const answer = await client.answer();
  return [answer.status, answer.status === 100 ? '' : codeOf(answer)];
}

test('a pause refuses a request before its body', async () => {
  const gateway = await start({ outcomes: [{ name: 'busy', status: 429, pause: '60s' }] });
  expect((await call(gateway, { target: '/paused' })).status).toBe(429);
  expect(await announceBody(gateway.port)).toEqual([503, 'upstream-paused']);
});

test('an open circuit refuses a request before its body', async () => {
  const gateway = await start({ circuit: { minimum: 5, window: '60s', open: '60s' } });
  await until(async () => (await call(gateway, { target: '/broken' })).status === 503);
  expect(await announceBody(gateway.port)).toEqual([503, 'upstream-circuit-open']);
});

test('an overload refuses a request before its body', async () => {
  const gateway = await start({ connections: 1 });
  // Else the others would wait for what /held shows of the credential.
  expect((await call(gateway, { target: '/ok' })).status).toBe(200);
  const waiting = Array.from({ length: 17 }, async () => {
    const client = await connect(gateway.port);
    await client.send('GET /held HTTP/1.1\r\nHost: x\r\n\r\n');
    return client;
  });
  const clients = await Promise.all(waiting);
  const pending = () => gateway.metric('digest_gateway_upstream_connections', { state: 'pending' });
  await until(async () => (await pending()) === 16);
  expect(await announceBody(gateway.port)).toEqual([503, 'overloaded']);
  for (const client of clients) client.close();
});
