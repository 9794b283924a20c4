import { hash } from 'node:crypto';
import { createConnection } from 'node:net';
import { describe, expect, test } from '@jest/globals';
import { startGateway } from '../../support/gateway.ts';
import { startRelay } from '../../support/relay.ts';
import { outcomeOf, type RunningScene, startScene } from '../../support/scene.ts';
import { startUpstream } from '../../support/scripted-upstream.ts';
import { until } from '../../support/until.ts';

const NAME = 'submissions';
/** libsoup 3 refuses a target with this legal octet, as other servers refuse others. */
const upstream = { refusedTargets: '%27', qop: 'auth', staleFlag: 'never' } as const;
const REFUSED = '502 upstream-target-refused';

const outcome = async (pair: RunningScene, target: string): Promise<string> =>
  outcomeOf(await pair.get(target));
const failedLogins = ({ simulator }: RunningScene): number =>
  simulator.counts(NAME).refused['wrong-response'];
const state = ({ gateway }: RunningScene) =>
  gateway.metric('digest_gateway_credential_state', { deployment: NAME, state: 'in-use' });

/** Over it, a client can leave when the upstream has refused its request, and before the gateway hears of that. */
const relay = (port: number) => startRelay(port, () => ({ answerMs: 80 }));

/** Sends a request whose client leaves when the upstream has refused it, or gets its response. */
async function leave(pair: RunningScene, target: string): Promise<void> {
  const before = failedLogins(pair);
  const leaving = new AbortController();
  let isOver = false;
  const asked = pair
    .get(target, { signal: leaving.signal })
    .then((response) => response.text())
    .catch((error: Error) => error.name)
    .finally(() => {
      isOver = true;
    });
  await until(() => isOver || failedLogins(pair) > before);
  leaving.abort();
  await asked;
}

describe('a target that the upstream refuses although it accepts the credential', () => {
  test('as the first of a start: fails its own requests only', async () => {
    const pair = await startScene({ behaviour: upstream });
    expect(await outcome(pair, '/echo?q=%27')).toBe(REFUSED);
    expect([await outcome(pair, '/echo'), await state(pair)]).toEqual(['200', 1]);
    expect(pair.gateway.logged.filter(({ code }) => code === 'upstream-credential-refused')).toEqual([]);
  });

  test('in a crowd at a start: each other request is served', async () => {
    const pair = await startScene({ behaviour: upstream });
    const targets = Array.from({ length: 20 }, (_, index) => (index % 2 === 0 ? '/echo?q=%27' : '/echo'));
    const outcomes = await Promise.all(targets.map((target) => outcome(pair, target)));
    expect(outcomes.filter((_, index) => index % 2 === 1)).toEqual(Array(10).fill('200'));
    expect(new Set(outcomes.filter((_, index) => index % 2 === 0))).toEqual(new Set([REFUSED]));
  });

  test('does not shut the credential out while the neutral target is one of the deployment', async () => {
    const pair = await startScene({ behaviour: upstream, settings: { health: { path: '/status/200' } } });
    expect(await outcome(pair, '/echo/%27')).toBe(REFUSED);
    expect(await outcome(pair, '/echo')).toBe('200');
  });

  test('does not shut the credential out while the neutral target serves everybody, once others were served', async () => {
    let nonces = 0;
    await using service = await startUpstream((req, res) => {
      nonces += 1;
      const isRefused = req.headers.authorization === undefined || req.url === '/refused';
      if (isRefused && req.url !== '/')
        res.writeHead(401, { 'www-authenticate': `Digest realm="r", qop="auth", nonce="${nonces}"` });
      res.end();
    });
    const rule = { allow: [{ deployment: 'service' }] };
    await using gateway = await startGateway(
      { service: { origin: service.origin, settings: { tls: { allowPlaintext: true } } } },
      {
        anonymous: false,
        clients: [
          { id: 'one', identify: { apiKeySha256: hash('sha256', 'key') }, ...rule },
          { id: 'other', identify: { addresses: ['127.0.0.1'] }, ...rule },
        ],
      },
    );
    const ask = async (path: string, init?: RequestInit): Promise<string> =>
      outcomeOf(await fetch(`${gateway.origin}${path}`, init));
    // Only a GET that was asked for authentication shows a target that needs it.
    expect(await ask('/items', { method: 'POST' })).toBe('200');
    expect(await ask('/items/1')).toBe('200');
    const headers = { 'x-api-key': 'key' };
    expect(await ask('/', { headers })).toBe('200');
    expect(await ask('/refused', { headers })).toBe(REFUSED);
    expect([await ask('/items/1'), await ask('/items/1')]).toEqual(['200', '200']);
  });

  test('costs few failed log-ins, by target, and by client and path', async () => {
    const pair = await startScene({ behaviour: upstream, settings: { digest: { attemptsWhenRefused: 2 } } });
    expect(await outcome(pair, '/echo')).toBe('200');
    for (let count = 0; count < 20; count += 1) expect(await outcome(pair, '/echo?q=%27')).toBe(REFUSED);
    expect(failedLogins(pair)).toBeLessThanOrEqual(4);
    for (let count = 0; count < 30; count += 1) {
      expect(await outcome(pair, `/echo?q=%27${count}`)).toBe(REFUSED);
    }
    expect(failedLogins(pair)).toBeLessThanOrEqual(20);
    expect([await outcome(pair, '/headers'), await state(pair)]).toEqual(['200', 1]);
  });

  test('costs few failed log-ins, however many paths there are, and paths that serve go on', async () => {
    const pair = await startScene({ behaviour: upstream, settings: { digest: { attemptsWhenRefused: 2 } } });
    for (let count = 0; count < 60; count += 1) {
      expect(await outcome(pair, `/echo/${count}?q=%27`)).toBe(REFUSED);
      expect(await outcome(pair, '/echo')).toBe('200');
    }
    const refused = failedLogins(pair);
    // 20 requests.
    expect(refused).toBeLessThanOrEqual(40);
    expect(await outcome(pair, '/echo/new')).toBe(REFUSED);
    expect([failedLogins(pair), await state(pair)]).toEqual([refused, 1]);
  });

  test('costs few failed log-ins, although other targets of the same path are served in between', async () => {
    const pair = await startScene({ behaviour: upstream, settings: { digest: { attemptsWhenRefused: 2 } } });
    for (let count = 0; count < 30; count += 1) {
      await outcome(pair, `/echo?q=%27${count}`);
      await outcome(pair, `/echo?q=${count}`);
    }
    // 20 requests, and one because the path had served.
    expect(failedLogins(pair)).toBeLessThanOrEqual(42);
    expect(await state(pair)).toBe(1);
  });

  test('costs few failed log-ins, although its client leaves before the refusal has come', async () => {
    const pair = await startScene({ behaviour: upstream, relay });
    expect(await outcome(pair, '/echo')).toBe('200');
    for (let count = 0; count < 40; count += 1) await leave(pair, `/echo?q=%27${count}`);
    expect(failedLogins(pair)).toBeLessThanOrEqual(20);
    expect([await outcome(pair, '/echo?q=%27'), await outcome(pair, '/headers')]).toEqual([REFUSED, '200']);
  });

  test('costs few failed log-ins, although its client leaves in a body that is not kept', async () => {
    let refused = 0;
    let nonces = 0;
    await using service = await startUpstream((req, res) => {
      const { authorization } = req.headers;
      req.on('error', () => undefined);
      if (authorization !== undefined && req.url !== '/refused') {
        res.end('whole');
        return;
      }
      nonces += 1;
      const challenge = { 'www-authenticate': `Digest realm="r", qop="auth", nonce="${nonces}"` };
      if (authorization === undefined) {
        res.writeHead(401, challenge).end();
        return;
      }
      refused += 1;
      setTimeout(() => res.writeHead(401, challenge).end(), 80);
    });
    const settings = { tls: { allowPlaintext: true } };
    await using gateway = await startGateway({ service: { origin: service.origin, settings } });
    expect((await fetch(gateway.origin)).status).toBe(200);
    for (let count = 0; count < 30; count += 1) {
      const before = refused;
      let isAnswered = false;
      const client = createConnection(gateway.port, '127.0.0.1');
      client.on('error', () => client.destroy());
      client.on('data', () => {
        isAnswered = true;
      });
      client.write('POST /refused HTTP/1.1\r\nHost: x\r\nContent-Length: 3000000\r\n\r\nx');
      await until(() => isAnswered || refused > before);
      client.destroy();
      await until(async () => (await gateway.metric('digest_gateway_requests_in_flight')) === 0);
    }
    expect(refused).toBeLessThanOrEqual(15);
  });

  test('costs few failed log-ins, although the bodies are not kept, and go out with known nonces', async () => {
    let [nonces, refused, empty] = [0, 0, 0];
    await using service = await startUpstream((req, res) => {
      const { authorization } = req.headers;
      const isRefused = req.method !== 'HEAD' && req.url?.startsWith('/refused') === true;
      if (authorization !== undefined && isRefused) refused += 1;
      if (req.method === 'POST' && req.headers['content-length'] === '0') empty += 1;
      req.resume().on('end', () => {
        if (authorization === undefined || isRefused) {
          nonces += 1;
          const challenge = `Digest realm="r", qop="auth", nonce="${nonces}"`;
          res.writeHead(401, { 'www-authenticate': challenge });
        }
        res.end();
      });
    });
    const settings = { tls: { allowPlaintext: true }, digest: { attemptsWhenRefused: 2 } };
    await using gateway = await startGateway({ service: { origin: service.origin, settings } });
    const body = Buffer.alloc(1_500_000);
    const upload = async (path: string): Promise<string> =>
      outcomeOf(await fetch(`${gateway.origin}${path}`, { method: 'POST', body }));
    expect((await fetch(gateway.origin)).status).toBe(200);
    const outcomes = [];
    for (let count = 0; count < 60; count += 1) {
      outcomes.push(await upload(`/refused/${count}`));
      expect((await fetch(gateway.origin)).status).toBe(200);
    }
    expect(outcomes.slice(1)).toEqual(Array(59).fill(REFUSED));
    // The first one, and as many as a client may have.
    expect(refused).toBeLessThanOrEqual(21);
    expect([await upload('/refused/new'), refused, empty]).toEqual([REFUSED, refused, 0]);
  });

  test('teaches nothing of how nonces may be used, or for how long', async () => {
    const pair = await startScene({ behaviour: upstream, relay });
    expect(await outcome(pair, '/echo')).toBe('200');
    const targets = ['/echo?q=%27', '/echo?1', '/echo?2', '/echo?3'];
    const outcomes = await Promise.all(targets.map((target) => outcome(pair, target)));
    expect(outcomes).toEqual([REFUSED, '200', '200', '200']);
    for (let count = 0; count < 4; count += 1) {
      expect(await outcome(pair, '/echo')).toBe('200');
      expect(await outcome(pair, `/echo/${count}?q=%27`)).toBe(REFUSED);
    }
    const { metric } = pair.gateway;
    expect(await metric('digest_gateway_nonce_policy', { deployment: NAME, policy: 'shared' })).toBe(1);
    expect(await metric('digest_gateway_nonce_lifetime_seconds', { deployment: NAME })).toBe(0);
  });

  test('gets no attempt that is due of a refused credential: they go to a target of the gateway', async () => {
    let at = 0;
    const clock = { now: () => at };
    const pair = await startScene({ behaviour: upstream, clock });
    const account = { username: 'demo-user', sites: ['demo'] };
    pair.simulator.set(NAME, { accounts: [{ ...account, password: 'another' }] });
    expect(await outcome(pair, '/echo')).toBe('502 upstream-credential-refused');
    pair.simulator.set(NAME, { accounts: [{ ...account, password: 'demo-api-key' }] });
    at += 60_000;
    expect(await outcome(pair, '/echo?q=%27')).toBe(REFUSED);
    expect(await outcome(pair, '/echo')).toBe('200');
  });

  test('a wrong password costs as many failed log-ins as a minute may have', async () => {
    const pair = await startScene({ behaviour: { qop: 'auth' }, password: 'wrong' });
    const outcomes = await Promise.all(Array.from({ length: 20 }, () => outcome(pair, '/echo')));
    expect(new Set(outcomes)).toEqual(new Set(['502 upstream-credential-refused']));
    expect(failedLogins(pair)).toBe(2);
  });
});

describe('a wrong password costs few failed log-ins, although each client leaves before the refusal has come', () => {
  test('from the start on', async () => {
    const pair = await startScene({ behaviour: { qop: 'auth' }, password: 'wrong', relay });
    for (let count = 0; count < 30; count += 1) await leave(pair, '/echo');
    expect(failedLogins(pair)).toBeLessThanOrEqual(10);
    expect(await outcome(pair, '/echo')).toBe('502 upstream-credential-refused');
  });

  test('after it was right', async () => {
    const pair = await startScene({ behaviour: { qop: 'auth' }, relay });
    expect(await outcome(pair, '/echo')).toBe('200');
    const account = { username: 'demo-user', sites: ['demo'], password: 'another' };
    pair.simulator.set(NAME, { accounts: [account] });
    for (let count = 0; count < 30; count += 1) await leave(pair, '/echo');
    expect(failedLogins(pair)).toBeLessThanOrEqual(10);
    expect(await outcome(pair, '/echo')).toBe('502 upstream-credential-refused');
  });
});
