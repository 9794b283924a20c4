import { once } from 'node:events';
import { describe, expect, test } from '@jest/globals';
import { valuesOf } from '../../support/raw-answer.ts';
import { startGateway } from '../../support/running-gateway.ts';
import { codeOf, echoOf, useClients, useWire } from '../../support/wire.ts';

const wire = useWire();
const connect = useClients();
const CONNECT = 'CONNECT submissions.example.org:443 HTTP/1.1\r\nHost: submissions.example.org:443\r\n\r\n';

test('and the way to do without it', async () => {
  const client = await wire.connect();
  await client.send(CONNECT);
  const answer = await client.answer('CONNECT');
  expect([answer.status, codeOf(answer)]).toEqual([405, 'connect-unsupported']);
  expect(answer.body.toString()).toContain('Request the http:// URL');
  expect(valuesOf(answer, 'allow')).toEqual(['GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS']);
  expect(valuesOf(answer, 'proxy-status')).toEqual(['digest-gateway; error=http_request_denied']);
  expect(valuesOf(answer, 'connection')).toEqual(['close']);
  expect((await client.end()).toString()).toBe('');
});

describe('and the client cannot', () => {
  test('end the process by a reset', async () => {
    for (let count = 0; count < 10; count += 1) {
      const client = await wire.connect();
      await client.send(CONNECT);
      client.socket.resetAndDestroy();
      await once(client.socket, 'close');
    }
    expect(echoOf(await wire.ask('GET /echo HTTP/1.1\r\nHost: x\r\n\r\n')).url).toBe('/echo');
  });

  test('put the refusal before the answer to an earlier request', async () => {
    const client = await wire.connect();
    await client.send(`GET /echo HTTP/1.1\r\nHost: x\r\n\r\n${CONNECT}`);
    expect(echoOf(await client.answer()).url).toBe('/echo');
    expect((await client.answer()).status).toBe(405);
    expect((await client.end()).toString()).toBe('');
  });

  test('keep the gateway from ending by keeping its side open', async () => {
    const { origin } = wire.simulator.deployments.submissions;
    const gateway = await startGateway({ upstream: { origin, ca: wire.simulator.ca } });
    const client = await connect(gateway.port);
    await client.send(CONNECT);
    await client.end();
    const begun = performance.now();
    await gateway.close();
    expect(performance.now() - begun).toBeLessThan(5_000);
  });
});
