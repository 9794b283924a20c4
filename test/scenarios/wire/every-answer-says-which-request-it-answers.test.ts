import { describe, expect, test } from '@jest/globals';
import { type RawAnswer, valuesOf } from '../../support/raw-answer.ts';
import { useWire } from '../../support/wire.ts';

const wire = useWire({ settings: { body: { replayUpTo: 8, max: 16 } } });
const UUID = /^[\da-f-]{36}$/;

describe.each([
  ['GET /echo HTTP/1.1\r\nHost: x\r\n', 200, undefined],
  ['GET /echo HTTP/1.0\r\n', 200, undefined],
  ['GET /echo HTTP/1.1\r\nHost: x\r\nExpect: magic\r\n', 200, undefined],
  ['GET /nothing HTTP/1.1\r\nHost: x\r\n', 404, undefined],
  ['GET http://nowhere.example/ HTTP/1.1\r\nHost: x\r\n', 404, 'no-deployment'],
  ['HEAD http://nowhere.example/ HTTP/1.1\r\nHost: x\r\n', 404, 'no-deployment'],
  ['POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 17\r\n', 413, 'body-too-large'],
  ['POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 17\r\nExpect: 100-continue\r\n', 413, 'body-too-large'],
  ['OPTIONS * HTTP/1.1\r\nHost: x\r\n', 400, 'bad-request'],
  ['GET /echo HTTP/1.1\r\n', 400, 'bad-request'],
  ['CONNECT upstream.example:443 HTTP/1.1\r\nHost: x\r\n', 405, 'connect-unsupported'],
] as const)('the answer to %j', (head, status, code) => {
  test('has the id that the client sent', async () => {
    const answer = await wire.ask(`${head}X-Request-Id: of-the-client.1\r\n\r\n`);
    expect(valuesOf(answer, 'x-request-id')).toEqual(['of-the-client.1']);
    expectKind(answer, head, status, code);
  });

  test.each(['', 'X-Request-Id: a b\r\n', 'X-Request-Id: a\r\nX-Request-Id: b\r\n'])(
    'has one of the gateway when the client sent %j',
    async (line) => {
      const answer = await wire.ask(`${head}${line}\r\n`);
      expect(valuesOf(answer, 'x-request-id')).toEqual([expect.stringMatching(UUID)]);
      expectKind(answer, head, status, code);
    },
  );
});

/** Only a refusal of the gateway itself is a problem, and names the id in its body too. */
function expectKind(answer: RawAnswer, head: string, status: number, code: string | undefined): void {
  expect(answer.status).toBe(status);
  expect(valuesOf(answer, 'proxy-status')).toHaveLength(code === undefined ? 0 : 1);
  if (code === undefined || head.startsWith('HEAD')) return;
  const [requestId] = valuesOf(answer, 'x-request-id');
  expect(JSON.parse(answer.body.toString())).toMatchObject({ status, code, requestId });
}
