import { createServer } from 'node:http';
import { gzipSync } from 'node:zlib';
import { describe, expect, jest, test } from '@jest/globals';
import { exportJWK, generateKeyPair, type JWTPayload, SignJWT } from 'jose';
import { monotonicClock } from '../../src/base/clock.ts';
import { errorCode } from '../../src/base/error-code.ts';
import { Secret } from '../../src/base/secret.ts';
import { OidcClient, type OidcOptions, SIGN_IN_MS, SignInError } from '../../src/control/oidc.ts';
import { closing } from '../support/closing.ts';
import { listenOnLoopback } from '../support/loopback-server.ts';
import { setWallClock } from '../support/wall-clock.ts';

const ROLES = { claim: 'groups', nameClaim: 'sub', operator: ['ops'] };

interface Script {
  /** Changes of the discovery document. */
  readonly metadata?: Record<string, unknown>;
  /** The claims of the ID token, which are right otherwise. */
  readonly claims?: JWTPayload;
  /** The claims of the userinfo endpoint; undefined: there is none. */
  readonly userInfo?: Record<string, unknown>;
  /** Body of the response of the token endpoint. */
  readonly tokens?: (idToken: string) => string;
  /** True: the ID token is signed with a key that is not published. */
  readonly isForged?: boolean;
  /** True: the responses are compressed. */
  readonly isCompressed?: boolean;
  readonly options?: Partial<OidcOptions>;
}

// Making one takes a tenth of a second.
const [own, other] = await Promise.all([generateKeyPair('RS256'), generateKeyPair('RS256')]);

/** A provider that says what a test wants it to say. */
async function start({ metadata, claims, userInfo, tokens, isForged, isCompressed, options }: Script = {}) {
  const jwk = { ...(await exportJWK(own.publicKey)), alg: 'RS256', use: 'sig', kid: 'k' };
  const seen = { discoveries: 0, nonce: '' };
  const now = Math.floor(Date.now() / 1000);
  const idToken = (): Promise<string> =>
    new SignJWT({
      iss: issuer,
      aud: 'console',
      sub: 'otto',
      groups: ['ops'],
      nonce: seen.nonce,
      iat: now,
      exp: now + 60,
      ...claims,
    })
      .setProtectedHeader({ alg: 'RS256', kid: 'k' })
      .sign(isForged ? other.privateKey : own.privateKey);
  const bodies: Record<string, () => string | Promise<string>> = {
    '/.well-known/openid-configuration': () => {
      seen.discoveries += 1;
      return JSON.stringify({
        issuer,
        authorization_endpoint: `${issuer}/auth`,
        token_endpoint: `${issuer}/token`,
        jwks_uri: `${issuer}/keys`,
        end_session_endpoint: `${issuer}/end`,
        ...(userInfo && { userinfo_endpoint: `${issuer}/userinfo` }),
        ...metadata,
      });
    },
    '/userinfo': () => JSON.stringify({ sub: 'otto', ...userInfo }),
    '/keys': () => JSON.stringify({ keys: [jwk] }),
    '/token': async () => {
      const token = await idToken();
      return tokens?.(token) ?? JSON.stringify({ access_token: 'a', token_type: 'Bearer', id_token: token });
    },
  };
  const server = await listenOnLoopback(
    createServer(async (req, res) => {
      const body = bodies[req.url ?? ''];
      if (isCompressed === true) res.setHeader('content-encoding', 'gzip');
      res.writeHead(body === undefined ? 404 : 200, { 'content-type': 'application/json' });
      const text = (await body?.()) ?? '';
      res.end(isCompressed === true ? gzipSync(text) : text);
    }),
  );
  closing.push(server.close);
  const issuer = `http://127.0.0.1:${server.port}`;
  const client = new OidcClient(
    {
      issuer,
      clientId: 'console',
      clientSecret: new Secret('s'),
      publicUrl: 'https://console.example.org',
      scopes: ['profile'],
      ca: undefined,
      roles: ROLES,
      ...options,
    },
    monotonicClock,
  );
  /** A whole sign-in. */
  const signIn = async () => {
    const { url, transaction } = await client.begin();
    const { searchParams } = new URL(url);
    seen.nonce = searchParams.get('nonce') ?? '';
    const search = `?code=c&state=${searchParams.get('state')}`;
    return client.complete(search, await client.resume(search, transaction));
  };
  return { client, signIn, seen, issuer };
}

const outcome = (signingIn: Promise<unknown>) => signingIn.then(() => 'ok', errorCode);

test('a right ID token signs a person in', async () => {
  const { signIn, client, issuer } = await start();
  const { operator, roles, idToken } = await signIn();
  expect([operator, [...roles]]).toEqual([{ name: 'otto', subject: 'otto' }, ['operator']]);
  expect(await client.signOutUrl(idToken)).toMatch(
    `${issuer}/end?post_logout_redirect_uri=https%3A%2F%2Fconsole.example.org%2Flogin&id_token_hint=`,
  );
});

test('an ID token that is too long for a URL is not kept', async () => {
  const { signIn, client } = await start({ claims: { ['pad']: 'x'.repeat(4_096) } });
  const { idToken } = await signIn();
  expect(idToken.reveal()).toBe('');
  expect(await client.signOutUrl(idToken)).toMatch(/^(?!.*id_token_hint).*\/end\?/);
});

test('compressed responses are refused, since few bytes can become more than the memory', async () => {
  const { signIn } = await start({ isCompressed: true });
  await expect(signIn()).rejects.toMatchObject({
    code: 'sign-in-unavailable',
    reason: expect.stringContaining('the response is compressed'),
  });
});

describe('an ID token is refused', () => {
  const past = Math.floor(Date.now() / 1000) - 600;
  test.each<[string, Script, string]>([
    ['of another issuer', { claims: { iss: 'https://other.example' } }, 'sign-in-invalid'],
    ['for another client', { claims: { aud: 'other' } }, 'sign-in-invalid'],
    ['with the nonce of another sign-in', { claims: { ['nonce']: 'other' } }, 'sign-in-invalid'],
    ['with the signature of another key', { isForged: true }, 'sign-in-invalid'],
    [
      'that has expired by the clock of the gateway',
      { claims: { iat: past - 60, exp: past } },
      'sign-in-clock',
    ],
    ['that is not valid yet', { claims: { nbf: past + 1_200 } }, 'sign-in-clock'],
    ['without the claim of roles', { claims: { ['groups']: undefined } }, 'claim-missing'],
    ['with no role', { claims: { ['groups']: ['guests'] } }, 'role-missing'],
    ['with a role in the form of an object', { claims: { ['groups']: { ops: true } } }, 'role-missing'],
    ['with a control character in the name', { claims: { sub: 'otto\n' } }, 'claim-missing'],
    ['with a name that reads backwards', { claims: { sub: '\u202eotto' } }, 'claim-missing'],
    ['with a name without end', { claims: { sub: 'o'.repeat(300) } }, 'claim-missing'],
    ['that is missing', { tokens: () => '{"access_token":"a","token_type":"Bearer"}' }, 'sign-in-invalid'],
    ['in a response that is no JSON', { tokens: () => 'no' }, 'sign-in-invalid'],
    ['in a response without end', { tokens: () => `"${'a'.repeat(3 * 2 ** 20)}"` }, 'sign-in-invalid'],
  ])('%s', async (_name, script, code) => {
    const { signIn } = await start(script);
    expect(await outcome(signIn())).toBe(code);
  });
});

test.each([
  ['response', () => 'access_token=the-secret'],
  ['ID token', () => JSON.stringify({ access_token: 'a', token_type: 'Bearer', id_token: malformedToken })],
])('the reason for the log quotes nothing of a %s that is no JSON', async (_name, tokens) => {
  const { signIn } = await start({ tokens });
  const error = await signIn().catch((thrown: unknown) => thrown);
  expect(error).toBeInstanceOf(SignInError);
  expect((error as SignInError).reason).toMatch(/JSON/);
  expect((error as SignInError).reason).not.toMatch(/secret/);
});

test('the reason for the log does not quote an access token that no header field can have', async () => {
  const { signIn } = await start({
    metadata: { userinfo_endpoint: 'http://127.0.0.1:1/userinfo' },
    claims: { ['groups']: undefined },
    tokens: (id_token) => JSON.stringify({ access_token: 'the\nsecret', token_type: 'Bearer', id_token }),
  });
  await expect(signIn()).rejects.toMatchObject({
    code: 'sign-in-invalid',
    reason: expect.stringMatching(/^Headers\.\w+: "…" is an invalid header value\.$/),
  });
});

const malformedToken = ['{"alg":"RS256"}', 'the-secret', 'x']
  .map((part) => Buffer.from(part).toString('base64url'))
  .join('.');

test('a small difference of the clocks is accepted', async () => {
  const now = Math.floor(Date.now() / 1000);
  const { signIn } = await start({ claims: { iat: now - 80, exp: now - 5 } });
  expect(await outcome(signIn())).toBe('ok');
});

test('roles may be a text, or in a member of a claim, and several', async () => {
  const roles = {
    claim: 'access.roles',
    nameClaim: 'sub',
    viewer: ['a'],
    operator: ['b', 'c'],
    auditor: ['d'],
  };
  const of = async (value: unknown) => {
    const { signIn } = await start({ claims: { ['access']: { roles: value } }, options: { roles } });
    return [...(await signIn()).roles];
  };
  expect(await of('c')).toEqual(['operator']);
  expect(await of(['d', 'a', 'x'])).toEqual(['viewer', 'auditor']);
});

test.each<[string, JWTPayload, Record<string, unknown>, unknown]>([
  [
    'the userinfo endpoint says them, beside other members of the claim in the ID token',
    { ['access']: { level: 1 }, ['email']: 'o@example.org' },
    { access: { roles: ['b'] } },
    ['operator'],
  ],
  [
    'the ID token says them, whatever the userinfo endpoint says',
    { ['access']: { roles: ['a'] } },
    { access: { roles: ['b'] }, 'access.roles': ['b'], email: 'o@example.org' },
    ['viewer'],
  ],
  [
    'the ID token says that there are none',
    { ['access']: { roles: null } },
    { access: { roles: ['b'] }, email: 'o@example.org' },
    'role-missing',
  ],
])('the roles of a member of a claim, where %s', async (_title, claims, userInfo, expected) => {
  const roles = { claim: 'access.roles', nameClaim: 'email', viewer: ['a'], operator: ['b'] };
  const { signIn } = await start({ claims, userInfo, options: { roles } });
  const found = await signIn().then((signedIn) => [...signedIn.roles], errorCode);
  expect(found).toEqual(expected);
});

test.each([
  ['another issuer', { issuer: 'https://other.example' }],
  ['no authorization endpoint', { authorization_endpoint: undefined }],
  ['a script in its place', { authorization_endpoint: 'javascript:alert(1)' }],
  ['an authorization endpoint that others can read', { authorization_endpoint: 'http://login.example/auth' }],
])('a discovery document with %s is refused', async (_name, metadata) => {
  const { signIn } = await start({ metadata });
  expect(await outcome(signIn())).toBe('sign-in-unavailable');
});

test('the discovery document is fetched once for many sign-ins, and not again at once after a failure', async () => {
  const well = await start();
  await Promise.all([well.client.begin(), well.client.begin()]);
  expect(await outcome(well.signIn())).toBe('ok');
  expect(well.seen.discoveries).toBe(1);
  const ill = await start({ metadata: { issuer: 'https://other.example' } });
  for (let count = 0; count < 3; count += 1) await outcome(ill.signIn());
  expect(ill.seen.discoveries).toBe(1);
});

test('without a place for signing out there is none, and a script is none', async () => {
  for (const endpoint of [undefined, 'javascript:alert(1)']) {
    const { client } = await start({ metadata: { end_session_endpoint: endpoint } });
    expect(await client.signOutUrl(new Secret('token'))).toBeUndefined();
  }
});

test('a sign-in of another process, or an old one, is refused', async () => {
  const [one, other] = [await start(), await start()];
  const { url, transaction } = await one.client.begin();
  const search = `?code=c&state=${new URL(url).searchParams.get('state')}`;
  expect(await outcome(other.client.resume(search, transaction))).toBe('sign-in-expired');
  expect(await outcome(one.client.resume(search, undefined))).toBe('sign-in-expired');
  expect(await outcome(one.client.resume(search, transaction.slice(0, -2)))).toBe('sign-in-expired');
  setWallClock(Date.now() + SIGN_IN_MS + 1_000);
  try {
    expect(await outcome(one.client.resume(search, transaction))).toBe('sign-in-expired');
  } finally {
    jest.useRealTimers();
  }
});
