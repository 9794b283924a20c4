import { randomUUID } from 'node:crypto';
import { expect, test } from '@jest/globals';
import { useWire, type Wire } from '../support/wire.ts';

const wire = useWire({ settings: { match: { pathPrefix: '/api/' } } });

/** Every series of the gateway in /metrics, without its value; those of Node.js come and go with what it does. */
async function seriesOf({ gateway }: Wire): Promise<string[]> {
  const text = await (await fetch(`${gateway.control}/metrics`)).text();
  const lines = text.split('\n').filter((line) => line.startsWith('digest_gateway_'));
  return lines.map((line) => line.slice(0, line.lastIndexOf(' '))).sort();
}

/** One request of each kind that can be refused or answered, each with names that nobody sent before. */
async function sendStrangeRequests(): Promise<void> {
  const word = randomUUID().replaceAll('-', '');
  const method = `M${word.slice(0, 8).toUpperCase()}`;
  const heads = [
    `GET /${word} HTTP/1.1\r\nHost: ${word}.example.org\r\n\r\n`,
    `GET http://${word}.example.org/ HTTP/1.1\r\nHost: ${word}.example.org\r\n\r\n`,
    `GET /api/${word}?site_name=${word}&${word}=1 HTTP/1.1\r\nHost: a\r\n\r\n`,
    `GET /api/${word} HTTP/1.1\r\nHost: a\r\nX-Api-Key: ${word}\r\nUser-Agent: ${word}\r\n\r\n`,
    `GET /api/a HTTP/1.1\r\nHost: a\r\nX-Request-Id: ${word}\r\nAuthorization: Basic ${word}\r\n\r\n`,
    `PROPFIND /api/${word} HTTP/1.1\r\nHost: a\r\n\r\n`,
    `${method} /api/${word} HTTP/1.1\r\nHost: a\r\n\r\n`,
    `CONNECT ${word}:443 HTTP/1.1\r\nHost: ${word}:443\r\n\r\n`,
  ];
  for (const head of heads) await wire.ask(head);
}

test('strangers can choose methods, paths, hosts, clients and ids: no series is theirs', async () => {
  await sendStrangeRequests();
  const before = await seriesOf(wire);
  for (let round = 0; round < 10; round += 1) await sendStrangeRequests();
  expect(await seriesOf(wire)).toEqual(before);
});
