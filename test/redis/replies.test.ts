import { createRequire } from 'node:module';
import { PassThrough } from 'node:stream';
import { expect, test } from '@jest/globals';

const require = createRequire(import.meta.url);

type Handler = new (connection: object, options: object) => object;

test('ioredis/built/DataHandler is what src/redis/replies.ts extends: another version of ioredis may have moved it', () => {
  const { default: DataHandler }: { default: Handler } = require('ioredis/built/DataHandler');
  const called: string[] = [];
  const command = { name: 'get', args: [], resolve: (reply: unknown) => called.push(String(reply)) };
  class Watched extends DataHandler {
    dispatch(handle: () => void): void {
      called.push('dispatch');
      handle();
    }

    shiftCommand(): unknown {
      called.push('shiftCommand');
      return { command };
    }
  }
  const stream = new PassThrough();
  // Another test of this process may have replaced the class, by one that leaves connections with RESP3 alone.
  new Watched({ stream, options: { protocol: 3 }, condition: {}, status: 'ready' }, {});
  const listeners = stream.listeners('data');
  expect(listeners).toHaveLength(1);
  listeners[0]?.(Buffer.from('$2\r\nOK\r\n'));
  expect(called).toEqual(['dispatch', 'shiftCommand', 'OK']);

  // ioredis looks the class up there for each connection, so that it can be replaced.
  const eventHandler = String(require('ioredis/built/redis/event_handler').connectHandler);
  expect(eventHandler).toContain('new DataHandler_1.default(');
});
