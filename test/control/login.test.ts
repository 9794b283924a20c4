import { createHash } from 'node:crypto';
import { afterEach, beforeAll, describe, expect, test } from '@jest/globals';
import { TokenGuard } from '../../src/control/token-guard.ts';
import { accessibilityFaults, builtConsole } from '../support/browser.ts';
import { usePages } from '../support/pages.ts';
import { type RunningControl, startControl } from './console-source.ts';

const token = 'a-long-random-token';
const tokenSha256 = createHash('sha256').update(token).digest('hex');
const GUARDED = ['/metrics', '/openapi.json', '/api/snapshot', '/api/history', '/api/events'];
const openPage = usePages();
let consoleFolder: string;
let control: RunningControl | undefined;

beforeAll(async () => {
  consoleFolder = await builtConsole();
});

afterEach(async () => {
  await control?.close();
});

async function start(): Promise<string> {
  control = await startControl({ tokenSha256, consoleFolder });
  return control.origin;
}

function signIn(origin: string, given: string): Promise<Response> {
  return fetch(`${origin}/login`, {
    method: 'POST',
    body: new URLSearchParams({ token: given }),
    redirect: 'manual',
  });
}

test('the page asks for the token, takes it, and lets go again', async () => {
  const origin = await start();
  const { page, pageErrors } = await openPage({ width: 400, scheme: 'dark' });
  await page.goto(origin);
  expect(page.url()).toBe(`${origin}/login`);
  expect(await accessibilityFaults(page)).toEqual([]);
  expect(pageErrors).toEqual([]);
  await page.getByLabel('Token of the control plane').fill('wrong');
  await page.keyboard.press('Enter');
  await page.getByText('That is not the token.').waitFor();
  await page.getByLabel('Token of the control plane').fill(token);
  await page.keyboard.press('Enter');
  await page.getByText('live', { exact: true }).waitFor();
  await page.getByRole('button', { name: 'Sign out' }).click();
  await page.waitForURL(`${origin}/login`);
  await page.goto(origin);
  expect(page.url()).toBe(`${origin}/login`);
});

test('what the page reads asks for the token, a session, or nothing else', async () => {
  const origin = await start();
  const status = async (path: string, headers: Record<string, string> = {}) => {
    const answer = await fetch(`${origin}${path}`, { headers });
    await answer.body?.cancel();
    return answer.status;
  };
  const cookie = (await signIn(origin, token)).headers.get('set-cookie') ?? '';
  expect(cookie).toMatch(
    /^digest-gateway-session-\d+=[^;]+; Max-Age=43200; Path=\/; .*HttpOnly; SameSite=Strict$/,
  );
  expect(cookie).not.toContain(token);
  const [session = ''] = cookie.split(';');
  for (const path of GUARDED) {
    expect([path, await status(path)]).toEqual([path, 401]);
    expect([path, await status(path, { cookie: `${session}x` })]).toEqual([path, 401]);
    expect([path, await status(path, { cookie: `other=1; ${session}` })]).toEqual([path, 200]);
    expect([path, await status(path, { authorization: `Bearer ${token}` })]).toEqual([path, 200]);
  }
});

test('a sign-in to one gateway does not end that to another one on the same host', async () => {
  const origin = await start();
  const other = await startControl({ tokenSha256, consoleFolder });
  try {
    const { page } = await openPage({ width: 1_000, scheme: 'light' });
    for (const each of [origin, other.origin]) {
      await page.goto(each);
      await page.getByLabel('Token of the control plane').fill(token);
      await page.keyboard.press('Enter');
      await page.getByText('live', { exact: true }).waitFor();
    }
    await page.goto(origin);
    await page.getByText('live', { exact: true }).waitFor();
  } finally {
    await other.close();
  }
});

test('wrong tokens are slowed down, and a session goes on meanwhile', async () => {
  const origin = await start();
  const [session = ''] = (await signIn(origin, token)).headers.get('set-cookie')?.split(';') ?? [];
  const bearer = (given: string) =>
    fetch(`${origin}/metrics`, { headers: { authorization: `Bearer ${given}` } });
  for (let guess = 0; guess < 5; guess += 1) {
    expect((await bearer(`guess-${guess}`)).status).toBe(401);
    expect((await signIn(origin, `guess-${guess}`)).status).toBe(401);
  }
  const refused = await bearer('guess');
  expect(refused.status).toBe(429);
  expect(Number(refused.headers.get('retry-after'))).toBeGreaterThan(0);
  const page = await signIn(origin, 'guess');
  expect([page.status, Number(page.headers.get('retry-after')) > 0]).toEqual([429, true]);
  expect((await fetch(`${origin}/metrics`, { headers: { cookie: session } })).status).toBe(200);
  // Monitoring may share the address of whoever guesses.
  expect((await bearer(token)).status).toBe(200);
  expect((await signIn(origin, token)).status).toBe(303);
});

test('wrong tokens of an address are counted for a minute from the first one', () => {
  const guard = new TokenGuard({ full: tokenSha256 });
  const guesses = (now: number) =>
    Array.from({ length: 11 }, () => guard.tryToken('guess', '192.0.2.1', now));
  const tenWrong = Array.from({ length: 10 }, () => 'wrong');
  expect(guesses(0)).toEqual([...tenWrong, 60]);
  expect(guard.tryToken('guess', '192.0.2.1', 59_001)).toBe(1);
  expect(guard.tryToken(token, '192.0.2.1', 59_001)).toBe('full');
  expect(guesses(60_000)).toEqual([...tenWrong, 60]);
});

test('wrong tokens of all addresses of a /64 count together', () => {
  const guard = new TokenGuard({ full: tokenSha256 });
  const verdicts = Array.from({ length: 11 }, (_, host) =>
    guard.tryToken('guess', `2001:db8:0:1::${host + 1}`, 0),
  );
  expect(verdicts).toEqual([...Array.from({ length: 10 }, () => 'wrong'), 60]);
});

test('the holder of one token leaves room for the consoles of others', async () => {
  const sha256 = (text: string) => createHash('sha256').update(text).digest('hex');
  control = await startControl({ tokenSha256, readTokenSha256: sha256('reading'), consoleFolder });
  const { origin } = control;
  const sessionWith = async (given: string) =>
    (await signIn(origin, given)).headers.get('set-cookie')?.split(';')[0] ?? '';
  const streams: Response[] = [];
  const open = async (cookie: string): Promise<number> => {
    const response = await fetch(`${origin}/api/events`, { headers: { cookie } });
    streams.push(response);
    return response.status;
  };
  const sessions = [await sessionWith('reading'), await sessionWith('reading')];
  const statuses = [];
  for (let at = 0; at < 26; at += 1) statuses.push(await open(sessions[at % 2] ?? ''));
  expect(statuses).toEqual([...Array.from({ length: 25 }, () => 200), 503]);
  expect(await open(await sessionWith(token))).toBe(200);
  await Promise.all(streams.map(({ body }) => body?.cancel()));
});

test('sign-ins and open sessions are counted', async () => {
  const origin = await start();
  const cookies: string[] = [];
  for (const given of [token, token, 'wrong']) {
    const [cookie = ''] = (await signIn(origin, given)).headers.get('set-cookie')?.split(';') ?? [];
    cookies.push(cookie);
  }
  await fetch(`${origin}/logout`, {
    method: 'POST',
    headers: { cookie: cookies[0] ?? '' },
    redirect: 'manual',
  });
  for (let guess = 0; guess < 10; guess += 1) await signIn(origin, `guess-${guess}`);
  const body = new URLSearchParams({ token });
  await fetch(`${origin}/login`, { method: 'POST', body, headers: { 'sec-fetch-site': 'cross-site' } });
  const headers = { authorization: `Bearer ${token}` };
  const lines = (await (await fetch(`${origin}/metrics`, { headers })).text()).split('\n');
  expect(lines.filter((line) => /^digest_gateway_(sign_ins|sessions)/.test(line)).sort()).toEqual([
    'digest_gateway_sessions 1',
    'digest_gateway_sign_ins_total{result="cross-site"} 1',
    'digest_gateway_sign_ins_total{result="ok"} 2',
    'digest_gateway_sign_ins_total{result="token-delayed"} 1',
    'digest_gateway_sign_ins_total{result="token-wrong"} 10',
  ]);
});

test('a form that is no token is refused', async () => {
  const origin = await start();
  const post = (body: string, type = 'application/x-www-form-urlencoded') =>
    fetch(`${origin}/login`, { method: 'POST', body, headers: { 'content-type': type } });
  expect((await post('')).status).toBe(401);
  expect((await post(`token=${token}&token=${token}`)).status).toBe(401);
  expect((await post(JSON.stringify({ token }), 'application/json')).status).toBe(401);
  expect((await post(`token=${'x'.repeat(5000)}`)).status).toBe(413);
});

test('a page of another site signs nobody in, and nobody out', async () => {
  const origin = await start();
  const post = async (path: string, headers: Record<string, string>) => {
    const body = new URLSearchParams({ token });
    const response = await fetch(`${origin}${path}`, { method: 'POST', body, headers, redirect: 'manual' });
    await response.body?.cancel();
    return [response.status, response.headers.get('set-cookie') !== null];
  };
  const foreign: Record<string, string>[] = [
    { 'sec-fetch-site': 'cross-site' },
    { 'sec-fetch-site': 'cross-site', origin: 'null' },
    { 'sec-fetch-site': 'same-site', origin },
    { origin: 'https://elsewhere.example.org' },
  ];
  // Browsers add Sec-Fetch-Site only over TLS and to loopback, and the pages send no referrer.
  const own: Record<string, string>[] = [
    {},
    { origin: 'null' },
    { origin: 'null', 'sec-fetch-site': 'same-origin' },
    { origin, 'sec-fetch-site': 'same-origin' },
  ];
  for (const path of ['/login', '/logout']) {
    for (const headers of foreign)
      expect([path, headers, await post(path, headers)]).toEqual([path, headers, [403, false]]);
    for (const headers of own)
      expect([path, headers, await post(path, headers)]).toEqual([path, headers, [303, true]]);
  }
});

test('a session ends with the sign-out, also for who kept its cookie', async () => {
  const origin = await start();
  const [cookie = ''] = (await signIn(origin, token)).headers.get('set-cookie')?.split(';') ?? [];
  const status = async () => (await fetch(`${origin}/metrics`, { headers: { cookie } })).status;
  expect(await status()).toBe(200);
  const elsewhere = { cookie, origin: 'http://elsewhere.example' };
  const crossSite = await fetch(`${origin}/logout`, { method: 'POST', headers: elsewhere });
  expect([crossSite.status, await crossSite.json()]).toEqual([
    403,
    expect.objectContaining({ code: 'cross-site' }),
  ]);
  expect(await status()).toBe(200);
  const left = await fetch(`${origin}/logout`, { method: 'POST', headers: { cookie }, redirect: 'manual' });
  expect([left.status, left.headers.get('location')]).toEqual([303, '/login']);
  expect(await status()).toBe(401);
});

describe('without a token', () => {
  test('other names for this machine are refused, so that no page elsewhere reads what is here', async () => {
    control = await startControl({ consoleFolder });
    const { origin } = control;
    const { port } = new URL(origin);
    const { page } = await openPage({ width: 400, scheme: 'light' });
    for (const path of ['/', ...GUARDED]) {
      const answer = await page.request.get(`${origin}${path}`, {
        headers: { host: `rebound.example:${port}` },
      });
      expect([path, answer.status()]).toEqual([path, 421]);
    }
    await page.goto(`http://localhost:${port}/`);
    await page.getByText('live', { exact: true }).waitFor();
    expect(await page.getByRole('button', { name: 'Sign out' }).isVisible()).toBe(false);
  });

  test('a console that was not built says how to build it', async () => {
    control = await startControl();
    const answer = await fetch(control.origin);
    expect([answer.status, await answer.text()]).toEqual([
      503,
      expect.stringContaining('npm run build:console'),
    ]);
  });
});
