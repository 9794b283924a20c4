import { createHash } from 'node:crypto';
import { describe, expect, test } from '@jest/globals';
import type { RunningGateway } from '../../support/running-gateway.ts';
import { openPair } from '../../support/simulated-pair.ts';
import { codeOf, echoOf, useClients, useRunning } from '../../support/wire.ts';

const KEY = 'a-key-of-a-client';
const connect = useClients();
const named = useRunning(() =>
  openPair({
    settings: { match: { pathPrefix: '/', host: 'submissions.gateway.internal' } },
    top: { listen: { port: 0, hosts: ['Gateway.Internal', '127.0.0.1', '0:0:0:0:0:0:0:1'] } },
  }),
);
const apiKeySha256 = createHash('sha256').update(KEY).digest('hex');
const allow = [{ deployment: 'submissions' }];
const clients = useRunning(() =>
  openPair({
    top: {
      anonymous: false,
      clients: [
        { id: 'keyed', identify: { addresses: ['127.0.0.0/8'], apiKeySha256 }, allow },
        { id: 'addressed', identify: { addresses: ['127.0.0.0/8'] }, allow },
      ],
    },
  }),
);

async function outcome({ port }: RunningGateway, line: string, ...headers: string[]): Promise<string> {
  const client = await connect(port);
  await client.send(`${[`${line} HTTP/1.1`, ...headers].join('\r\n')}\r\n\r\n`);
  const answer = await client.answer(line.split(' ')[0]);
  return answer.status === 200 ? `200 ${echoOf(answer).method}` : `${answer.status} ${codeOf(answer)}`;
}

describe('listen.hosts', () => {
  test.each([
    'gateway.internal',
    'GATEWAY.internal:8080',
    'gateway.internal.',
    'gateway.internal.:80',
    '127.0.0.1:1234',
    '[::1]:8080',
    '[0:0::1]',
    'submissions.gateway.internal',
  ])('serves %s', async (host) => {
    expect(await outcome(named().gateway, 'GET /echo', `Host: ${host}`)).toBe('200 GET');
  });

  test.each([
    'evil.example',
    'evil.example:8080',
    'gateway.internal.evil.example',
    'xgateway.internal',
    'gateway.internal..',
    '127.0.0.2',
    '[::2]',
    'localhost',
    '',
  ])('refuses %p with 421', async (host) => {
    expect(await outcome(named().gateway, 'GET /echo', `Host: ${host}`)).toBe('421 host-unknown');
    expect(await outcome(named().gateway, 'POST /echo', `Host: ${host}`, 'Content-Length: 0')).toBe(
      '421 host-unknown',
    );
  });

  test('leaves a request in absolute form to the names of the upstreams', async () => {
    const { gateway, simulator } = named();
    const { host } = new URL(simulator.deployments.submissions.origin);
    expect(await outcome(gateway, `GET http://${host}/echo`, `Host: ${host}`)).toBe('200 GET');
    expect(await outcome(gateway, 'GET http://evil.example/echo', 'Host: evil.example')).toBe(
      '404 no-deployment',
    );
  });
});

describe('a client known by its address only', () => {
  const HOST = 'Host: gateway.internal:8080';
  test.each([
    ['GET /echo', 'Sec-Fetch-Site: cross-site'],
    ['POST /echo', 'Sec-Fetch-Site: cross-site', 'Origin: http://evil.example'],
    ['POST /echo', 'Sec-Fetch-Site: cross-site', 'Origin: null'],
    // Browsers send no Sec-Fetch-Site to other machines without TLS.
    ['POST /echo', 'Origin: http://evil.example:8080'],
    ['POST /echo', 'Origin: null'],
    ['GET http://gateway.internal/echo', 'Sec-Fetch-Site: cross-site'],
  ])('is refused %s with %s', async (line, ...headers) => {
    expect(await outcome(clients().gateway, line, HOST, 'Content-Length: 0', ...headers)).toBe(
      '403 cross-site',
    );
  });

  test.each([
    ['GET /echo'],
    ['GET /echo', 'Sec-Fetch-Site: none'],
    ['GET /echo', 'Sec-Fetch-Site: same-origin'],
    ['GET /echo', 'Sec-Fetch-Site: same-site', 'Origin: http://app.internal'],
    ['POST /echo', 'Origin: http://gateway.internal'],
    ['POST /echo', 'Origin: https://Gateway.internal:8443'],
    ['POST /echo', 'Sec-Fetch-Site: cross-site', `X-Api-Key: ${KEY}`],
  ])('is served %s with %s', async (line, ...headers) => {
    expect(await outcome(clients().gateway, line, HOST, 'Content-Length: 0', ...headers)).toMatch(/^200 /);
  });
});

test('a cross-site request of nobody known is refused where anonymous clients are served', async () => {
  expect(
    await outcome(named().gateway, 'POST /echo', 'Host: gateway.internal', 'Sec-Fetch-Site: cross-site'),
  ).toBe('403 cross-site');
});
