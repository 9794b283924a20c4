import { hash } from 'node:crypto';
import { once } from 'node:events';
import { createServer, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterEach, beforeEach, describe, expect, jest, test } from '@jest/globals';
import { exportJWK, exportSPKI, generateKeyPair, type JWK, SignJWT, UnsecuredJWT } from 'jose';
import { call, requestsOf } from '../../support/client-call.ts';
import { setupFor } from '../../support/gateway.ts';
import { openScene, type RunningScene } from '../../support/scene.ts';
import { until } from '../../support/until.ts';

/** An issuer that signs tokens and publishes the keys to check them with. */
interface TestIssuer {
  readonly issuer: string;
  readonly jwksUrl: string;
  /** How often its keys were asked for. */
  readonly fetched: number;
  /** A token in force, with these claims beside or instead of the usual ones. */
  token(claims?: Record<string, unknown>, header?: { kid?: string }): Promise<string>;
  /** Signs with another key from now on, and publishes that one only. */
  rotate(): Promise<void>;
  /** Response to requests for its keys from now on, and to those that hang; undefined: the keys. */
  answer(how: { status: number; body: string } | 'hang' | undefined): void;
  close(): Promise<void>;
}

const AUDIENCE = 'digest-gateway';

async function startTestIssuer(): Promise<TestIssuer> {
  let [key, fetched] = [await createKey(1), 0];
  let answer: { status: number; body: string } | 'hang' | undefined;
  let rotations = 1;
  const hanging: ServerResponse[] = [];
  const respond = (res: ServerResponse): void => {
    if (answer === 'hang') {
      hanging.push(res);
      return;
    }
    const { status, body } = answer ?? { status: 200, body: JSON.stringify({ keys: [key.jwk] }) };
    res.writeHead(status, { 'content-type': 'application/json' }).end(body);
  };
  const server = createServer((_req, res) => {
    fetched += 1;
    respond(res);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  const issuer = `http://127.0.0.1:${port}/`;
  return {
    issuer,
    jwksUrl: `${issuer}keys`,
    get fetched() {
      return fetched;
    },
    token: (claims = {}, header = {}) =>
      new SignJWT({ iss: issuer, aud: AUDIENCE, sub: 'importer', exp: inSeconds(60), ...claims })
        .setProtectedHeader({ alg: 'ES256', kid: key.kid, ...header })
        .sign(key.privateKey),
    rotate: async () => {
      rotations += 1;
      key = await createKey(rotations);
    },
    answer: (how) => {
      answer = how;
      for (const res of hanging.splice(0)) respond(res);
    },
    close: async () => {
      server.close();
      server.closeAllConnections();
      await once(server, 'close');
    },
  };
}

/** A moment from now, as tokens have it. */
function inSeconds(seconds: number): number {
  return Math.floor(Date.now() / 1000) + seconds;
}

async function createKey(number: number) {
  const kid = `key-${number}`;
  const { privateKey, publicKey } = await generateKeyPair('ES256');
  const jwk: JWK = { ...(await exportJWK(publicKey)), kid, alg: 'ES256', use: 'sig' };
  return { kid, privateKey, jwk };
}

let issuer: TestIssuer;
let pair: RunningScene;
let clients: { id: string }[];
/** Milliseconds by which `Date.now` is ahead, the clock of jose. */
let now: number;

beforeEach(async () => {
  issuer = await startTestIssuer();
  now = 0;
  const { now: realNow } = Date;
  jest.spyOn(Date, 'now').mockImplementation(() => realNow() + now);
  const jwt = { issuer: issuer.issuer, audience: AUDIENCE };
  clients = [
    { id: 'importer', identify: { jwt: { ...jwt, subject: 'importer' } } },
    { id: 'editors', identify: { jwt: { ...jwt, claims: { groups: 'editors', scope: 'read', level: 2 } } } },
    { id: 'whole', identify: { jwt: { ...jwt, claims: { scope: 'send print' } } } },
    { id: 'near', identify: { jwt, addresses: ['127.0.8.0/24'] } },
    {
      id: 'both',
      identify: {
        jwt: { ...jwt, subject: 'both' },
        apiKeys: [
          { sha256: hash('sha256', 'old'), expires: '2020-01-31' },
          { sha256: hash('sha256', 'new') },
        ],
      },
    },
    { id: 'batch', identify: { addresses: ['127.0.8.1'] } },
  ].map((client) => ({ ...client, allow: [{ deployment: 'submissions' }] }));
  pair = await openScene({ top: settings() });
  // A token is judged once the gateway has the keys. Those that come after the clock was put forward are new.
  await refusalOf(await issuer.token({ sub: 'stranger' }));
});
afterEach(async () => {
  jest.restoreAllMocks();
  await pair.close();
  await issuer.close();
});

/** The configuration but for the deployment. */
function settings({ jwksUrl = issuer.jwksUrl, without = '' } = {}) {
  const served = clients.filter(({ id }) => id !== without);
  return { anonymous: false, clients: served, jwt: { issuers: [{ issuer: issuer.issuer, jwksUrl }] } };
}

async function reload(top: ReturnType<typeof settings>): Promise<void> {
  const { origin } = pair.simulator.deployments.submissions;
  const setup = await setupFor({ submissions: { origin, ca: pair.simulator.ca } }, top);
  await pair.gateway.app.reload(() => Promise.resolve(setup));
}

const bearer = (token: string) => ({ headers: { Authorization: `Bearer ${token}` } });

async function statusOf(token: string): Promise<number> {
  return (await call(pair.gateway, bearer(token))).status;
}

/** Why a token is refused. */
async function refusalOf(token: string): Promise<string> {
  const { status, code, detail } = await call(pair.gateway, bearer(token));
  expect([status, code]).toEqual([401, 'client-unknown']);
  const [, reason] = /a Bearer token(.*?)\. Send/.exec(detail) ?? [];
  return reason?.trim() ?? detail;
}

describe('a token', () => {
  test('identifies the client by its subject', async () => {
    expect(await statusOf(await issuer.token())).toBe(200);
    expect(await requestsOf(pair.gateway, 'importer')).toBe(1);
    expect(await requestsOf(pair.gateway, 'editors')).toBe(0);
  });

  test('identifies the client by its claims', async () => {
    const claims = { sub: 'jane', groups: ['staff', 'editors'], scope: 'write read', level: 2 };
    expect(await statusOf(await issuer.token(claims))).toBe(200);
    expect(await statusOf(await issuer.token({ ...claims, aud: ['other', AUDIENCE] }))).toBe(200);
    expect(await requestsOf(pair.gateway, 'editors')).toBe(2);
    for (const change of [
      { groups: 'editors2' },
      { scope: 'reader' },
      { level: '2' },
      { level: undefined },
    ]) {
      expect(await refusalOf(await issuer.token({ ...claims, ...change }))).toBe('');
    }
  });

  test('identifies the client by its scopes as a whole', async () => {
    expect(await statusOf(await issuer.token({ sub: 'jane', scope: 'send print' }))).toBe(200);
    expect(await requestsOf(pair.gateway, 'whole')).toBe(1);
    for (const scope of ['send', 'print send', 'send print all']) {
      expect(await refusalOf(await issuer.token({ sub: 'jane', scope }))).toBe('');
    }
  });

  test('does not reach the upstream', async () => {
    const token = await issuer.token();
    const { status, body } = await call(pair.gateway, { ...bearer(token), target: '/echo' });
    expect([status, body.includes(token.slice(-20))]).toEqual([200, false]);
  });

  test('is not enough where the client also needs an address', async () => {
    const token = await issuer.token({ sub: 'jane' });
    expect((await call(pair.gateway, { ...bearer(token), from: '127.0.8.7' })).status).toBe(200);
    expect((await call(pair.gateway, { ...bearer(token), from: '127.0.9.7' })).status).toBe(401);
    expect(await requestsOf(pair.gateway, 'near')).toBe(1);
  });

  test('is needed to learn that the API key beside it has ended', async () => {
    const ask = async (key: string, token?: string) => {
      const headers = { 'X-Api-Key': key, ...(token && { Authorization: `Bearer ${token}` }) };
      const { status, code, detail } = await call(pair.gateway, { headers });
      expect(detail.includes('both')).toBe(code === 'client-key-expired');
      return code === '' ? status : code;
    };
    const own = await issuer.token({ sub: 'both' });
    expect(await ask('new', own)).toBe(200);
    expect(await ask('old', own)).toBe('client-key-expired');
    for (const other of [undefined, 'abc', await issuer.token()]) {
      expect([await ask('old', other), await ask('new', other)]).toEqual([
        'client-unknown',
        'client-unknown',
      ]);
    }
  });

  test('is refused with the reason if it is invalid', async () => {
    const right = await issuer.token();
    const [head = '', body = '', signature = ''] = right.split('.');
    const claims = { iss: issuer.issuer, aud: AUDIENCE, sub: 'importer', exp: inSeconds(60) };
    const { publicKey, privateKey } = await generateKeyPair('ES256');
    const sign = (key: Parameters<SignJWT['sign']>[0], header: { alg: string; kid?: string }) =>
      new SignJWT(claims).setProtectedHeader(header).sign(key);
    const publicText = new TextEncoder().encode(await exportSPKI(publicKey));
    const changed = Buffer.from(JSON.stringify({ ...claims, sub: 'root' })).toString('base64url');
    const refused = {
      expired: await refusalOf(await issuer.token({ exp: inSeconds(-60) })),
      early: await refusalOf(await issuer.token({ nbf: inSeconds(60) })),
      endless: await refusalOf(await issuer.token({ exp: undefined })),
      elsewhere: await refusalOf(await issuer.token({ aud: 'other' })),
      ofOthers: await refusalOf(await issuer.token({ iss: 'https://other.example' })),
      changed: await refusalOf([head, changed, signature].join('.')),
      unsigned: await refusalOf(new UnsecuredJWT(claims).encode()),
      cut: await refusalOf(`${head}.${body}.`),
      byPublicKey: await refusalOf(await sign(publicText, { alg: 'HS256', kid: 'key-1' })),
      byStranger: await refusalOf(await sign(privateKey, { alg: 'ES256', kid: 'key-1' })),
      byUnknownKey: await refusalOf(await sign(privateKey, { alg: 'ES256', kid: 'key-9' })),
      rubbish: await refusalOf('abc'),
    };
    expect(refused).toEqual({
      expired: 'that has expired',
      early: 'that is not valid yet',
      endless: 'that has no right claim exp',
      elsewhere: '',
      ofOthers: 'that is from an unknown issuer',
      changed: 'that has a wrong signature',
      unsigned: 'that is not signed with a public-key algorithm',
      cut: 'that has a wrong signature',
      byPublicKey: 'that is not signed with a public-key algorithm',
      byStranger: 'that has a wrong signature',
      byUnknownKey: 'that is signed with a key that its issuer does not publish',
      rubbish: 'that is not a signed JWT',
    });
    expect(JSON.stringify(pair.gateway.logged)).not.toContain(head);
  });
});

describe('the keys of an issuer', () => {
  test('are fetched once for any number of tokens, and not again for each unknown key id', async () => {
    const tokens = await Promise.all(
      Array.from({ length: 20 }, (_, index) => issuer.token({}, index % 2 === 0 ? {} : { kid: `k${index}` })),
    );
    const statuses = await Promise.all(tokens.map(statusOf));
    expect(statuses.filter((status) => status === 200)).toHaveLength(10);
    expect(issuer.fetched).toBe(1);
  });

  test('are fetched again for a new key id', async () => {
    const old = await issuer.token();
    await issuer.rotate();
    const fresh = await issuer.token();
    now += 11_000;
    expect([await statusOf(fresh), issuer.fetched]).toEqual([200, 2]);
    expect(await refusalOf(old)).toBe('that is signed with a key that its issuer does not publish');
    expect(issuer.fetched).toBe(2);
  });

  test('are renewed in the background, so that a withdrawn one is refused', async () => {
    const old = await issuer.token();
    await issuer.rotate();
    now += 601_000;
    expect(await statusOf(old)).toBe(200);
    await until(async () => (await statusOf(old)) === 401);
    expect(issuer.fetched).toBe(2);
  });

  test('stay valid while the issuer is unreachable; a token with another key gets 503', async () => {
    const old = await issuer.token();
    await issuer.rotate();
    issuer.answer({ status: 503, body: 'gone' });
    now += 11_000;
    const { status, code, detail } = await call(pair.gateway, bearer(await issuer.token()));
    expect([status, code, detail]).toEqual([
      503,
      'identity-unavailable',
      'The Bearer token cannot be checked: the public keys of its issuer cannot be fetched. Send the request again.',
    ]);
    expect(await statusOf(old)).toBe(200);
    issuer.answer(undefined);
    now += 1_000;
    expect(await statusOf(await issuer.token())).toBe(200);
    const told = pair.gateway.logged.filter(({ issuer: of }) => of === issuer.issuer);
    expect(told.map(({ msg }) => msg)).toEqual([
      'keys of a token issuer cannot be fetched; check jwksUrl',
      'keys of a token issuer fetched again',
    ]);
  });

  test('serve on after reloads while they are fetched again, and while that fails', async () => {
    const token = await issuer.token();
    issuer.answer('hang');
    await reload(settings());
    expect(await statusOf(token)).toBe(200);
    await until(() => issuer.fetched > 1);
    await reload(settings());
    expect(await statusOf(token)).toBe(200);
    issuer.answer({ status: 503, body: 'gone' });
    await until(() => pair.gateway.logged.some(({ issuer: of }) => of === issuer.issuer));
    await reload(settings());
    expect(await statusOf(token)).toBe(200);
  });

  test('are fetched again at a reload, so that a withdrawn one is refused', async () => {
    const old = await issuer.token();
    await issuer.rotate();
    await reload(settings());
    await until(async () => (await statusOf(old)) === 401);
    expect(await statusOf(await issuer.token())).toBe(200);
  });

  test('are dropped at a reload with another jwksUrl', async () => {
    const old = await issuer.token();
    await issuer.rotate();
    await reload(settings({ jwksUrl: `${issuer.issuer}other-keys` }));
    expect(await refusalOf(old)).toBe('that is signed with a key that its issuer does not publish');
    expect(await statusOf(await issuer.token())).toBe(200);
  });

  test.each([
    ['importer', 401],
    ['batch', 200],
  ])('are waited for while a reload removes a client: %s', async (without, status) => {
    await issuer.rotate();
    issuer.answer('hang');
    now += 11_000;
    const asked = call(pair.gateway, bearer(await issuer.token()));
    await until(() => issuer.fetched > 1);
    await reload(settings({ without }));
    issuer.answer(undefined);
    expect((await asked).status).toBe(status);
    expect(await requestsOf(pair.gateway, 'importer')).toBe(status === 200 ? 1 : 0);
  });

  test('are fetched again after a clock that was ahead has gone back', async () => {
    now = 3_600_000;
    expect(await statusOf(await issuer.token())).toBe(200);
    // An unknown key is refused once the fetch that is under way has ended.
    await refusalOf(await issuer.token({}, { kid: 'unknown' }));
    expect(issuer.fetched).toBe(2);
    await issuer.rotate();
    now = 0;
    const token = await issuer.token();
    await until(async () => (await statusOf(token)) === 200);
  });

  test('are fetched again after a fetch that failed by a clock that was ahead', async () => {
    await issuer.rotate();
    issuer.answer({ status: 503, body: 'gone' });
    now = 3_600_000;
    expect(await statusOf(await issuer.token())).toBe(503);
    issuer.answer(undefined);
    now = 11_000;
    expect(await statusOf(await issuer.token())).toBe(200);
  });

  test('are not read beyond a mebibyte', async () => {
    const old = await issuer.token();
    await issuer.rotate();
    issuer.answer({ status: 200, body: JSON.stringify({ keys: [], padding: 'x'.repeat(2 ** 20) }) });
    now += 11_000;
    const { code } = await call(pair.gateway, bearer(await issuer.token()));
    expect([code, await statusOf(old)]).toEqual(['identity-unavailable', 200]);
    const [{ reason } = {}] = pair.gateway.logged.filter(({ issuer: of }) => of === issuer.issuer);
    expect(reason).toContain('max size');
  });

  test('delay no client without a token if they hang or are malformed', async () => {
    for (const how of ['hang', { status: 200, body: '{}' }, { status: 200, body: '<html>' }] as const) {
      issuer.answer(how);
      now += 601_000;
      const known = await call(pair.gateway, { from: '127.0.8.1' });
      const nobody = await call(pair.gateway);
      expect([how, known.status, nobody.code]).toEqual([how, 200, 'client-unknown']);
    }
    expect(issuer.fetched).toBe(1);
  });
});
