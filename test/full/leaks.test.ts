import { once } from 'node:events';
import { connect } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import { expect, test } from '@jest/globals';
import { COUNTS, startLeakScene } from './leak-scene.ts';

const REQUESTS = 1_000;
const WARM_UP = 300;
const SETTLE_MS = 120_000;
/** A small run cannot tell a leak from code that is compiled; lab/bench/leaks.ts can. */
const HEAP_GROWTH = 16 * 2 ** 20;
const LIMIT_MS = 600_000;
const BROKEN_OFF = 20;
const RESPONSE_MS = 100;
const HEAD = 'Host: gateway\r\nContent-Length: 1000\r\n\r\npart of it';
/** Messages that do not end, or end badly. */
const UNFINISHED = [
  `POST /nowhere HTTP/1.1\r\n${HEAD}`,
  `POST /plain/echo HTTP/1.1\r\n${HEAD}`,
  `POST /plain/echo HTTP/1.0\r\n${HEAD}`,
  'POST /plain/echo HTTP/1.1\r\nHost: gateway\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nchunk\r\nno size\r\n',
  'GET /plain/echo HTTP/1.1\r\nHost: gateway\r\nExpect: 100-continue\r\n\r\nno request\r\n\r\n',
  'no request\r\n\r\n',
];

/** Sends a message and breaks the connection off, at once or as soon as something of the response has come. */
async function breakOff(port: number, message: string, waits: boolean): Promise<void> {
  const socket = connect(port, '127.0.0.1').on('error', () => {});
  await once(socket, 'connect');
  await new Promise((resolve) => socket.write(message, resolve));
  // A message that does not end may have no response.
  if (waits) await Promise.race([once(socket, 'data'), once(socket, 'close'), delay(RESPONSE_MS)]);
  socket.resetAndDestroy();
}

test(
  'holds no more sockets, timers, promises and requests after aborts, resets, timeouts and stale nonces than before',
  async () => {
    await using scene = await startLeakScene(1);
    await scene.mix.run(WARM_UP);
    const before = await scene.settled();
    await scene.mix.run(REQUESTS);
    const after = await scene.settledAs(before, SETTLE_MS);
    const counts = (held: typeof before) => COUNTS.map((name) => [name, held[name]]);
    expect(counts(after)).toEqual(counts(before));
    expect(after).toMatchObject({ inFlight: 0, connected: 0, running: 0, pending: 0 });
    expect(after.heap - before.heap).toBeLessThan(HEAP_GROWTH);
    expect(scene.mix.seen.filter(([outcome]) => outcome.endsWith('(unexpected)'))).toEqual([]);
    expect(await scene.stale()).toBeGreaterThan(0);
  },
  LIMIT_MS,
);

test(
  'holds nothing of connections that were broken off in a request',
  async () => {
    await using scene = await startLeakScene(1);
    const breakAll = async (times: number): Promise<void> => {
      for (let time = 0; time < times; time += 1) {
        await Promise.all(UNFINISHED.map((message) => breakOff(scene.port, message, time % 2 === 0)));
      }
    };
    await breakAll(4);
    const before = await scene.settled();
    await breakAll(BROKEN_OFF);
    const after = await scene.settledAs(before, SETTLE_MS);
    expect(COUNTS.map((name) => [name, after[name]])).toEqual(COUNTS.map((name) => [name, before[name]]));
  },
  LIMIT_MS,
);
