import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { get, type IncomingMessage } from 'node:http';
import { setImmediate } from 'node:timers/promises';
import { afterEach, describe, expect, test } from '@jest/globals';
import type { GatewayState } from '../../src/control/state.ts';
import { NO_QUERIES, startControl } from './console-source.ts';

const token = 'a-long-random-token';
let close: (() => Promise<void>) | undefined;

afterEach(() => close?.());

async function start(state: Partial<GatewayState> = {}, tokenSha256?: string): Promise<string> {
  const live = (): boolean => state.serves !== false;
  const control = await startControl({ tokenSha256, live, console: { state: () => state } });
  close = () => control.close();
  return control.origin;
}

describe('health', () => {
  test.each([
    [{ storeUp: true }, 'ok', 200],
    [{ storeUp: false }, 'degraded', 200],
    [{ serves: false, storeUp: true }, 'down', 503],
    [{ serves: false, storeUp: false }, 'down', 503],
  ] as const)('readiness of %j is %s and answers %d with every check', async (state, status, wanted) => {
    const answer = await fetch(`${await start(state)}/readyz`);
    const store = state.storeUp
      ? { detail: '' }
      : {
          detail: expect.stringContaining('Redis is unreachable'),
          state: status,
          next: expect.stringContaining('under redis'),
        };
    expect([answer.status, await answer.json()]).toEqual([
      wanted,
      {
        status,
        checks: [
          { name: 'data-plane', ok: true, detail: '' },
          { name: 'configuration', ok: true, detail: '' },
          { name: 'store', ok: state.storeUp, ...store },
          { name: 'audit', ok: true, detail: '' },
        ],
      },
    ]);
  });

  test('readiness tells people a line for each check', async () => {
    const origin = await start({ storeUp: false });
    const answer = await fetch(`${origin}/readyz?verbose`);
    expect([answer.status, answer.headers.get('content-type')]).toEqual([200, 'text/plain; charset=utf-8']);
    expect(await answer.text()).toBe(
      [
        'ok        data-plane',
        'ok        configuration',
        'degraded  store: Redis is unreachable: nonces are not shared with other replicas',
        '          -> check that Redis runs, and run doctor: it tests address, TLS and password under redis; changed ones need a restart',
        'ok        audit',
        'degraded\n',
      ].join('\n'),
    );
    await close?.();
    const down = await start({ serves: false, storeUp: false });
    expect((await fetch(`${down}/readyz?verbose`)).status).toBe(503);
  });

  test('those who ask for readiness at the same time share one look at the workers', async () => {
    let [looks, most] = [0, 0];
    const state = async (): Promise<Partial<GatewayState>> => {
      looks += 1;
      most = Math.max(most, looks);
      for (let turn = 0; turn < 5; turn += 1) await setImmediate();
      looks -= 1;
      return {};
    };
    const control = await startControl({ console: { state } });
    close = () => control.close();
    const answers = await Promise.all(Array.from({ length: 20 }, () => fetch(`${control.origin}/readyz`)));
    expect(answers.map(({ status }) => status)).toEqual(Array(20).fill(200));
    expect(most).toBe(1);
  });

  test('liveness follows the planes', async () => {
    expect((await fetch(`${await start()}/livez`)).status).toBe(200);
    await close?.();
    expect((await fetch(`${await start({ serves: false })}/livez`)).status).toBe(503);
  });
});

test('metrics are in the format of Prometheus, under the names of the contract', async () => {
  const answer = await fetch(`${await start()}/metrics`);
  expect(answer.headers.get('content-type')).toMatch(/^text\/plain; version=0\.0\.4/);
  const text = await answer.text();
  expect(text).toContain('digest_gateway_build_info{version="test",node="v0"} 1');
  for (const name of [
    'requests_total',
    'request_duration_seconds',
    'upstream_duration_seconds',
    'requests_in_flight',
    'request_bytes_total',
    'response_bytes_total',
    'upstream_attempts_total',
    'challenges_total',
    'config_reloads_total',
  ]) {
    expect(text).toContain(`# TYPE digest_gateway_${name} `);
  }
});

test('the description of the API is JSON and names the version', async () => {
  const answer = await fetch(`${await start()}/openapi.json`);
  expect(answer.headers.get('content-type')).toMatch(/^application\/json/);
  expect(await answer.json()).toMatchObject({ openapi: '3.1.0', info: { version: '1.2.3' } });
});

test('a flight record, which stops the workers for a moment, is read once in ten seconds', async () => {
  const clock = { time: 0, now: () => clock.time };
  let records = 0;
  const flightRecord = async () => {
    records += 1;
    return '{}\n';
  };
  const control = await startControl({ clock, queries: { ...NO_QUERIES, flightRecord } });
  close = () => control.close();
  const read = async () => {
    const response = await fetch(`${control.origin}/api/flight-record`);
    const code = /"code":"([a-z-]+)"/.exec(await response.text())?.[1];
    return [response.status, code, response.headers.get('retry-after')];
  };
  const refused = [429, 'flight-record-pending', '10'];
  const statuses = await Promise.all([read(), read(), read()]);
  expect(statuses.sort()).toEqual([[200, undefined, null], refused, refused]);
  clock.time = 9_999;
  expect(await read()).toEqual(refused);
  clock.time = 10_000;
  expect(await read()).toEqual([200, undefined, null]);
  expect(records).toBe(2);
});

test('helmet guards every answer, and nothing names the framework', async () => {
  const { headers, status } = await fetch(`${await start()}/nothing`);
  expect(status).toBe(404);
  expect(headers.get('x-powered-by')).toBeNull();
  expect(headers.get('content-security-policy')).toContain("default-src 'none'");
  expect(headers.get('x-content-type-options')).toBe('nosniff');
});

test('with a token, metrics need it and health does not', async () => {
  const origin = await start({}, createHash('sha256').update(token).digest('hex'));
  const ask = (authorization?: string) =>
    fetch(`${origin}/metrics`, authorization === undefined ? {} : { headers: { authorization } });
  expect((await ask()).status).toBe(401);
  expect((await ask('Bearer wrong')).status).toBe(401);
  expect((await fetch(`${origin}/openapi.json`)).status).toBe(401);
  expect((await ask(`Basic ${token}`)).status).toBe(401);
  expect((await ask(`Bearer ${token}`)).status).toBe(200);
  expect((await fetch(`${origin}/readyz`)).status).toBe(200);
  expect((await fetch(`${origin}/livez`)).status).toBe(200);
});

test.each([
  '/api/configuration',
  '/api/clients/reporting',
  '/openapi.json',
  '/metrics',
  '/api/snapshot',
  '/login',
])('no browser keeps %s', async (path) => {
  const origin = await start({}, createHash('sha256').update(token).digest('hex'));
  const response = await fetch(`${origin}${path}`, { headers: { authorization: `Bearer ${token}` } });
  await response.arrayBuffer();
  expect(response.headers.get('cache-control')).toBe('no-store');
});

test.each(['/api/flight-record', '/api/audit/export', '/api/events', '/metrics'])(
  'without a token, a page of another site makes no browser ask for %s',
  async (path) => {
    const origin = await start();
    const ofPage = { 'sec-fetch-site': 'cross-site', 'sec-fetch-mode': 'no-cors' };
    const response = await fetch(`${origin}${path}`, { headers: ofPage });
    expect([response.status, await response.json()]).toEqual([
      403,
      expect.objectContaining({ code: 'cross-site' }),
    ]);
  },
);

/** The status of a navigation that another site began. `fetch` has a mode of its own. */
async function navigated(url: string, as: Record<string, string>): Promise<number | undefined> {
  const headers = { 'sec-fetch-site': 'cross-site', 'sec-fetch-mode': 'navigate', ...as };
  const [response] = (await once(get(url, { headers }), 'response')) as [IncomingMessage];
  return response.resume().statusCode;
}

test('without a token, a link from another site opens the console and what it shows', async () => {
  const origin = await start();
  const link = { 'sec-fetch-dest': 'document', 'sec-fetch-user': '?1' };
  for (const path of ['/metrics', '/api/snapshot'])
    expect(await navigated(`${origin}${path}`, link)).toBe(200);
});

test.each([
  ['a frame', { 'sec-fetch-dest': 'iframe' }],
  ['a frame, after a click', { 'sec-fetch-dest': 'iframe', 'sec-fetch-user': '?1' }],
  ['itself, without a click', { 'sec-fetch-dest': 'document' }],
])('without a token, a page of another site takes no data by navigating %s', async (_of, as) => {
  const origin = await start();
  for (const path of ['/api/flight-record', '/api/audit/export', '/metrics'])
    expect(await navigated(`${origin}${path}`, as)).toBe(403);
});
