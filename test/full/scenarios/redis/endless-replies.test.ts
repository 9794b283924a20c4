import { createServer, type Socket } from 'node:net';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { expect, jest, test } from '@jest/globals';
import type { Redis } from 'ioredis';
import { messageOf } from '../../../../src/base/error-code.ts';
import { RedisClient } from '../../../../src/redis/client.ts';
import {
  connectCommands,
  connectMessages,
  ended,
  type RedisServers,
} from '../../../../src/redis/connection.ts';
import { MAX_REPLY } from '../../../../src/redis/replies.ts';
import { closedAtEnd, closing } from '../../../support/closing.ts';
import { listenOnLoopback } from '../../../support/loopback-server.ts';
import { startRedis } from '../../../support/redis.ts';
import { redisOptions, single } from '../../../support/redis-store.ts';

const CHUNK = Buffer.alloc(2 ** 20, 'a');
/** Bytes that the buffers of sockets can take besides. */
const BUFFERS = 16 * 2 ** 20;

/** OK to each of these commands. */
function okTo(commands: string): string {
  return '+OK\r\n'.repeat(commands.split('*').length - 1);
}

/**
 * Starts a reply to the first command with this text in it, which it never ends, and responds with OK to others; resolves
 * to the bytes that were taken of it.
 */
async function startEndless(begin: string, to = ''): Promise<{ port: number; taken: Promise<number> }> {
  const { promise: taken, resolve } = Promise.withResolvers<number>();
  const send = (socket: Socket): void => {
    let sent = 0;
    const pump = (): void => {
      while (sent < MAX_REPLY + BUFFERS && !socket.destroyed && socket.write(CHUNK)) sent += CHUNK.length;
      if (sent >= MAX_REPLY + BUFFERS) resolve(sent);
    };
    socket.on('error', () => undefined);
    socket.on('data', (bytes) => {
      const text = bytes.toString().toLowerCase();
      if (!text.includes(to)) {
        socket.write(okTo(text));
        return;
      }
      socket.once('close', () => resolve(sent));
      socket.on('drain', pump);
      socket.write(begin);
      pump();
    });
  };
  const server = await closedAtEnd(listenOnLoopback(createServer(send)));
  return { port: server.port, taken };
}

test.each([
  ['of commands', connectCommands],
  [
    'of messages',
    (options: ReturnType<typeof redisOptions>) => {
      const commands = connectCommands(redisOptions(single(1)), {});
      closing.push(() => ended(commands));
      return connectMessages(options, commands);
    },
  ],
])('a reply without end on the connection %s is not kept', async (_which, connect) => {
  const { port, taken } = await startEndless('+');
  const connection = connect(redisOptions(single(port)), {});
  closing.push(() => ended(connection));
  expect(await taken).toBeLessThan(MAX_REPLY + BUFFERS);
});

test('a reply without end to the question for the slots of a Cluster is not kept', async () => {
  const { port, taken } = await startEndless('+', 'slots');
  const connection = connectCommands(
    redisOptions({ kind: 'cluster', nodes: [{ host: '127.0.0.1', port }] }),
    {},
  );
  connection.on('error', () => undefined);
  closing.push(() => ended(connection));
  expect(await taken).toBeLessThan(MAX_REPLY + BUFFERS);
});

/** 8 bytes for each element: 256 MiB. */
const ARRAY = '*33554432\r\n';

test.each<[string, (port: number) => RedisServers]>([
  ['Redis', single],
  [
    'a Sentinel',
    (port) => ({ kind: 'sentinel', sentinels: [{ host: '127.0.0.1', port }], name: 'mymaster' }),
  ],
  ['a node of a Cluster', (port) => ({ kind: 'cluster', nodes: [{ host: '127.0.0.1', port }] })],
])('an array that %s announces takes no memory before it comes', async (_who, serversOf) => {
  const { promise: closed, resolve } = Promise.withResolvers<void>();
  const announce = (socket: Socket): void => {
    socket.on('error', () => undefined);
    socket.once('data', () => socket.write(ARRAY.repeat(2)));
    socket.once('close', () => resolve());
  };
  const server = await closedAtEnd(listenOnLoopback(createServer(announce)));
  const { heapUsed } = process.memoryUsage();
  const client = new RedisClient(redisOptions(serversOf(server.port)), {});
  closing.push(() => client.close());
  await closed;
  expect(process.memoryUsage().heapUsed - heapUsed).toBeLessThan(2 ** 28);
});

test('a long error is not repeated in the log and in the readiness', async () => {
  const refuse = (socket: Socket): void => {
    socket.on('error', () => undefined);
    socket.on('data', () => socket.write(`-ERR ${'a'.repeat(2 ** 20)}\r\n`));
  };
  const server = await closedAtEnd(listenOnLoopback(createServer(refuse)));
  const client = new RedisClient(redisOptions(single(server.port)), {});
  closing.push(() => client.close());
  const message = await client.call((commands) => commands.get('k')).then(String, messageOf);
  expect(message.length).toBeLessThan(1_000);
  expect(client.problem?.length ?? 0).toBeLessThan(1_000);
});

test.each(['*0\r\n', '*1\r\n$7\r\nmessage\r\n', '*1\r\n$-1\r\n'])(
  'a message without its parts, %j, ends the connection of messages',
  async (message) => {
    const subscribe = (socket: Socket): void => {
      socket.on('error', () => undefined);
      socket.on('data', (bytes: Buffer) => {
        const text = bytes.toString();
        const subscribed = '*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n';
        socket.write(text.includes('subscribe') ? subscribed + message : okTo(text));
      });
    };
    const server = await closedAtEnd(listenOnLoopback(createServer(subscribe)));
    const options = redisOptions(single(server.port));
    const commands = connectCommands(options, {}).on('error', () => undefined);
    closing.push(() => ended(commands));
    const open = async (): Promise<{ messages: Redis; errors: string[]; end: Promise<unknown> }> => {
      const messages = connectMessages(options, commands);
      closing.push(() => ended(messages));
      messages.on('message', () => undefined);
      const errors: string[] = [];
      messages.on('error', (error: Error) => errors.push(error.message));
      const end = new Promise((resolve) => messages.once('end', () => resolve('end')));
      const ready = new Promise((resolve) => messages.once('ready', () => resolve('ready')));
      // It does not connect again where this machine stood still for a second.
      return (await Promise.race([ready, end])) === 'ready' ? { messages, errors, end } : await open();
    };
    const { messages, errors, end } = await open();
    await messages.subscribe('c');
    await end;
    expect(errors).toEqual([expect.stringContaining('Cannot read properties')]);
  },
);

/** A client of a server that responds with OK to all but `get`, with the errors of its connection. */
async function clientOf(onGet: (socket: Socket) => void): Promise<{ client: RedisClient; errors: string[] }> {
  const serve = (socket: Socket): void => {
    socket.on('error', () => undefined);
    socket.on('data', (bytes: Buffer) => {
      const text = bytes.toString();
      if (text.includes('get')) onGet(socket);
      else socket.write(okTo(text));
    });
  };
  const server = await closedAtEnd(listenOnLoopback(createServer(serve)));
  const client = new RedisClient(redisOptions(single(server.port)), {});
  closing.push(() => client.close());
  const errors: string[] = [];
  client.commands.on('error', (error: Error) => errors.push(error.message));
  return { client, errors };
}

test('replies without a command end the connection at the first one', async () => {
  const { client, errors } = await clientOf((socket) => socket.write('+OK\r\n'.repeat(1_000)));
  const closed = new Promise((resolve) => client.commands.once('close', resolve));
  expect(await client.call((commands) => commands.get('k'))).toBe('OK');
  await closed;
  expect(errors).toEqual(['a reply came without a command']);
});

/** Lets the time go so many times as fast until the test ends. */
function hasten(times: number): void {
  const { now } = performance;
  const start = now.call(performance);
  const clock = jest.spyOn(performance, 'now');
  clock.mockImplementation(() => start + times * (now.call(performance) - start));
  closing.push(() => clock.mockRestore());
}

test('a reply that drips ends its connection', async () => {
  const { client, errors } = await clientOf((socket) => {
    socket.write('$1000\r\na');
    const drip = setInterval(() => socket.write('a'), 50);
    socket.once('close', () => clearInterval(drip));
  });
  hasten(100);
  const failed = await client.call((commands) => commands.get('k'), 5_000).then(String, messageOf);
  expect(failed).toContain('not ended after 10 s');
  expect(errors).toEqual(['a reply has not ended after 10 s']);
});

test('commands do not pile up behind replies that are slower than they are asked for', async () => {
  const { client, errors } = await clientOf((socket) => socket.write('$1\r\na\r\n'));
  await client.call((commands) => commands.get('k'));
  hasten(1_000);
  const tooSlow = 'Redis is slower than it is asked';
  const calls: Promise<string | null>[] = [];
  // Where this machine stands still, the connection ends of its silence, and is opened again.
  for (let turn = 0; !errors.includes(tooSlow) && calls.length < 100_000; turn += 1) {
    for (let count = 0; count < 500; count += 1) calls.push(client.commands.get('k').catch(messageOf));
    await calls[turn];
    await nextTurn();
  }
  expect(errors).toContain(tooSlow);
});

test('a reply that comes in pieces is the same', async () => {
  const reply = '*6\r\n$-1\r\n*-1\r\n*0\r\n$0\r\n\r\n*2\r\n:-5\r\n+a\r\n$4\r\n\r\n*9\r\n';
  const dribble = (socket: Socket): void => {
    socket.setNoDelay();
    socket.on('error', () => undefined);
    socket.on('data', async (bytes: Buffer) => {
      const isCall = bytes.toString().includes('nested');
      for (const byte of isCall ? reply : okTo(bytes.toString())) {
        await new Promise((resolve) => socket.write(byte, resolve));
      }
    });
  };
  const server = await closedAtEnd(listenOnLoopback(createServer(dribble)));
  const client = new RedisClient(redisOptions(single(server.port)), {});
  closing.push(() => client.close());
  const value = await client.call((commands) => commands.call('nested'));
  expect(value).toEqual([null, null, [], '', [-5, 'a'], '\r\n*9']);
});

/** Commands of a real Redis, and the errors of their connection. */
async function connected() {
  const redis = await closedAtEnd(startRedis());
  const commands = connectCommands(redisOptions(single(redis.port)), {});
  closing.push(() => ended(commands));
  const errors: Error[] = [];
  commands.on('error', (error: Error) => errors.push(error));
  await new Promise((resolve) => commands.once('ready', resolve));
  return { commands, errors };
}

test('replies that are whole may have any size together', async () => {
  const { commands, errors } = await connected();
  const value = 'a'.repeat(2 ** 20);
  await commands.set('k', value);
  const replies = await Promise.all(
    Array.from({ length: (2 * MAX_REPLY) / value.length }, () => commands.get('k')),
  );
  expect(replies.every((reply) => reply === value)).toBe(true);
  expect(errors).toEqual([]);
});

test('commands of one moment are all answered, however many they are', async () => {
  const value = 'a'.repeat(500);
  for (;;) {
    const { commands, errors } = await connected();
    await commands.set('k', value);
    const gets = Array.from({ length: 17_000 }, () => commands.get('k').catch(messageOf));
    const replies = await Promise.all(gets);
    // Where this machine stands still for a second, the connection ends of its silence: that says nothing.
    if (errors.some(({ message }) => message.startsWith('Socket timeout'))) continue;
    expect(new Set(replies)).toEqual(new Set([value]));
    expect(errors).toEqual([]);
    return;
  }
});
