import { expect, test } from '@jest/globals';
import { valuesOf } from '../../support/raw-answer.ts';
import { codeOf, useWire } from '../../support/wire.ts';

const wire = useWire();

test.each([
  'TRACE /echo HTTP/1.1\r\nHost: x\r\n\r\n',
  'TRACE /echo HTTP/1.1\r\nHost: x\r\nMax-Forwards: 3\r\n\r\n',
  'TRACE http://127.0.0.1/echo HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n',
  'OPTIONS /echo HTTP/1.1\r\nHost: x\r\nMax-Forwards: 0\r\n\r\n',
])('refuses %j with 405 and does not send it upstream', async (request) => {
  const before = wire.simulator.counts('submissions').requests;
  const answer = await wire.ask(request);
  expect([answer.status, codeOf(answer)]).toEqual([405, 'method-unsupported']);
  expect(valuesOf(answer, 'allow')).toEqual(['GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS']);
  expect(answer.body.toString()).not.toMatch(/nonce|Digest /);
  expect(wire.simulator.counts('submissions').requests).toBe(before);
});

test.each(['trace', 'TRACK'])('takes %s for no HTTP method at all', async (method) => {
  const answer = await wire.ask(`${method} /echo HTTP/1.1\r\nHost: x\r\n\r\n`);
  expect([answer.status, codeOf(answer)]).toEqual([400, 'bad-request']);
});
