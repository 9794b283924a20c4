import { writeFile } from 'node:fs/promises';
import type { IncomingMessage } from 'node:http';
import { join } from 'node:path';
import { beforeAll, describe, expect, jest, test } from '@jest/globals';
import { MAX_WAIT_MS } from '../../../src/control/login.ts';
import { AUDIT_KEY, auditOptions, recordsIn, useFolders } from '../../support/audit-log.ts';
import { accessibilityFaults, builtConsole } from '../../support/browser.ts';
import { closing } from '../../support/closing.ts';
import {
  CookieClient,
  type OidcScene,
  type OidcSceneOptions,
  openOidc,
  type People,
} from '../../support/oidc.ts';
import { act, OF_PROGRAM, ofPage, TOKEN, TOKEN_HASHES } from '../../support/operator.ts';
import { usePages } from '../../support/pages.ts';
import { openScene } from '../../support/scene.ts';
import { until } from '../../support/until.ts';

const PEOPLE: People = {
  vera: { email: 'vera@example.org', groups: ['everyone', 'staff'] },
  otto: { email: 'otto@example.org', groups: ['ops'] },
  anna: { email: 'anna@example.org', groups: ['auditors', 'ops'] },
  stranger: { email: 'stranger@example.org', groups: ['guests'] },
  nameless: { groups: ['ops'] },
};

const folderOf = useFolders();
const openPage = usePages();
let consoleFolder: string;

beforeAll(async () => {
  consoleFolder = await builtConsole();
});

interface Scene extends OidcScene {
  /** The address of the control plane itself. */
  readonly control: string;
  /** Folder of the audit log. */
  readonly log: string;
}

async function start(
  control: Record<string, unknown> = {},
  options: Partial<OidcSceneOptions> = {},
): Promise<Scene> {
  const oidc = await openOidc({ people: PEOPLE, ...options });
  closing.push(oidc.close);
  const folder = await folderOf();
  const keyFile = join(folder, 'audit.key');
  await writeFile(keyFile, AUDIT_KEY, { mode: 0o600 });
  const log = join(folder, 'log');
  const scene = await openScene({
    top: {
      control: { port: 0, actions: true, ...TOKEN_HASHES, oidc: oidc.section, ...control },
      audit: { directory: log, keyFile },
    },
    audit: auditOptions(log),
    consoleFolder,
    consolePace: { sampleMs: 1_000, tickMs: 100 },
  });
  closing.push(scene.close);
  oidc.lead(scene.gateway.control);
  return { ...oidc, log, control: scene.gateway.control };
}

/** A person who has signed in, and the headers of a page of the console. */
async function person(scene: Scene, login: string) {
  const client = new CookieClient();
  const response = await client.signIn(scene.publicUrl, login);
  expect([login, response.status, await response.text()]).toEqual([
    login,
    200,
    expect.stringContaining('Signed in'),
  ]);
  return { client, headers: ofPage(scene.publicUrl, client.cookies(scene.publicUrl)) };
}

const eventsIn = async ({ log }: Scene, event: string) =>
  (await recordsIn(log)).filter((record) => record['event'] === event);

/** Begins a sign-in: the cookie of the browser, and the state that the provider returns. */
async function begin({ publicUrl }: Scene) {
  const begun = await fetch(`${publicUrl}/login/start`, { redirect: 'manual' });
  const [cookie = ''] = begun.headers.get('set-cookie')?.split(';') ?? [];
  const { searchParams } = new URL(begun.headers.get('location') ?? '');
  return { cookie, state: searchParams.get('state') ?? '' };
}

/** The status and the code of a return from the provider. */
async function callback({ publicUrl }: Scene, headers: Record<string, string>, search = '?code=a&state=b') {
  const response = await fetch(`${publicUrl}/login/callback${search}`, { headers });
  return [response.status, /\((sign-ins?-[a-z]+)\)/.exec(await response.text())?.[1]];
}

describe('a person who signs in at the provider', () => {
  test('comes to the page of the address by which the console was opened; so does a token', async () => {
    const scene = await start();
    const { page } = await openPage({ width: 1000, scheme: 'light' });
    const address = (name: string) => `${scene.publicUrl}/#/clients/${name}`;
    await page.goto(address('archive'));
    for (const token of ['wrong', TOKEN]) {
      await page.getByLabel('Token of the control plane').fill(token);
      await page.getByRole('button', { name: 'Sign in' }).click();
      if (token !== TOKEN) await page.getByText('That is not the token.').waitFor();
    }
    await page.waitForURL(address('archive'));
    await page.getByRole('heading', { name: 'archive' }).waitFor();
    // A session that has ended, as after a restart.
    await page.context().clearCookies();
    await page.goto(address('reporting'));
    await page.getByRole('link', { name: 'Sign in with your account' }).click();
    await page.locator('input[name=login]').fill('vera');
    await page.locator('input[name=password]').fill('any');
    await page.getByRole('button', { name: 'Sign-in' }).click();
    await page.waitForURL(address('reporting'));
    await page.goto(`${scene.publicUrl}/`);
    await page.getByRole('heading', { name: 'Overview' }).waitFor();
  });

  test('sees the console with name, and without audit records if only a viewer, and signs out of both', async () => {
    const scene = await start();
    const { page, pageErrors } = await openPage({ width: 1000, scheme: 'light' });
    await page.goto(scene.publicUrl);
    expect(page.url()).toBe(`${scene.publicUrl}/login`);
    expect(await accessibilityFaults(page)).toEqual([]);
    await page.getByRole('link', { name: 'Sign in with your account' }).click();
    await page.locator('input[name=login]').fill('vera');
    await page.locator('input[name=password]').fill('any');
    await page.getByRole('button', { name: 'Sign-in' }).click();
    await page.waitForURL(`${scene.publicUrl}/`);
    await page.getByText('live', { exact: true }).waitFor();
    await page.getByText('vera@example.org').waitFor();
    expect(await accessibilityFaults(page)).toEqual([]);
    await page.goto(`${scene.publicUrl}/#/usage`);
    await page.getByRole('button', { name: 'Count' }).click();
    await page
      .getByText(/needs the role auditor\. .*claim groups.*auditors/)
      .first()
      .waitFor();
    await page.goto(`${scene.publicUrl}/#/requests/any`);
    await page.getByText('Nothing was searched.').waitFor();
    await page.goto(`${scene.publicUrl}/#/audit`);
    await page.getByText('The lines need the role auditor.').waitFor();
    await page.goto(`${scene.publicUrl}/#/actions`);
    await page.getByText(/needs the role operator/).waitFor();
    await page.getByRole('button', { name: 'Sign out' }).click();
    await page.getByRole('button', { name: 'Yes, sign me out' }).click();
    await page.waitForURL(`${scene.publicUrl}/login`);
    await page.goto(scene.publicUrl);
    expect(page.url()).toBe(`${scene.publicUrl}/login`);
    await page.getByRole('link', { name: 'Sign in with your account' }).click();
    await page.locator('input[name=login]').waitFor();
    // The refusals above, and the font of the provider's page.
    expect(pageErrors.filter((each) => !/403|ERR_NAME_NOT_RESOLVED/.test(each))).toEqual([]);
    expect(await eventsIn(scene, 'sign-in')).toEqual([
      expect.objectContaining({
        by: 'oidc',
        operator: 'vera@example.org',
        operatorSubject: 'vera',
        roles: ['viewer'],
      }),
    ]);
    expect(await eventsIn(scene, 'sign-out')).toEqual([
      expect.objectContaining({ by: 'oidc', operator: 'vera@example.org', operatorSubject: 'vera' }),
    ]);
  });

  test('gets a cookie that scripts and other sites cannot use, and no token of the provider', async () => {
    const scene = await start();
    const client = new CookieClient();
    await client.signIn(scene.publicUrl, 'otto');
    expect(client.cookies(scene.publicUrl)).toMatch(/^digest-gateway-session-\d+=[\w-]{43}$/);
    const begun = await fetch(`${scene.publicUrl}/login/start`, { redirect: 'manual' });
    expect(begun.headers.get('set-cookie')).toMatch(
      /^digest-gateway-sign-in-\d+=[^;]+; Max-Age=600; Path=\/; .*HttpOnly; SameSite=Lax$/,
    );
    const url = new URL(begun.headers.get('location') ?? '');
    expect(Object.fromEntries(url.searchParams)).toMatchObject({
      response_type: 'code',
      code_challenge_method: 'S256',
      scope: 'openid profile email',
      state: expect.stringMatching(/^[\w-]{43}$/),
      nonce: expect.stringMatching(/^[\w-]{43}$/),
    });
  });

  test('does what the roles allow, each action, search and export under this name', async () => {
    const scene = await start();
    const [vera, otto, anna] = [
      await person(scene, 'vera'),
      await person(scene, 'otto'),
      await person(scene, 'anna'),
    ];
    const get = async (path: string, { headers }: typeof vera) => {
      const response = await fetch(`${scene.publicUrl}${path}`, { headers });
      await response.body?.cancel();
      return response.status;
    };
    for (const each of [vera, otto, anna]) {
      expect([await get('/api/snapshot', each), await get('/metrics', each)]).toEqual([200, 200]);
    }
    for (const path of ['/api/audit/search', '/api/audit/export', '/api/audit/usage', '/api/requests/x']) {
      expect([path, await get(path, vera), await get(path, otto), await get(path, anna)]).toEqual([
        path,
        403,
        403,
        200,
      ]);
    }
    expect(await act(scene.publicUrl, { action: 'doctor' }, vera.headers)).toMatchObject({
      status: 403,
      json: { code: 'role-required', detail: expect.stringContaining('ops (operator)') },
    });
    expect((await act(scene.publicUrl, { action: 'doctor' }, otto.headers)).status).toBe(200);
    const named = { operator: 'anna@example.org', operatorSubject: 'anna' };
    for (const event of ['audit-search', 'audit-export', 'audit-usage']) {
      const records = await eventsIn(scene, event);
      expect([
        event,
        records.length > 0,
        records.every((each) => each['operator'] === named.operator),
      ]).toEqual([event, true, true]);
    }
    expect(await eventsIn(scene, 'action')).toEqual([
      expect.objectContaining({
        action: 'doctor',
        by: 'session',
        operator: 'otto@example.org',
        operatorSubject: 'otto',
      }),
    ]);
  });

  test('gets no live records without the role of an auditor, and the stream ends with the session', async () => {
    const scene = await start();
    for (const [login, sees] of [
      ['otto', false],
      ['anna', true],
    ] as const) {
      const { client, headers } = await person(scene, login);
      const stream = await fetch(`${scene.publicUrl}/api/events`, { headers });
      let text = '';
      const reading = (async () => {
        for await (const piece of stream.body?.pipeThrough(new TextDecoderStream()) ?? []) text += piece;
      })();
      await until(() => text.split('event: tick').length > 3);
      expect([login, text.includes('"sign-in"') || text.includes('"kind":"admin"')]).toEqual([login, sees]);
      await client.open(`${scene.publicUrl}/logout`, {});
      await reading;
    }
  });

  test('without a role reads which values give one, and has no session', async () => {
    const scene = await start();
    const client = new CookieClient();
    const response = await client.signIn(scene.publicUrl, 'stranger');
    const text = await response.text();
    expect(response.status).toBe(403);
    expect(text).toContain(
      'stranger@example.org has no role here. Ask the administrator of the provider for one of these values of the claim groups: everyone (viewer); ops (operator); auditors (auditor). (role-missing)',
    );
    expect(client.cookies(scene.publicUrl)).toBe('');
    expect(await eventsIn(scene, 'sign-in-refused')).toEqual([
      expect.objectContaining({
        by: 'oidc',
        code: 'role-missing',
        operator: 'stranger@example.org',
        operatorSubject: 'stranger',
      }),
    ]);
  });

  test('without the claim of the name is refused', async () => {
    const scene = await start();
    const response = await new CookieClient().signIn(scene.publicUrl, 'nameless');
    expect([response.status, await response.text()]).toEqual([
      403,
      expect.stringMatching(/no usable claim email\. .*\(claim-missing\)/),
    ]);
  });
});

test('the claims may be in the ID token, and the secret may be sent in the body of the request', async () => {
  const scene = await start(
    {},
    {
      provider: { conformIdTokenClaims: false, clientAuthMethods: ['client_secret_post'] },
      client: { token_endpoint_auth_method: 'client_secret_post' },
    },
  );
  expect(await person(scene, 'otto')).toBeDefined();
});

test('a wrong secret of the client is told without it', async () => {
  const scene = await start({}, { section: { clientSecret: { value: 'wrong' } } });
  const response = await new CookieClient().signIn(scene.publicUrl, 'otto');
  expect([response.status, await response.text()]).toEqual([
    502,
    expect.stringContaining('(sign-in-rejected)'),
  ]);
});

test('while the provider is down sign-ins are refused, sessions go on, and the token opens everything', async () => {
  const down = await start();
  await down.stopProvider();
  const refused = await fetch(`${down.publicUrl}/login/start`);
  expect([refused.status, await refused.text()]).toEqual([
    503,
    expect.stringContaining('(sign-in-unavailable)'),
  ]);
  expect((await act(down.publicUrl, { action: 'doctor' }, OF_PROGRAM)).status).toBe(200);
  const byToken = await new CookieClient().open(`${down.publicUrl}/login`, { token: TOKEN });
  expect([byToken.url, byToken.response.status]).toEqual([`${down.publicUrl}/`, 200]);

  const scene = await start();
  const { client, headers } = await person(scene, 'otto');
  const { cookie, state } = await begin(scene);
  await scene.stopProvider();
  const search = `?code=a&state=${state}&iss=${encodeURIComponent(scene.issuer)}`;
  expect(await callback(scene, { cookie }, search)).toEqual([503, 'sign-in-unavailable']);
  expect((await fetch(`${scene.publicUrl}/api/snapshot`, { headers })).status).toBe(200);
  expect((await client.open(`${scene.publicUrl}/logout`, {})).response.status).toBe(200);
  expect((await fetch(`${scene.publicUrl}/api/snapshot`, { headers })).status).toBe(401);
});

test('a sign-in counts for the browser that began it, once', async () => {
  const scene = await start();
  expect(await callback(scene, {})).toEqual([400, 'sign-in-expired']);
  const { port } = new URL(scene.publicUrl);
  const forged = { cookie: `digest-gateway-sign-in-${port}=forged` };
  expect(await callback(scene, forged)).toEqual([400, 'sign-in-expired']);
  const { cookie, state } = await begin(scene);
  expect(await callback(scene, { cookie })).toEqual([502, 'sign-in-invalid']);
  const from = `&state=${state}&iss=${encodeURIComponent(scene.issuer)}`;
  expect(await callback(scene, { cookie }, `?error=access_denied${from}`)).toEqual([403, 'sign-in-denied']);
  expect(await callback(scene, { cookie }, `?code=unknown${from}`)).toEqual([502, 'sign-in-rejected']);
});

test('when all sessions are taken a sign-in is refused, and the token still opens one', async () => {
  const scene = await start({ session: { max: 1 } });
  await person(scene, 'otto');
  const refused = await new CookieClient().signIn(scene.publicUrl, 'anna');
  expect([refused.status, await refused.text()]).toEqual([503, expect.stringContaining('(sessions-full)')]);
  const client = new CookieClient();
  expect((await client.open(`${scene.publicUrl}/login`, { token: TOKEN })).response.status).toBe(200);
});

describe('while sixteen sign-ins wait for the provider', () => {
  /** A scene in which twenty strangers return from the provider at once, which answers none until `open`. */
  async function startWithStrangers() {
    const { promise, resolve: open } = Promise.withResolvers<void>();
    let asked = 0;
    const before = async ({ url = '' }: IncomingMessage): Promise<void> => {
      if (url !== '/token') return;
      asked += 1;
      await promise;
    };
    const scene = await start({}, { before });
    const stranger = async () => {
      const { cookie, state } = await begin(scene);
      const search = `?code=unknown&state=${state}&iss=${encodeURIComponent(scene.issuer)}`;
      return callback(scene, { cookie }, search);
    };
    const strangers = Array.from({ length: 20 }, stranger);
    await until(() => asked === 16);
    return { scene, strangers, stranger, open, asked: () => asked };
  }

  test('the others wait for their turn, so that strangers keep nobody out', async () => {
    const { scene, strangers, open, asked } = await startWithStrangers();
    expect((await begin(scene)).state).not.toBe('');
    expect(await callback(scene, {})).toEqual([400, 'sign-in-expired']);
    const signedIn = person(scene, 'otto');
    expect(asked()).toBe(16);
    open();
    const { headers } = await signedIn;
    expect((await fetch(`${scene.publicUrl}/api/snapshot`, { headers })).status).toBe(200);
    expect(await Promise.all(strangers)).toEqual(Array(20).fill([502, 'sign-in-rejected']));
  });

  test('one that has waited too long is refused, and counted', async () => {
    const timeout = AbortSignal.timeout.bind(AbortSignal);
    const mock = jest.spyOn(AbortSignal, 'timeout');
    const { scene, strangers, stranger, open } = await startWithStrangers();
    await until(() => mock.mock.calls.filter(([ms]) => ms === MAX_WAIT_MS).length === strangers.length);
    mock.mockImplementation((ms) => (ms === MAX_WAIT_MS ? AbortSignal.abort() : timeout(ms)));
    const refused = await stranger();
    mock.mockRestore();
    expect(refused).toEqual([429, 'sign-ins-pending']);
    open();
    await Promise.all(strangers);
    const metrics = await (await fetch(`${scene.control}/metrics`, { headers: OF_PROGRAM })).text();
    expect(metrics).toContain('digest_gateway_sign_ins_total{result="sign-ins-pending"} 1\n');
    expect(metrics).toContain('digest_gateway_sign_ins_total{result="sign-in-rejected"} 20\n');
  });
});

test('a page of another site of the same host makes no browser export in the name of a person', async () => {
  const scene = await start();
  const { client, headers: own } = await person(scene, 'anna');
  const cookie = client.cookies(scene.publicUrl);
  for (const headers of [{ 'sec-fetch-site': 'same-site' }, { origin: 'http://127.0.0.1:9' }]) {
    const response = await fetch(`${scene.publicUrl}/api/audit/export`, {
      headers: { cookie, ...(headers as Record<string, string>) },
    });
    expect([response.status, await response.json()]).toEqual([
      403,
      expect.objectContaining({ code: 'cross-site' }),
    ]);
  }
  expect(await eventsIn(scene, 'audit-export')).toEqual([]);
  expect((await fetch(`${scene.publicUrl}/api/audit/export`, { headers: own })).status).toBe(200);
});

test('without a token only people get in', async () => {
  const scene = await start({ tokenSha256: undefined, readTokenSha256: undefined });
  const login = await (await fetch(`${scene.publicUrl}/login`)).text();
  expect([login.includes('/login/start'), login.includes('name="token"')]).toEqual([true, false]);
  expect((await fetch(`${scene.publicUrl}/metrics`, { headers: OF_PROGRAM })).status).toBe(401);
  const { headers } = await person(scene, 'otto');
  expect((await fetch(`${scene.publicUrl}/metrics`, { headers })).status).toBe(200);
});

test('behind a proxy with TLS cookies are for https and this host alone, and actions come from the public address', async () => {
  const { control } = await start({}, { section: { publicUrl: 'https://console.example.org' } });
  const begun = await fetch(`${control}/login/start`, { redirect: 'manual' });
  expect(begun.headers.get('set-cookie')).toMatch(
    /^__Host-digest-gateway-sign-in-\d+=.*; Path=\/;.* Secure; SameSite=Lax$/,
  );
  const body = new URLSearchParams({ token: TOKEN });
  const opened = await fetch(`${control}/login`, { method: 'POST', body, redirect: 'manual' });
  const line = opened.headers.get('set-cookie') ?? '';
  expect(line).toMatch(/^__Host-digest-gateway-session-\d+=[\w-]{43};.* Path=\/;.* Secure; SameSite=Strict$/);
  const [cookie = ''] = line.split(';');
  const headers = { cookie, origin: 'https://console.example.org', 'sec-fetch-site': 'same-origin' };
  expect((await act(control, { action: 'doctor' }, headers)).status).toBe(200);
  const elsewhere = { ...headers, origin: 'https://elsewhere.example.org' };
  expect(await act(control, { action: 'doctor' }, elsewhere)).toMatchObject({
    status: 403,
    json: { code: 'cross-site' },
  });
  // Without the prefix any host of the domain could have set it.
  const plain = { ...headers, cookie: cookie.replace('__Host-', '') };
  expect((await act(control, { action: 'doctor' }, plain)).status).toBe(401);
});
