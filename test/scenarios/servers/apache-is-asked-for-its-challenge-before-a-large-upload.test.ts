import { Readable } from 'node:stream';
import { expect, test } from '@jest/globals';
import { startApache } from '../../support/apache.ts';
import { useScenes } from '../../support/gateway-scene.ts';
import { echoOf } from '../../support/real-server.ts';

const setScene = useScenes();
const body = Buffer.alloc(8 << 20, '0123456789');

test('a body too large to be kept is sent once, after a request that asks', async () => {
  const { ask, attempts, stop } = await setScene(startApache(), {
    settings: { body: { replayUpTo: '64KiB', max: '16MiB' } },
  });
  const seen = await ask('/api/upload', { method: 'POST', body });
  expect([seen.status, seen.body]).toEqual([200, echoOf('POST', '/api/upload', body)]);
  expect(await attempts()).toEqual({ challenged: 1, ok: 1 });
  const log = await stop();
  expect(log.map(({ status, method }) => [status, method])).toEqual([
    [401, 'HEAD'],
    [200, 'POST'],
  ]);
});

test('so is one of unknown length', async () => {
  const { ask, stop } = await setScene(startApache(), {
    settings: { body: { replayUpTo: '64KiB', max: '16MiB' } },
  });
  const pieces = Array.from({ length: 8 }, (_, at) => body.subarray(at << 20, (at + 1) << 20));
  const seen = await ask('/api/upload', { method: 'PUT', body: Readable.from(pieces) });
  expect([seen.status, seen.body]).toEqual([200, echoOf('PUT', '/api/upload', body)]);
  expect((await stop()).map(({ status, method }) => [status, method])).toEqual([
    [401, 'HEAD'],
    [200, 'PUT'],
  ]);
});
