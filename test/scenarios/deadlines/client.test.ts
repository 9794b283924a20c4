import { setTimeout as delay } from 'node:timers/promises';
import { describe, expect, test } from '@jest/globals';
import { recordsIn, useFolders } from '../../support/audit-log.ts';
import { closedAtEnd, closing } from '../../support/closing.ts';
import { startGateway } from '../../support/gateway.ts';
import { createTestAuthority, writeTlsFiles } from '../../support/issued-certificates.ts';
import { valuesOf } from '../../support/raw-client.ts';
import { startUpstream } from '../../support/scripted-upstream.ts';
import { until } from '../../support/until.ts';
import { codeOf, connect } from '../../support/wire.ts';
import {
  type AuditedGateway,
  errorsLogged,
  expectOthersServed,
  OWN,
  OWN_MS,
  startDeadlines,
  type Timeout,
} from './deadlines.ts';

const REQUESTS = 'digest_gateway_requests_total';
// Hooks run in this order: clients go first, and folders when nothing writes there any more.
const folder = useFolders();

describe('a client that stops', () => {
  const SMALL = 1000;
  const LARGE = 100_000_000;
  const post = (length: number, lines = ''): string =>
    `POST /up/fault HTTP/1.1\r\nHost: x\r\nX-Request-Id: .up.fault\r\nContent-Length: ${length}\r\n${lines}\r\n`;

  /** An upstream that reads bodies and then answers, to /up/large with what no client has room for. */
  async function startReading(timeout: Timeout) {
    const reached = Promise.withResolvers<void>();
    const gone = Promise.withResolvers<void>();
    const upstream = await startUpstream((req, res) => {
      if (req.headers.authorization === undefined) {
        res.writeHead(401, { 'www-authenticate': 'Digest realm="x", nonce="first", qop="auth"' }).end();
        return;
      }
      if (req.url?.startsWith('/up/fault') === true) {
        reached.resolve();
        res.once('close', () => gone.resolve());
      }
      const large = req.url === '/up/fault/large';
      req.on('error', () => {}).resume();
      req.on('end', () => res.end(large ? Buffer.alloc(LARGE) : 'ok'));
    });
    closing.push(() => upstream.close());
    const settings = { tls: { allowPlaintext: true }, body: { replayUpTo: '64KiB' } };
    const scene = await startDeadlines({
      origin: upstream.origin,
      settings,
      timeout,
      directory: await folder(),
    });
    return { ...scene, reached: reached.promise, gone: gone.promise };
  }

  /** Checks metric and audit records; errors of clients are not logged. */
  async function expectRecorded(
    { gateway, directory }: AuditedGateway,
    status: number,
    code: string,
  ): Promise<void> {
    const labels = { deployment: 'up', status: `${status}`, code };
    await until(async () => (await gateway.metric(REQUESTS, labels)) === 1);
    expect(await gateway.metric('digest_gateway_requests_in_flight')).toBe(0);
    expect(errorsLogged(gateway)).toEqual([]);
    await gateway.close();
    const records = (await recordsIn(directory)).filter(({ requestId }) => requestId === '.up.fault');
    expect(records.findLast((record) => 'code' in record)).toMatchObject({ status, code });
  }

  test.each([
    ['in a small body', post(SMALL), 'x'],
    ['before a small body', post(SMALL), ''],
    ['before a body that it was told to send', post(SMALL, 'Expect: 100-continue\r\n'), ''],
    [
      'in the size of a chunk',
      post(0).replace('Content-Length: 0', 'Transfer-Encoding: chunked'),
      '5\r\nhello\r\n1',
    ],
    ['in a large body', post(LARGE), Buffer.alloc(2_000_000)],
  ])('%s gets 408 request-timeout after timeouts.idle', async (_where, head, body) => {
    const scene = await startReading('idle');
    const client = await connect(scene.gateway.port);
    const begun = performance.now();
    await client.send(head, body);
    if (body.length > SMALL) await scene.reached;
    await expectOthersServed(scene.gateway);
    let answer = await client.answer();
    if (answer.status === 100) answer = await client.answer();
    expect(performance.now() - begun).toBeGreaterThanOrEqual(OWN_MS - 1);
    expect([answer.status, codeOf(answer)]).toEqual([408, 'request-timeout']);
    expect(answer.body.toString()).toContain('timeouts.idle');
    expect(valuesOf(answer, 'connection')).toEqual(['close']);
    await client.end();
    client.close();
    if (body.length > SMALL) await scene.gone;
    await expectRecorded(scene, 408, 'request-timeout');
  });

  test.each([
    ['TCP', false],
    ['TLS', true],
  ])('for less than timeouts.idle, again and again, is served: over %s', async (_transport, overTls) => {
    const upstream = await startUpstream((req, res) => void req.resume().on('end', () => res.end('ok')));
    closing.push(() => upstream.close());
    const authority = await createTestAuthority();
    const files = await writeTlsFiles(await authority.server(), authority.ca);
    closing.push(() => files.remove());
    const settings = { tls: { allowPlaintext: true }, timeouts: { idle: OWN }, body: { minRate: 'off' } };
    const gateway = await startGateway(
      { up: { origin: upstream.origin, settings } },
      { listen: { port: 0, ...(overTls && { tls: files.section }) } },
    );
    closing.push(() => gateway.close());
    const client = await connect(gateway.port, overTls ? authority.ca : undefined);
    await client.send(post(40));
    // For twice as long as timeouts.idle in all.
    for (let count = 0; count < 40; count += 1) {
      await client.send('x');
      await delay(OWN_MS / 20);
    }
    expect((await client.answer()).status).toBe(200);
  });

  test('because the upstream does not read its body is not blamed', async () => {
    const stopped = Promise.withResolvers<void>();
    const upstream = await startUpstream((req, res) => {
      if (req.headers.authorization === undefined) {
        res.writeHead(401, { 'www-authenticate': 'Digest realm="x", nonce="first", qop="auth"' }).end();
        return;
      }
      void stopped.promise.then(() => req.resume());
      req.on('end', () => res.end('ok'));
    });
    closing.push(() => upstream.close());
    const settings = { tls: { allowPlaintext: true }, timeouts: { idle: OWN } };
    const gateway = await closedAtEnd(startGateway({ up: { origin: upstream.origin, settings } }));
    const client = await connect(gateway.port);
    const sent = client.send(post(LARGE), Buffer.alloc(LARGE));
    await delay(3 * OWN_MS);
    expect([client.pending, client.socket.writableLength > 0]).toEqual([0, true]);
    stopped.resolve();
    await sent;
    expect((await client.answer()).status).toBe(200);
  });

  test('in its body while it receives the response is served on', async () => {
    const upstream = await startUpstream((req, res) => {
      if (req.headers.authorization === undefined) {
        res.writeHead(401, { 'www-authenticate': 'Digest realm="x", nonce="first", qop="auth"' }).end();
        return;
      }
      res.write('begun;');
      const sending = setInterval(() => res.write('.'), OWN_MS / 20);
      closing.push(() => clearInterval(sending));
      req.resume().on('end', () => {
        clearInterval(sending);
        res.end('ended');
      });
    });
    closing.push(() => upstream.close());
    const settings = { tls: { allowPlaintext: true }, timeouts: { idle: OWN } };
    const gateway = await closedAtEnd(startGateway({ up: { origin: upstream.origin, settings } }));
    const client = await connect(gateway.port);
    await client.send(post(LARGE), Buffer.alloc(LARGE - 1));
    await until(() => client.pending > 0);
    await delay(3 * OWN_MS);
    await client.send('x');
    expect((await client.answer()).body.toString()).toMatch(/^begun;\.+ended$/);
  });

  test('in a body that comes byte by byte gets 408 request-timeout after timeouts.total', async () => {
    const scene = await startReading('total');
    const client = await connect(scene.gateway.port);
    await client.send(post(SMALL));
    const sending = setInterval(() => void client.send('x'), OWN_MS / 20);
    closing.push(() => clearInterval(sending));
    await expectOthersServed(scene.gateway);
    const answer = await client.answer();
    expect([answer.status, codeOf(answer)]).toEqual([408, 'request-timeout']);
    expect(answer.body.toString()).toContain('timeouts.total');
    client.close();
    await expectRecorded(scene, 408, 'request-timeout');
  });

  test('reading loses its connection after timeouts.idle, and its place at the upstream is free again', async () => {
    const scene = await startReading('idle');
    const client = await connect(scene.gateway.port);
    client.socket.removeAllListeners('data').pause();
    await client.send('GET /up/fault/large HTTP/1.1\r\nHost: x\r\nX-Request-Id: .up.fault\r\n\r\n');
    await scene.reached;
    await expectOthersServed(scene.gateway);
    await scene.gone;
    client.socket.resume();
    await client.end();
    const running = { deployment: 'up', state: 'running' };
    await until(
      async () => (await scene.gateway.metric('digest_gateway_upstream_connections', running)) === 0,
    );
    await expectRecorded(scene, 499, 'client-timeout');
  });
});
