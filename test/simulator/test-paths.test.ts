import { createHash } from 'node:crypto';
import { Readable } from 'node:stream';
import { describe, expect, test } from '@jest/globals';
import { answer } from '../support/digest-client.ts';
import { openSession, type Session, user } from './session.ts';

const sha256 = (body: Buffer | string) => createHash('sha256').update(body).digest('hex');

async function authorized({ challenge }: Session, method: string, target: string) {
  return { authorization: answer(await challenge(target), { method, target, ...user }) };
}

test('/echo says what arrived, byte for byte', async () => {
  const { challenge, answered } = await openSession();
  const target = "/echo?x=%27a%27&y='b'&z=%c3";
  const body = 'a body with ü';
  const seen = await answered(
    await challenge(target),
    { target, method: 'PUT' },
    { method: 'PUT', body, headers: { 'X-One': 'two' } },
  );
  const told = JSON.parse(seen.body.toString());
  expect(seen.status).toBe(200);
  expect(told).toMatchObject({
    method: 'PUT',
    url: target,
    body: { length: Buffer.byteLength(body), sha256: sha256(body) },
  });
  expect(told.rawHeaders.join()).toContain('X-One,two');
});

test('/echo takes a chunked body', async () => {
  const session = await openSession();
  const headers = await authorized(session, 'POST', '/echo');
  const body = Readable.from(['one ', 'two ', 'three']);
  const seen = await session.pool.request({ path: '/echo', method: 'POST', headers, body });
  expect(await seen.body.json()).toMatchObject({ body: { length: 13, sha256: sha256('one two three') } });
});

describe('/bytes/N', () => {
  test('has a Content-Length', async () => {
    const { challenge, answered } = await openSession();
    for (const length of [0, 1, 65_536, 200_001]) {
      const seen = await answered(await challenge(), { target: `/bytes/${length}` });
      expect(seen.headers['content-length']).toBe(String(length));
      expect(seen.body).toHaveLength(length);
    }
    expect((await answered(await challenge(), { target: '/bytes/-1' })).status).toBe(400);
  });

  test('chunked, it ends with a checksum as trailer', async () => {
    const { challenge, answered } = await openSession();
    const seen = await answered(await challenge(), { target: '/bytes/100000?chunked' });
    expect(seen.headers).not.toHaveProperty('content-length');
    expect(seen.headers['trailer']).toBe('X-Checksum');
    expect(seen.body).toHaveLength(100_000);
    expect(seen.trailers).toEqual({ 'x-checksum': sha256(seen.body) });
  });

  test('a client that leaves is counted', async () => {
    const session = await openSession();
    const target = '/bytes/200000000';
    const headers = await authorized(session, 'GET', target);
    const { body } = await session.pool.request({ path: target, method: 'GET', headers });
    body.on('error', () => {});
    body.destroy();
    while (session.simulator.counts('submissions').aborted === 0) {
      await new Promise((resolve) => setImmediate(resolve));
    }
    expect((await session.ask(target)).status).toBe(401);
  });
});

test.each([
  [200, 11],
  [204, 0],
  [205, 0],
  [304, 0],
  [401, 11],
  [418, 11],
  [503, 11],
])('/status/%i has %i bytes', async (status, length) => {
  const { challenge, answered } = await openSession();
  const seen = await answered(await challenge(), { target: `/status/${status}` });
  expect([seen.status, seen.body.length]).toEqual([status, length]);
});

test('/status/199 and /nothing are refused', async () => {
  const { challenge, answered } = await openSession();
  expect((await answered(await challenge(), { target: '/status/199' })).status).toBe(400);
  expect((await answered(await challenge(), { target: '/nothing' })).status).toBe(404);
});

test('/early-hints sends 103 first', async () => {
  const session = await openSession();
  const headers = await authorized(session, 'GET', '/early-hints');
  const early: unknown[] = [];
  const seen = await session.pool.request({
    path: '/early-hints',
    method: 'GET',
    headers,
    onInfo: (info) => early.push(info),
  });
  expect(await seen.body.text()).toBe('after 103\n');
  expect(early).toEqual([{ statusCode: 103, headers: { link: '</style.css>; rel=preload' } }]);
});

test('/headers sends what it is asked for', async () => {
  const { challenge, answered } = await openSession();
  const target = '/headers?X-One=1&Set-Cookie=a%3D1&Set-Cookie=b%3D2';
  const seen = await answered(await challenge(), { target });
  expect(seen.headers).toMatchObject({ 'x-one': '1', 'set-cookie': ['a=1', 'b=2'] });
  expect((await answered(await challenge(), { target: '/headers?X=%0A' })).status).toBe(500);
});
