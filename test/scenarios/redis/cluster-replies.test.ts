import { once } from 'node:events';
import { type AddressInfo, createServer, type Socket } from 'node:net';
import { expect, test } from '@jest/globals';
import type { Cluster } from 'ioredis';
import { messageOf } from '../../../src/base/error-code.ts';
import { RedisClient } from '../../../src/redis/client.ts';
import { closedAtEnd, closing } from '../../support/closing.ts';
import { listenOnLoopback } from '../../support/loopback-server.ts';
import { redisOptions } from '../../support/redis-store.ts';
import { until } from '../../support/until.ts';

type Range = readonly [first: string, last: string, ports: readonly number[]];

/** A reply to CLUSTER SLOTS; first and last are as on the wire. */
function slots(ranges: readonly Range[]): string {
  const text = (value: string): string => `$${value.length}\r\n${value}\r\n`;
  const serverOf = (port: number): string => `*3\r\n${text('127.0.0.1')}:${port}\r\n${text('id')}`;
  const lines = ranges.map(
    ([first, last, ports]) =>
      `*${2 + ports.length}\r\n:${first}\r\n:${last}\r\n${ports.map(serverOf).join('')}`,
  );
  return `*${ranges.length}\r\n${lines.join('')}`;
}

const COMMAND = /\*\d+\r\n\$\d+\r\n(\w+)\r\n(?:\$\d+\r\n(\w+))?/g;

/** The commands in these bytes, each with the word after it. */
function commandsIn(bytes: Buffer): string[] {
  return Array.from(bytes.toString().matchAll(COMMAND), ([, name, word]) => `${name} ${word}`.toLowerCase());
}

/** A client of a Cluster whose one node says this of its slots, `own` being its port; it does so once at least. */
async function clientOf(rangesOf: (own: number) => readonly Range[]): Promise<RedisClient> {
  let asked = 0;
  const replyTo = (command: string): string => {
    if (command === 'cluster info') return '$16\r\ncluster_state:ok\r\n';
    if (command !== 'cluster slots') return '+OK\r\n';
    asked += 1;
    return slots(rangesOf(server.port));
  };
  const serve = (socket: Socket): void => {
    socket.on('error', () => undefined);
    socket.on('data', (bytes: Buffer) => socket.write(commandsIn(bytes).map(replyTo).join('')));
  };
  const server = await closedAtEnd(listenOnLoopback(createServer(serve)));
  const client = new RedisClient(
    redisOptions({ kind: 'cluster', nodes: [{ host: '127.0.0.1', port: server.port }] }),
    {},
  );
  closing.push(() => client.close());
  await until(() => asked > 0);
  return client;
}

test('a Cluster with all of its slots is ready', async () => {
  const client = await clientOf((own) => [
    ['0', '8000', [own]],
    ['8001', '16383', [own, own]],
  ]);
  await until(() => client.commands.status === 'ready' && client.problem === undefined);
});

const NODES = Array.from({ length: 1_001 }, (_, at) => at + 1);

test.each<[string, (own: number) => readonly Range[]]>([
  ['slots that no Cluster has', (own) => [['0', '16384', [own]]]],
  ['a negative slot', (own) => [['-1', '16383', [own]]]],
  ['a slot larger than any number', (own) => [['0', '9223372036854775807', [own]]]],
  [
    'slots that are there twice',
    (own) => [
      ['0', '16383', [own]],
      ['16383', '16383', [own]],
    ],
  ],
  ['more nodes than a Cluster has', (own) => [['0', '16383', [own, ...NODES]]]],
])('a node that names %s counts as down', async (_what, rangesOf) => {
  const client = await clientOf(rangesOf);
  // A machine that stands still may find it silent first.
  await until(() => client.problem?.includes('CLUSTER SLOTS') === true);
  expect((client.commands as Cluster).nodes().length).toBeLessThanOrEqual(1);
});

test('nodes that send every command on to another one open a bounded number of connections', async () => {
  let moved = 0;
  let slotsAsked = 0;
  let mostAtOnce = 0;
  const open = new Set<Socket>();
  const replyTo = (command: string): string => {
    if (command === 'cluster info') return '$16\r\ncluster_state:ok\r\n';
    if (command === 'cluster slots') {
      slotsAsked += 1;
      // Later questions get no reply.
      return slotsAsked === 1 ? slots([['0', '16383', [port]]]) : '';
    }
    if (!command.startsWith('get')) return '+OK\r\n';
    moved += 1;
    return `-MOVED 12539 127.0.${Math.floor(moved / 250)}.${(moved % 250) + 2}:${port}\r\n`;
  };
  const server = createServer((socket) => {
    open.add(socket);
    mostAtOnce = Math.max(mostAtOnce, open.size);
    socket.on('error', () => undefined);
    socket.on('close', () => open.delete(socket));
    socket.on('data', (bytes: Buffer) => socket.write(commandsIn(bytes).map(replyTo).join('')));
  });
  server.listen(0, '0.0.0.0');
  await once(server, 'listening');
  closing.push(async () => {
    server.close();
    for (const socket of open) socket.destroy();
  });
  const { port } = server.address() as AddressInfo;
  const client = new RedisClient(redisOptions({ kind: 'cluster', nodes: [{ host: '127.0.0.1', port }] }), {});
  closing.push(() => client.close());
  const errors: string[] = [];
  client.commands.on('node error', (error: Error) => errors.push(error.message));
  await client.call((commands) => commands.get('k')).catch(messageOf);
  expect(moved).toBeLessThan(6);
  const tooMany = 'the nodes of the Cluster name more nodes than any Cluster has';
  while (!errors.includes(tooMany) && moved < 3_000) {
    await client.call((commands) => commands.get('k')).catch(messageOf);
  }
  expect(errors).toContain(tooMany);
  expect((client.commands as Cluster).nodes().length).toBeLessThan(10);
  expect(mostAtOnce).toBeLessThan(1_100);
});
