import { createHash } from 'node:crypto';
import { afterEach, describe, expect, test } from '@jest/globals';
import type { ReloadResult } from '../../src/control/actions.ts';
import { until } from '../support/until.ts';
import { type RunningControl, startControl } from './console-source.ts';

const token = 'a-long-random-token';
const tokenSha256 = createHash('sha256').update(token).digest('hex');
const authorization = `Bearer ${token}`;
const done: ReloadResult = {
  result: 'success',
  changed: ['deployments.submissions'],
  needsRestart: ['listen.port'],
  warnings: [],
};

let control: RunningControl | undefined;
afterEach(() => control?.close());

interface Scene {
  /** Addresses of the clients whose request was granted. */
  readonly asked: string[];
  post(headers?: Record<string, string>, method?: string): Promise<Response>;
  readonly origin: string;
}

async function start(
  result: ReloadResult | Promise<ReloadResult> = done,
  hash: string | null = tokenSha256,
): Promise<Scene> {
  const asked: string[] = [];
  const reload = async (address: string) => {
    asked.push(address);
    return result;
  };
  control = await startControl({ reload, tokenSha256: hash ?? undefined });
  const { origin } = control;
  return {
    asked,
    origin,
    post: (headers = {}, method = 'POST') => fetch(`${origin}/api/reload`, { method, headers }),
  };
}

/** Status, media type and content of a response. */
async function contentOf(response: Response): Promise<unknown[]> {
  return [response.status, response.headers.get('content-type'), await response.json()];
}

describe('POST /api/reload', () => {
  test('reloads for the token, and tells what changed', async () => {
    const { post, asked } = await start();
    expect(await contentOf(await post({ authorization }))).toEqual([
      200,
      'application/json; charset=utf-8',
      done,
    ]);
    expect(asked).toEqual(['127.0.0.1']);
  });

  test('tells why a configuration is refused', async () => {
    const issue = { file: 'gateway.yaml', line: 3, column: 5, path: 'listen.port', message: 'is no port' };
    const { post } = await start({
      result: 'failure',
      status: 422,
      reason: 'gateway.yaml:3:5 listen.port: is no port',
      issues: Array.from({ length: 200 }, () => issue),
    });
    expect(await contentOf(await post({ authorization }))).toEqual([
      422,
      'application/problem+json; charset=utf-8',
      {
        status: 422,
        title: 'Unprocessable Entity',
        detail: 'gateway.yaml:3:5 listen.port: is no port',
        issues: Array.from({ length: 100 }, () => issue),
      },
    ]);
  });

  test('tells why no reload is possible', async () => {
    const { post } = await start({ result: 'failure', status: 409, reason: 'is shutting down', issues: [] });
    expect(await contentOf(await post({ authorization }))).toEqual([
      409,
      'application/problem+json; charset=utf-8',
      { status: 409, title: 'Conflict', detail: 'is shutting down' },
    ]);
  });

  test('is refused without a configured token', async () => {
    const { post, asked } = await start(done, null);
    expect((await post()).status).toBe(403);
    expect((await post({ authorization })).status).toBe(403);
    expect(asked).toEqual([]);
  });

  test('needs the token itself: a session or nothing does not do', async () => {
    const { post, asked, origin } = await start();
    const login = await fetch(`${origin}/login`, {
      method: 'POST',
      body: new URLSearchParams({ token }),
      redirect: 'manual',
    });
    const [cookie = ''] = login.headers.get('set-cookie')?.split(';') ?? [];
    expect((await fetch(`${origin}/metrics`, { headers: { cookie } })).status).toBe(200);
    for (const headers of [
      {},
      { cookie },
      { authorization: 'Bearer wrong' },
      { cookie, authorization: 'x' },
    ]) {
      const { status } = await post(headers as Record<string, string>);
      expect([headers, status]).toEqual([headers, 401]);
    }
    expect(asked).toEqual([]);
  });

  test('wrong tokens are slowed down', async () => {
    const { post } = await start();
    const statuses: number[] = [];
    for (let guess = 0; guess < 11; guess += 1) {
      statuses.push((await post({ authorization: `Bearer ${guess}` })).status);
    }
    expect(statuses).toEqual([...Array(10).fill(401), 429]);
  });

  test.each([
    [{ 'sec-fetch-site': 'cross-site' }],
    [{ 'sec-fetch-site': 'same-site' }],
    [{ origin: 'https://elsewhere.example' }],
    [{ origin: 'null' }],
    [{ origin: 'https://elsewhere.example', 'sec-fetch-site': 'same-origin' }],
  ])('is refused to a page of another site: %j', async (headers) => {
    const { post, asked } = await start();
    const response = await post({ authorization, ...(headers as Record<string, string>) });
    expect(await contentOf(response)).toEqual([
      403,
      'application/problem+json; charset=utf-8',
      expect.objectContaining({ code: 'cross-site' }),
    ]);
    expect(response.headers.get('access-control-allow-origin')).toBeNull();
    expect(asked).toEqual([]);
  });

  test('is granted to a page of its own', async () => {
    const { post, origin, asked } = await start();
    expect((await post({ authorization, origin, 'sec-fetch-site': 'same-origin' })).status).toBe(200);
    expect((await post({ authorization, 'sec-fetch-site': 'none' })).status).toBe(200);
    expect(asked).toHaveLength(2);
  });

  test.each(['GET', 'PUT', 'OPTIONS'])('%s is no reload', async (method) => {
    const { post, asked } = await start();
    const response = await post({ authorization }, method);
    expect([response.status, response.headers.get('allow')]).toEqual([405, 'POST']);
    expect(asked).toEqual([]);
  });

  test('few wait at the same time', async () => {
    const { promise, resolve } = Promise.withResolvers<ReloadResult>();
    const { post, asked } = await start(promise);
    const waiting = Array.from({ length: 8 }, () => post({ authorization }));
    await until(() => asked.length === 8);
    const refused = await post({ authorization });
    expect([refused.status, refused.headers.get('retry-after')]).toEqual([429, '5']);
    resolve(done);
    expect((await Promise.all(waiting)).map(({ status }) => status)).toEqual(Array(8).fill(200));
    expect((await post({ authorization })).status).toBe(200);
  });
});
