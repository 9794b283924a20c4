import { createServer, type Socket } from 'node:net';
import { describe, expect, test } from '@jest/globals';
import { closedAtEnd, closing } from '../../support/closing.ts';
import { startGateway } from '../../support/gateway.ts';
import { listenOnLoopback } from '../../support/loopback-server.ts';
import { outcomeOf } from '../../support/scene.ts';
import { startRawUpstream } from '../../support/scripted-upstream.ts';
import { until } from '../../support/until.ts';
import { startAvailability } from './availability-scene.ts';

/** High enough that no circuit opens here. */
const circuit = { minimum: 1_000_000 };
const retries = (reason: string) =>
  ['digest_gateway_retries_total', { deployment: 'submissions', reason }] as const;

describe('a request whose connection broke before the response began', () => {
  test('is sent again as often as retry.attempts says', async () => {
    for (const attempts of [0, 1, 3]) {
      const scene = await startAvailability({ settings: { circuit, retry: { attempts } } });
      await scene.relays[0]?.set('resetting');
      expect(await scene.outcomes(1)).toEqual(['502 upstream-unreachable']);
      expect(scene.relays[0]?.connections).toBe(1 + attempts);
      expect(await scene.gateway.metric(...retries('connection_broke'))).toBe(attempts);
    }
  });

  test('is sent again once after an idle connection, whatever the settings', async () => {
    const scene = await startAvailability({ settings: { circuit, retry: { attempts: 0 } } });
    expect(await scene.outcomes(1)).toEqual(['200']);
    await scene.relays[0]?.set('resetting');
    expect(await scene.outcomes(1)).toEqual(['502 upstream-unreachable']);
    expect(await scene.gateway.metric(...retries('stale_connection'))).toBe(1);
    expect(scene.relays[0]?.connections).toBe(2);
  });

  test('is sent again only as often as retry.attempts says if the upstream has worked on it for a second', async () => {
    const scene = await startAvailability({ settings: { circuit, retry: { attempts: 0 } } });
    expect(await scene.outcomes(1)).toEqual(['200']);
    const [relay] = scene.relays;
    const before = relay?.requests ?? 0;
    await relay?.set('silent');
    const outcome = scene.outcomes(1);
    await until(() => (relay?.requests ?? 0) > before);
    scene.advance(1_000);
    relay?.resetAll();
    expect(await outcome).toEqual(['502 upstream-unreachable']);
    expect(await scene.gateway.metric(...retries('stale_connection'))).toBe(0);
    expect(relay?.connections).toBe(1);
  });

  test('is not sent again if it is a POST', async () => {
    const scene = await startAvailability({ settings: { circuit } });
    await scene.relays[0]?.set('resetting');
    expect(await outcomeOf(await scene.get('/echo', { method: 'POST', body: 'x' }))).toBe(
      '502 upstream-unreachable',
    );
    expect(scene.relays[0]?.connections).toBe(1);
  });

  test('is sent again within the budget of all requests only', async () => {
    const scene = await startAvailability({ settings: { circuit } });
    await scene.relays[0]?.set('resetting');
    expect(await scene.outcomes(40)).toEqual(Array(40).fill('502 upstream-unreachable'));
    expect(scene.relays[0]?.connections).toBe(40 + 30);
    expect(await scene.gateway.metric(...retries('connection_broke'))).toBe(30);
    expect(await scene.gateway.metric(...retries('denied'))).toBe(10);
    scene.advance(10_000);
    await scene.outcomes(1);
    expect(scene.relays[0]?.connections).toBe(70 + 2);
  });
});

describe('a request whose connection broke after the first byte of a response', () => {
  test.each([
    ['an interim response', 'HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n'],
    ['the start of a head', 'HTTP/1.1 200 OK\r\n'],
    ['one byte', 'H'],
  ])('is not sent again: %s', async (_what, begun) => {
    let requests = 0;
    const upstream = await startRawUpstream(() => {
      requests += 1;
      return { text: begun, end: true };
    });
    closing.push(() => upstream.close());
    const settings = { tls: { allowPlaintext: true }, health: { interval: 'off' } };
    const gateway = await closedAtEnd(startGateway({ submissions: { origin: upstream.origin, settings } }));
    expect(await outcomeOf(await fetch(`${gateway.origin}/`))).toBe('502 upstream-unreachable');
    expect(requests).toBe(1);
  });
});

describe('an upstream that closes behind its 401 without saying so', () => {
  /** It ends a connection when the next request comes on it after a 401, as if that had crossed its FIN. */
  async function startClosing(isReused: boolean) {
    let connections = 0;
    let issued = 0;
    const spent = new Set<string>();
    const server = createServer((socket: Socket) => {
      connections += 1;
      let isClosing = false;
      socket.on('error', () => socket.destroy());
      socket.on('data', (bytes) => {
        const head = bytes.toString('latin1');
        const nonce = /nonce="(n\d+)"/.exec(head)?.[1];
        if (isClosing && !isReused) {
          socket.destroy();
        } else if (nonce !== undefined && !spent.has(nonce)) {
          spent.add(nonce);
          socket.write('HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok');
        } else {
          issued += 1;
          isClosing = true;
          const challenge = `Digest realm="r", nonce="n${issued}", qop="auth", stale=${nonce !== undefined}`;
          socket.write(`HTTP/1.1 401 No\r\nWWW-Authenticate: ${challenge}\r\nContent-Length: 0\r\n\r\n`);
        }
      });
    });
    const listening = await listenOnLoopback(server);
    closing.push(async () => listening[Symbol.asyncDispose]());
    const settings = {
      tls: { allowPlaintext: true },
      health: { interval: 'off' },
      digest: { noncePolicy: 'single-use' },
    };
    const origin = `http://127.0.0.1:${listening.port}`;
    const gateway = await closedAtEnd(startGateway({ submissions: { origin, settings } }));
    const post = async (): Promise<string> =>
      outcomeOf(await fetch(`${gateway.origin}/`, { method: 'POST', body: 'x' }));
    return { gateway, post, connections: () => connections };
  }

  test('serves each POST', async () => {
    const { post } = await startClosing(false);
    for (let count = 0; count < 5; count += 1) expect(await post()).toBe('200');
  });

  test('costs one that keeps its connections no new one once a request has shown that it does', async () => {
    const { gateway, post, connections } = await startClosing(true);
    expect((await fetch(`${gateway.origin}/`)).status).toBe(200);
    for (let count = 0; count < 5; count += 1) expect(await post()).toBe('200');
    expect(connections()).toBe(1);
  });
});
