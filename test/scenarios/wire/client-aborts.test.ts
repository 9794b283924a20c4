import { execFileSync } from 'node:child_process';
import { EventEmitter, once } from 'node:events';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { connect as connectTcp, type Socket } from 'node:net';
import { connect as connectTls } from 'node:tls';
import { beforeEach, describe, expect, test } from '@jest/globals';
import { startGateway } from '../../support/gateway.ts';
import { createTestAuthority, writeTlsFiles } from '../../support/issued-certificates.ts';
import { authors, type RunningScene, startScene } from '../../support/scene.ts';
import { startUpstream } from '../../support/scripted-upstream.ts';
import { until } from '../../support/until.ts';
import { codeOf, connect, useRunning } from '../../support/wire.ts';

describe('a client', () => {
  const IN_FLIGHT = 'digest_gateway_requests_in_flight';
  const REQUESTS = 'digest_gateway_requests_total';
  const SMALL = 1_000;
  const LARGE = 5_000_000;
  let arrived: (req: IncomingMessage) => void = () => undefined;

  const scene = useRunning(async () => {
    const upstream = await startUpstream((req, res) => {
      if (req.headers.authorization === undefined) {
        res.writeHead(401, { 'www-authenticate': 'Digest realm="r", nonce="n"' }).end();
        return;
      }
      arrived(req);
      req.on('error', () => undefined);
      req.resume().on('end', () => res.end('whole'));
    });
    const { origin } = upstream;
    const tls = { allowPlaintext: true };
    const patient = await startGateway({ upstream: { origin, settings: { tls } } });
    const brief = await startGateway({
      upstream: { origin, settings: { tls, timeouts: { total: '500ms' } } },
    });
    const close = async () => {
      await patient.close();
      await brief.close();
      await upstream.close();
    };
    return { patient, brief, close };
  });

  const headOf = (length: number) => `POST / HTTP/1.1\r\nHost: x\r\nContent-Length: ${length}\r\n\r\n`;

  /** Resolves with the next request that the upstream gets with its authentication. */
  function arrival(): Promise<IncomingMessage> {
    return new Promise((resolve) => {
      arrived = resolve;
    });
  }

  function closed(req: IncomingMessage): Promise<void> {
    return new Promise((resolve) => req.once('close', resolve));
  }

  beforeEach(async () => {
    for (const gateway of [scene().patient, scene().brief]) await (await fetch(gateway.origin)).text();
  });

  describe('that leaves', () => {
    test.each(['end', 'destroy', 'resetAndDestroy'] as const)(
      'in a large body cancels the upstream request: %s',
      async (how) => {
        const { patient } = scene();
        const before = await patient.metric(REQUESTS, { code: 'client-closed' });
        const client = await connect(patient.port);
        const arriving = arrival();
        await client.send(headOf(LARGE), Buffer.alloc(LARGE - 1));
        const req = await arriving;
        const gone = closed(req);
        client.socket[how]();
        await gone;
        expect(req.complete).toBe(false);
        await client.end();
        expect(await patient.metric(IN_FLIGHT)).toBe(0);
        expect(await patient.metric(REQUESTS, { code: 'client-closed' })).toBe(before + 1);
        expect(patient.logged).toEqual([]);
      },
    );

    test('in a small body never reaches the upstream', async () => {
      const { patient } = scene();
      const before = await patient.metric(REQUESTS, { code: 'client-closed' });
      let requests = 0;
      arrived = () => {
        requests += 1;
      };
      const client = await connect(patient.port);
      await client.send(headOf(SMALL), 'x');
      client.socket.end();
      await client.end();
      expect(await patient.metric(REQUESTS, { code: 'client-closed' })).toBe(before + 1);
      expect(requests).toBe(0);
      expect(patient.logged).toEqual([]);
    });
  });

  describe('that stops', () => {
    test('in a small body is told so in time', async () => {
      const client = await connect(scene().brief.port);
      await client.send(headOf(SMALL), 'x');
      const answer = await client.answer();
      expect([answer.status, codeOf(answer)]).toEqual([408, 'request-timeout']);
    });

    test('in a large body is told so in time, and its upstream request ends', async () => {
      const client = await connect(scene().brief.port);
      const arriving = arrival();
      await client.send(headOf(LARGE), Buffer.alloc(2_000_000));
      const req = await arriving;
      const gone = closed(req);
      const answer = await client.answer();
      expect([answer.status, codeOf(answer)]).toEqual([408, 'request-timeout']);
      expect(answer.body.toString()).toContain('timeouts.total');
      await gone;
      expect(await scene().brief.metric(IN_FLIGHT)).toBe(0);
    });
  });
});

test('a client that resets its connection before it is accepted is not served: it has no address any more', async () => {
  await using upstream = await startUpstream((_req, res) => {
    res.writeHead(401, { 'www-authenticate': 'Digest realm="r", nonce="n", qop="auth"' }).end();
  });
  const settings = { tls: { allowPlaintext: true } };
  await using gateway = await startGateway({ service: { origin: upstream.origin, settings } });
  const reset = `
    const client = require('node:net').connect(${gateway.port}, '127.0.0.1');
    client.write('GET / HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n', () => client.resetAndDestroy());`;
  // Nothing is accepted meanwhile.
  execFileSync(process.execPath, ['-e', reset]);
  expect((await fetch(gateway.origin)).status).toBe(502);
  await gateway.close();
  expect(await gateway.lastMetric('digest_gateway_requests_total')).toBe(1);
});

describe('a client with HTTP/1.0 that ends its side in a response without a length', () => {
  const HEAD = ' / HTTP/1.0\r\nHost: x\r\n';

  const scene = useRunning(async () => {
    const upstream = await startUpstream((req, res) => {
      if (req.headers.authorization === undefined)
        res.writeHead(401, { 'www-authenticate': 'Digest realm="r", nonce="n", qop="auth"' }).end();
      else if (req.url !== '/waits') res.writeHead(200).write('half');
    });
    const { ca, server } = await createTestAuthority();
    const files = await writeTlsFiles(await server(), ca);
    const service = { origin: upstream.origin, settings: { tls: { allowPlaintext: true } } };
    const gateway = await startGateway(
      { service },
      { listen: [{ port: 0 }, { port: 0, tls: files.section }] },
    );
    const [plain = 0, secured = 0] = gateway.listening.map(({ port }) => port);
    const close = async () => {
      await gateway.close();
      await upstream.close();
      await files.remove();
    };
    return { plain, secured, ca, close };
  });

  /** Ends the side of a client behind the start of its response; resolves to the error that it gets, if any. */
  async function endEarly(client: Socket, request: string): Promise<Error | undefined> {
    let read = '';
    client.on('data', (chunk) => {
      read += chunk;
    });
    client.write(request);
    await until(() => read.endsWith('half'));
    const closed = once(client, 'close').then(
      () => undefined,
      (error) => error,
    );
    client.end();
    return await closed;
  }

  test.each([
    ['no body', `GET${HEAD}\r\n`],
    ['a body that is not whole', `POST${HEAD}Content-Length: ${2 ** 24}\r\n\r\nstart`],
  ])('gets a reset: an orderly end would make the response whole (%s)', async (_which, request) => {
    const client = connectTcp(scene().plain, '127.0.0.1');
    expect(await endEarly(client, request)).toMatchObject({ code: 'ECONNRESET' });
  });

  test('gets an orderly end if the response has not begun: a reset would take what is on its way of one before', async () => {
    const client = connectTcp(scene().plain, '127.0.0.1').resume();
    const closed = once(client, 'close').then(
      () => undefined,
      (error) => error,
    );
    client.end('GET /waits HTTP/1.0\r\nHost: x\r\n\r\n');
    expect(await closed).toBeUndefined();
  });

  test('gets no close_notify over TLS', async () => {
    const tcp = connectTcp(scene().secured, '127.0.0.1');
    const client = connectTls({ socket: tcp, ca: scene().ca });
    let before = 0;
    client.on('data', () => {
      before = tcp.bytesRead;
    });
    await endEarly(client, `GET${HEAD}\r\n`);
    expect(tcp.bytesRead - before).toBe(0);
  });
});

describe('a client that leaves before the end of the response', () => {
  async function leave({ get, simulator, gateway }: RunningScene, target: string): Promise<void> {
    const leaving = new AbortController();
    const asked = get(target, { signal: leaving.signal })
      .then((answer) => answer.text())
      .catch((error: Error) => error.name);
    await until(() => simulator.counts('submissions').accepted === 1);
    leaving.abort();
    expect(await asked).toBe('AbortError');
    await until(() => simulator.counts('submissions').aborted === 1);
    await until(async () => (await gateway.metric('digest_gateway_requests_in_flight')) === 0);
  }

  test('cancels its upstream request, is counted as 499, and is not logged: before the head', async () => {
    const pair = await startScene({
      behaviour: { faults: [{ kind: 'hang', when: 'authenticated', times: 1 }] },
    });
    await leave(pair, authors);
    const gone = { status: '499', code: 'client-closed' };
    expect(await pair.gateway.metric('digest_gateway_requests_total', gone)).toBe(1);
    expect(pair.gateway.logged).toEqual([]);
    expect((await pair.get(authors)).status).toBe(200);
  });

  test('cancels its upstream request, is counted as 499, and is not logged: within the body', async () => {
    const pair = await startScene({
      behaviour: {
        faults: [{ kind: 'slow-body', bytes: 100, everyMs: 5, when: 'authenticated', times: 1 }],
      },
    });
    await leave(pair, '/bytes/1000000');
    const gone = { status: '499', code: 'client-closed' };
    expect(await pair.gateway.metric('digest_gateway_requests_total', gone)).toBe(1);
    expect(pair.gateway.logged).toEqual([]);
  });

  test.each([
    ['whole', (res: ServerResponse) => res.end('a response')],
    [
      'not whole',
      (res: ServerResponse) => res.writeHead(200, { 'content-length': 1_000 }).write('a response'),
    ],
  ])('is not counted to have got what comes when it has left: %s', async (_which, respond) => {
    const sent = new EventEmitter<{ request: [ServerResponse] }>();
    await using upstream = await startUpstream((req, res) => {
      if (req.headers.authorization !== undefined) sent.emit('request', res);
      else res.writeHead(401, { 'www-authenticate': 'Digest realm="r", nonce="n", qop="auth"' }).end();
    });
    const settings = { tls: { allowPlaintext: true } };
    await using gateway = await startGateway({ service: { origin: upstream.origin, settings } });
    const client = await connect(gateway.port);
    const sending = once(sent, 'request');
    await client.send('GET / HTTP/1.1\r\nHost: x\r\n\r\n');
    const [res] = await sending;
    client.socket.resetAndDestroy();
    // The end of the connection comes before this request.
    await gateway.metric('digest_gateway_requests_in_flight');
    respond(res);
    await until(async () => (await gateway.metric('digest_gateway_requests_in_flight')) === 0);
    const gone = { status: '499', code: 'client-closed' };
    expect(await gateway.metric('digest_gateway_requests_total', gone)).toBe(1);
    expect(await gateway.metric('digest_gateway_response_bytes_total')).toBe(0);
  });
});
