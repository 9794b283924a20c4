import { execFile } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { beforeEach, describe, expect, test } from '@jest/globals';
import { valuesOf } from '../../support/raw-answer.ts';
import { startGateway } from '../../support/running-gateway.ts';
import { codeOf, echoOf, useClients, useWire } from '../../support/wire.ts';

const run = promisify(execFile);
const wire = useWire({ settings: { body: { replayUpTo: '64KiB', max: '1MiB' } } });
const connect = useClients();
const LARGE = 200_000;

beforeEach(() => wire.simulator.reset('submissions'));

const headOf = (length: number | string, target = '/echo', version = '1.1') =>
  `POST ${target} HTTP/${version}\r\nHost: x\r\nExpect: 100-continue\r\n${
    typeof length === 'string' ? length : `Content-Length: ${length}`
  }\r\n\r\n`;

describe('100 comes, once, before the answer', () => {
  test.each([
    ['to a small body', 5],
    ['to a large body', LARGE],
  ])('%s', async (_what, length) => {
    const client = await wire.connect();
    await client.send(headOf(length));
    expect(await client.answer()).toMatchObject({ status: 100, headers: [] });
    await client.send(Buffer.alloc(length, 'x'));
    expect(echoOf(await client.answer()).body.length).toBe(length);
    // The body of a small one was sent twice, as the first try met a challenge.
    expect(wire.simulator.counts('submissions')).toMatchObject({ challenges: 1, accepted: 1 });
    await client.send('GET /echo HTTP/1.1\r\nHost: x\r\n\r\n');
    expect(echoOf(await client.answer()).url).toBe('/echo');
  });

  test('to a chunked one', async () => {
    const client = await wire.connect();
    await client.send(headOf('Transfer-Encoding: chunked'));
    expect((await client.answer()).status).toBe(100);
    await client.send('5\r\nhello\r\n0\r\n\r\n');
    expect(echoOf(await client.answer()).body.length).toBe(5);
  });

  test('to a client that does not wait', async () => {
    const client = await wire.connect();
    await client.send(headOf(5), 'hello');
    expect((await client.answer()).status).toBe(100);
    expect(echoOf(await client.answer()).body.length).toBe(5);
  });

  test('only once the challenge is there, when the body can be sent once', async () => {
    const client = await wire.connect();
    await client.send(headOf(LARGE));
    await client.answer();
    expect(wire.simulator.counts('submissions').challenges).toBe(1);
  });
});

describe('no 100 comes', () => {
  /** The one answer, and the end of the connection. */
  async function refusal(head: string, port = wire.gateway.port) {
    const client = await connect(port);
    await client.send(head);
    const answer = await client.answer();
    expect(valuesOf(answer, 'connection')).toEqual(['close']);
    expect((await client.end()).toString()).toBe('');
    return [answer.status, codeOf(answer)];
  }

  test('to a body that is too large', async () => {
    expect(await refusal(headOf(2 ** 20 + 1))).toEqual([413, 'body-too-large']);
    expect(wire.simulator.counts('submissions').requests).toBe(0);
  });

  test('to a request that goes nowhere', async () => {
    expect(await refusal(headOf(5, 'http://nowhere.example/'))).toEqual([404, 'no-deployment']);
  });

  test('to a large body that the upstream will never see', async () => {
    const gateway = await startGateway({ gone: { origin: 'https://127.0.0.1:1' } });
    try {
      expect(await refusal(headOf(2_000_000), gateway.port)).toEqual([502, 'upstream-unreachable']);
    } finally {
      await gateway.close();
    }
  });

  test('to HTTP/1.0, which does not know it', async () => {
    const client = await wire.connect();
    await client.send(headOf(5, '/echo', '1.0'), 'hello');
    expect(echoOf(await client.answer()).body.length).toBe(5);
  });

  test('to a request without a body', async () => {
    const answer = await wire.ask('GET /echo HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n\r\n');
    expect(echoOf(answer).url).toBe('/echo');
  });
});

describe('curl, which waits a second for it,', () => {
  test('sends its body at once when it is wanted, and not at all when it is not', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'upload-'));
    try {
      const file = join(folder, 'body');
      const args = ['-sS', '--max-time', '20', '-H', 'Expect: 100-continue', '--expect100-timeout', '15'];
      const ask = async (length: number) => {
        await writeFile(file, Buffer.alloc(length, 'x'));
        const format = '%{stderr}%{http_code} %{size_upload}';
        const url = `${wire.gateway.origin}/echo`;
        const { stderr } = await run('curl', [...args, '--data-binary', `@${file}`, '-w', format, url]);
        return stderr;
      };
      const begun = performance.now();
      expect(await ask(LARGE)).toBe(`200 ${LARGE}`);
      expect(await ask(2_000_000)).toBe('413 0');
      expect(performance.now() - begun).toBeLessThan(10_000);
    } finally {
      await rm(folder, { recursive: true });
    }
  });
});
