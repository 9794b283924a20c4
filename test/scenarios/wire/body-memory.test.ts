import { createHash } from 'node:crypto';
import { expect, test } from '@jest/globals';
import type { BehaviourChange } from '../../../src/simulator/settings.ts';
import { BodyMemory, BodyShare } from '../../../src/upstream/body.ts';
import type { RawClient } from '../../support/raw-client.ts';
import { type Pair, startPair } from '../../support/simulated-pair.ts';
import { until } from '../../support/until.ts';
import { codeOf, echoOf, useClients } from '../../support/wire.ts';

const SIZE = 60 * 1024;
const BODY = Buffer.alloc(SIZE, 'a body that is to be kept ');
const SHA256 = createHash('sha256').update(BODY).digest('hex');
const HEAD = `POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: ${SIZE}\r\n\r\n`;

const connect = useClients();

/** A gateway with room for three such bodies, which knows a nonce. */
async function startSmall(behaviour: BehaviourChange = {}): Promise<Pair> {
  const pair = await startPair(behaviour, {
    settings: { connections: 4, body: { replayUpTo: '64KiB' } },
    top: { listen: { port: 0, limits: { bodyMemory: '200KiB' } } },
  });
  expect((await pair.get('/echo')).status).toBe(200);
  return pair;
}

/** A client that has sent all of its body but the last byte; resolves when the gateway has read it. */
async function sendMost({ gateway }: Pair): Promise<RawClient> {
  const read = () => gateway.metric('digest_gateway_request_bytes_total');
  const before = await read();
  const client = await connect(gateway.port);
  await client.send(HEAD, BODY.subarray(1));
  await until(async () => (await read()) === before + SIZE - 1);
  return client;
}

/** How many exchanges one whole request takes: one if its body was kept, and two if a challenge was asked for first. */
async function exchangesOfOne(pair: Pair): Promise<number> {
  const { requests } = pair.simulator.counts('submissions');
  const client = await connect(pair.gateway.port);
  await client.send(HEAD, BODY);
  expect(echoOf(await client.answer()).body).toEqual({ length: SIZE, sha256: SHA256 });
  return pair.simulator.counts('submissions').requests - requests;
}

test('streams bodies for which there is no memory, over half of the connections; the others are refused', async () => {
  const pair = await startSmall();
  const sending: RawClient[] = [];
  for (let index = 0; index < 5; index += 1) sending.push(await sendMost(pair));
  for (let index = 0; index < 3; index += 1) {
    const refused = await connect(pair.gateway.port);
    await refused.send(HEAD, BODY.subarray(1));
    const answer = await refused.answer();
    expect([answer.status, codeOf(answer)]).toEqual([503, 'overloaded']);
    expect(answer.body.toString()).toContain('listen.limits.bodyMemory');
  }
  expect((await pair.get('/echo')).status).toBe(200);
  for (const client of sending) await client.send(BODY.subarray(0, 1));
  for (const client of sending) {
    const { length, sha256 } = echoOf(await client.answer()).body;
    const sent = Buffer.concat([BODY.subarray(1), BODY.subarray(0, 1)]);
    expect([length, sha256]).toEqual([SIZE, createHash('sha256').update(sent).digest('hex')]);
  }
  expect(await exchangesOfOne(pair)).toBe(1);
});

test('frees the memory of a client that leaves before its body is whole', async () => {
  const pair = await startSmall();
  for (let index = 1; index <= 12; index += 1) {
    (await sendMost(pair)).close();
    await until(
      async () =>
        (await pair.gateway.metric('digest_gateway_requests_total', { code: 'client-closed' })) === index,
    );
  }
  expect(await exchangesOfOne(pair)).toBe(1);
});

test('frees the memory of bodies that turned out too large', async () => {
  const pair = await startPair(
    {},
    {
      settings: { body: { replayUpTo: '64KiB', max: '64KiB' } },
      top: { listen: { port: 0, limits: { bodyMemory: '200KiB' } } },
    },
  );
  expect((await pair.get('/echo')).status).toBe(200);
  const size = (80 * 1024).toString(16);
  for (let index = 0; index < 5; index += 1) {
    const client = await connect(pair.gateway.port);
    const head = 'POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n';
    await client.send(`${head}${size}\r\n`, Buffer.alloc(80 * 1024), '\r\n0\r\n\r\n');
    expect(codeOf(await client.answer())).toBe('body-too-large');
  }
  expect(await exchangesOfOne(pair)).toBe(1);
});

test('refuses a body for which there is no memory when the upstream wants it protected (auth-int)', async () => {
  const pair = await startSmall({ qop: 'auth-int' });
  const sending: RawClient[] = [];
  for (let index = 0; index < 3; index += 1) sending.push(await sendMost(pair));
  const client = await connect(pair.gateway.port);
  await client.send(HEAD, BODY);
  const answer = await client.answer();
  expect([answer.status, codeOf(answer)]).toEqual([503, 'overloaded']);
  for (const each of sending) each.close();
});

test('counts a body that comes byte by byte for what its pieces take', async () => {
  const memory = new BodyMemory(100_000);
  const share = new BodyShare(memory);
  let pieces = 0;
  while (share.keep(Buffer.alloc(1))) pieces += 1;
  expect(pieces).toBeLessThan(200);
  share.release();
  share.release();
  expect([memory.used, share.keep(Buffer.alloc(1))]).toEqual([0, false]);
});
