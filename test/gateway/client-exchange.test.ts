import { once } from 'node:events';
import type { Socket } from 'node:net';
import { Duplex } from 'node:stream';
import { afterEach, beforeEach, expect, jest, test } from '@jest/globals';
import { ClientExchange } from '../../src/gateway/client-exchange.ts';
import { ClientResponse } from '../../src/gateway/client-response.ts';
import { requestHead } from '../../src/gateway/request-reader.ts';

beforeEach(() => void jest.useFakeTimers({ doNotFake: ['nextTick', 'setImmediate', 'queueMicrotask'] }));
afterEach(() => void jest.useRealTimers());

/** The connection of a client that sends no more, and reads what was written to it with `readAll`. */
class StalledSocket extends Duplex {
  readonly bytesRead = 0;
  readonly bytesWritten = 0;
  readAll: () => void = () => {};

  override _read(): void {}

  override _write(_piece: Buffer, _encoding: string, onWritten: () => void): void {
    this.readAll = onWritten;
  }
}

/** An exchange whose client stopped in its body, and whose response has been written. */
function earlyResponse(): { readonly socket: StalledSocket; readonly left: Promise<void> | undefined } {
  const socket = new StalledSocket();
  const head = requestHead('POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n');
  const response = new ClientResponse(socket as unknown as Socket, head, '', () => {
    response.isFinished = true;
    exchange.leave();
  });
  const owner = { address: '', resume() {}, refuseRest() {}, discardBody() {} };
  const exchange = new ClientExchange(socket as unknown as Socket, head, response, owner);
  response.begin(403, 'Forbidden', 'Content-Length: 0\r\n', true);
  response.end(undefined, []);
  return { socket, left: exchange.left() };
}

test('the rest of a body has 2 s to come from when the client has read the early response', async () => {
  const { socket, left } = earlyResponse();
  jest.advanceTimersByTime(20_000);
  expect(socket.destroyed).toBe(false);
  // The head, and behind it the mark of the end.
  for (let written = socket.writableLength; written > 0; written = socket.writableLength) {
    socket.readAll();
    await new Promise(setImmediate);
  }
  socket.readAll();
  await left;
  jest.advanceTimersByTime(1_500);
  expect(socket.destroyed).toBe(false);
  jest.advanceTimersByTime(1_000);
  expect(socket.destroyed).toBe(true);
  await once(socket, 'close');
  expect(jest.getTimerCount()).toBe(0);
});

test('a client that reads nothing of an early response loses its connection after timeouts.idle', () => {
  const { socket } = earlyResponse();
  jest.advanceTimersByTime(30_000);
  expect(socket.destroyed).toBe(true);
});
