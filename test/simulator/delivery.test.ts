import { once } from 'node:events';
import { createServer, get, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { expect, test } from '@jest/globals';
import { deliver } from '../../src/simulator/delivery.ts';
import { FaultyConnection } from '../../src/simulator/faults.ts';

const block = Buffer.alloc(65_536);
const blocks = 1_000;

test('a stream waits for a reader that does not read, and goes on with it', async () => {
  let made = 0;
  async function* body() {
    for (; made < blocks; made += 1) yield block;
  }
  const server = createServer((_, response: ServerResponse) => {
    const target = {
      response,
      connection: new FaultyConnection(response, undefined),
      head: false,
      gone: new AbortController().signal,
    };
    void deliver({ status: 200, headers: {}, body: body() }, target, {});
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const request = get({ port: (server.address() as AddressInfo).port, host: '127.0.0.1', agent: false });
  const [response] = await once(request, 'response');
  await standstill(() => made);
  // The kernel's buffers on loopback hold far less than half.
  expect(made).toBeLessThan(blocks / 2);

  let length = 0;
  for await (const chunk of response) length += chunk.length;
  expect(length).toBe(blocks * block.length);
  server.close();
  await once(server, 'close');
});

/** Resolves when the value has not changed for a hundred turns of the event loop. */
async function standstill(value: () => number): Promise<void> {
  let last = -1;
  for (let turns = 0; turns < 100; turns += 1) {
    if (value() !== last) turns = 0;
    last = value();
    await new Promise((resolve) => setImmediate(resolve));
  }
}
