import { createServer } from 'node:http';
import { createServer as createTls } from 'node:https';
import { expect, test } from '@jest/globals';
import { examineSignIn } from '../../src/doctor/doctor.ts';
import { closing } from '../support/closing.ts';
import { createTestAuthority } from '../support/issued-certificates.ts';
import { listenOnLoopback } from '../support/loopback-server.ts';
import { openOidc } from '../support/oidc.ts';

const CLIENT = { clientId: 'digest-gateway', clientSecret: undefined, ca: undefined };

/** Examines a provider with this discovery document; a text is sent as it is. */
async function examine(document: (issuer: string) => object | string) {
  const server = await listenOnLoopback(
    createServer((_req, res) => {
      const body = document(issuer);
      res.writeHead(200, { 'content-type': 'application/json' });
      res.end(typeof body === 'string' ? body : JSON.stringify(body));
    }),
  );
  closing.push(server.close);
  const issuer = `http://127.0.0.1:${server.port}`;
  return examineSignIn({ issuer, ...CLIENT });
}

test('a real provider is fine', async () => {
  await using provider = await openOidc({ people: {} });
  const { issuer } = provider;
  expect(await examineSignIn({ issuer, ...CLIENT })).toEqual({
    check: 'sign-in',
    mark: 'ok',
    saw: `the discovery document is of ${issuer}, with a place to sign out`,
    facts: { issuer, endsSessions: true },
  });
});

test.each<[string, (issuer: string) => object | string, object]>([
  [
    'another issuer',
    () => ({ issuer: 'https://other.example' }),
    { mark: 'fail', problem: 'sign-in-issuer' },
  ],
  ['no JSON', () => 'no', { mark: 'fail', problem: 'sign-in-unusable' }],
  ['no endpoint', (issuer) => ({ issuer }), { mark: 'fail', problem: 'sign-in-unusable' }],
  [
    'no PKCE with S256',
    (issuer) => ({
      issuer,
      authorization_endpoint: `${issuer}/auth`,
      code_challenge_methods_supported: ['plain'],
    }),
    { mark: 'warn', problem: 'sign-in-without-pkce' },
  ],
])('a discovery document with %s is found', async (_name, document, finding) => {
  expect(await examine(document)).toMatchObject(finding);
});

test('a provider that cannot be reached is found, with the reason', async () => {
  const server = await listenOnLoopback(createServer());
  await server.close();
  expect(await examineSignIn({ issuer: `http://127.0.0.1:${server.port}`, ...CLIENT })).toMatchObject({
    problem: 'sign-in-unreachable',
    saw: expect.stringContaining('ECONNREFUSED'),
  });
});

test('the certificate of a provider is verified, by the authorities of caFile', async () => {
  const authority = await createTestAuthority();
  const server = await listenOnLoopback(
    createTls(await authority.server(), (_req, res) => {
      res.setHeader('content-type', 'application/json');
      res.end(JSON.stringify({ issuer, authorization_endpoint: `${issuer}/auth` }));
    }),
  );
  closing.push(server.close);
  const issuer = `https://127.0.0.1:${server.port}`;
  expect(await examineSignIn({ issuer, ...CLIENT, ca: authority.ca })).toMatchObject({ mark: 'ok' });
  expect(await examineSignIn({ issuer, ...CLIENT })).toMatchObject({ problem: 'sign-in-unreachable' });
});
