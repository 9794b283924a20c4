import { afterEach, expect, test } from '@jest/globals';
import { Pool } from 'undici';
import { startApache } from '../../support/apache.ts';
import { useScenes } from '../../support/gateway-scene.ts';
import { echoOf, type RealServer } from '../../support/real-server.ts';
import { type ScriptedUpstream, startUpstream } from '../../support/scripted-upstream.ts';

const setScene = useScenes();
const closing: (() => Promise<void>)[] = [];
afterEach(async () => {
  for (const close of closing.splice(0).reverse()) await close();
});

/** Somebody between gateway and Apache, who passes everything on but for what `change` does to the proof. */
async function startBetween(
  { deployment: { origin, ca = '' } }: RealServer,
  change: (authenticationInfo: string) => string,
): Promise<ScriptedUpstream> {
  const apache = new Pool(origin, { connect: { ca } });
  closing.push(() => apache.close());
  const between = await startUpstream(async (req, res) => {
    const { authorization } = req.headers;
    const { statusCode, headers, body } = await apache.request({
      path: req.url ?? '',
      method: 'GET',
      headers: authorization === undefined ? {} : { authorization },
    });
    const { 'authentication-info': proof, 'www-authenticate': challenge } = headers;
    if (challenge !== undefined) res.setHeader('www-authenticate', challenge);
    if (typeof proof === 'string') res.setHeader('authentication-info', change(proof));
    res.writeHead(statusCode).end(await body.text());
  });
  closing.push(() => between.close());
  return between;
}

async function setSceneBetween(change: (authenticationInfo: string) => string) {
  const server = await startApache();
  const between = await startBetween(server, change).catch(async (error) => {
    await server.close();
    throw error;
  });
  return setScene(Promise.resolve(server), {
    origin: between.origin,
    settings: { tls: { allowPlaintext: true } },
  });
}

test('its rspauth is taken, and the client does not see it', async () => {
  const proofs: string[] = [];
  const { ask, attempts } = await setSceneBetween((proof) => {
    proofs.push(proof);
    return proof;
  });
  for (const target of ['/api/1?ids=%27A%27', '/api/2']) {
    const seen = await ask(target);
    expect([seen.status, seen.body]).toEqual([200, echoOf('GET', target)]);
    expect(seen.headers['authentication-info']).toBeUndefined();
  }
  expect(proofs).toEqual([
    expect.stringMatching(/rspauth="[0-9a-f]{32}".*nc=00000001/),
    expect.stringMatching(/rspauth="[0-9a-f]{32}".*nc=00000002/),
  ]);
  expect(await attempts()).toEqual({ challenged: 1, ok: 2 });
});

test('an answer with the proof of another is withheld', async () => {
  let first: string | undefined;
  const { ask, attempts } = await setSceneBetween((proof) => {
    first ??= proof;
    return first;
  });
  expect((await ask('/api/1')).status).toBe(200);
  const seen = await ask('/api/2');
  expect([seen.status, JSON.parse(seen.body)]).toMatchObject([502, { code: 'upstream-proof-invalid' }]);
  expect(await attempts()).toEqual({ challenged: 1, ok: 1, error: 1 });
});
