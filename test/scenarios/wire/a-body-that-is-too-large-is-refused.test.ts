import { setTimeout as delay } from 'node:timers/promises';
import { beforeEach, describe, expect, test } from '@jest/globals';
import { codeOf, echoOf, useWire } from '../../support/wire.ts';

const MAX = 300_000;
const wire = useWire({ settings: { body: { replayUpTo: '64KiB', max: MAX } } });

beforeEach(() => wire.simulator.reset('submissions'));

const declared = (length: number) => `POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: ${length}\r\n\r\n`;
const CHUNKED = 'POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n';
const chunk = (length: number) => `${length.toString(16)}\r\n${'x'.repeat(length)}\r\n`;

test('as soon as it is declared, before a byte of it', async () => {
  const client = await wire.connect();
  await client.send(declared(MAX + 1));
  const answer = await client.answer();
  expect([answer.status, codeOf(answer)]).toEqual([413, 'body-too-large']);
  expect(wire.simulator.counts('submissions').requests).toBe(0);
});

test('as soon as it becomes too large, when nobody said how large', async () => {
  const client = await wire.connect();
  await client.send(CHUNKED, chunk(100_000), chunk(100_000), chunk(100_001));
  const answer = await client.answer();
  expect([answer.status, codeOf(answer)]).toEqual([413, 'body-too-large']);
  expect(answer.body.toString()).toContain(`${MAX} bytes`);
});

test('and of the largest one not a byte is missing', async () => {
  for (const parts of [
    [declared(MAX), 'x'.repeat(MAX)],
    [CHUNKED, chunk(MAX), '0\r\n\r\n'],
  ]) {
    const client = await wire.connect();
    await client.send(...parts);
    expect(echoOf(await client.answer()).body.length).toBe(MAX);
  }
});

describe('the client can go on sending all the same,', () => {
  test('and the connection serves the next request', async () => {
    const client = await wire.connect();
    const sent = client.send(declared(20_000_000), Buffer.alloc(20_000_000));
    expect((await client.answer()).status).toBe(413);
    await sent;
    await client.send('GET /echo/next HTTP/1.1\r\nHost: x\r\n\r\n');
    expect(echoOf(await client.answer()).url).toBe('/echo/next');
  });

  test('in chunks, too', async () => {
    const client = await wire.connect();
    const sent = client.send(CHUNKED, ...Array.from({ length: 100 }, () => chunk(100_000)), '0\r\n\r\n');
    expect((await client.answer()).status).toBe(413);
    await sent;
    await client.send('GET /echo/next HTTP/1.1\r\nHost: x\r\n\r\n');
    expect(echoOf(await client.answer()).url).toBe('/echo/next');
  });

  test('for longer than a silent client may take', async () => {
    const client = await wire.connect();
    await client.send(declared(MAX + 10));
    expect((await client.answer()).status).toBe(413);
    // Each piece comes within the time that a silent client has, all of them together take longer.
    for (let sent = 0; sent < MAX + 10; sent += (MAX + 10) / 10) {
      await delay(300);
      await client.send(Buffer.alloc((MAX + 10) / 10));
    }
    await client.send('GET /echo/next HTTP/1.1\r\nHost: x\r\n\r\n');
    expect(echoOf(await client.answer()).url).toBe('/echo/next');
  });
});
