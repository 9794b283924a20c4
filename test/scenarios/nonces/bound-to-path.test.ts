import { createHash } from 'node:crypto';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { describe, expect, test } from '@jest/globals';
import { closedAtEnd } from '../../support/closing.ts';
import { readChallenges } from '../../support/digest-client.ts';
import { startGateway } from '../../support/gateway.ts';
import { startUpstream } from '../../support/scripted-upstream.ts';

const CROWD = 8;

type Listener = (req: IncomingMessage, res: ServerResponse) => void;

/** Hands over the first requests of a crowd when all of it have come: on any machine none asks while another one repeats. */
function together(listener: Listener): Listener {
  const seen = new Set<string>();
  let waiting: (() => void)[] = [];
  return (req, res) => {
    const { url = '' } = req;
    if (url === '/first' || seen.has(url)) return listener(req, res);
    seen.add(url);
    waiting.push(() => listener(req, res));
    if (waiting.length < CROWD) return;
    for (const handOver of waiting) handOver();
    waiting = [];
  };
}

/**
 * As libmicrohttpd 0.9.75 within one second, with one place for nonces instead of four: a nonce is that of method and
 * target, takes the place of the last one, and is refused without stale when it has lost it.
 */
function answerer(): Listener {
  let place = { nonce: '', nc: 0 };
  return ({ method, url, headers }, res) => {
    const nonce = createHash('sha256').update(`${method} ${url}`).digest('hex');
    const [sent] = readChallenges([headers.authorization ?? '']);
    const nc = Number.parseInt(sent?.get('nc') ?? '', 16);
    const isKept = sent?.get('nonce') === place.nonce && nc > place.nc;
    if (isKept && place.nonce === nonce) {
      place.nc = nc;
      res.end();
      return;
    }
    place = { nonce, nc: 0 };
    const stale = isKept ? ', stale=true' : '';
    res.setHeader('www-authenticate', `Digest realm="r", nonce="${nonce}", qop="auth"${stale}`);
    res.writeHead(401).end();
  };
}

describe('an upstream that binds nonces to targets, and has few places for them', () => {
  test('serves a crowd that asks for as many targets at once', async () => {
    const upstream = await closedAtEnd(startUpstream(together(answerer())));
    const settings = { tls: { allowPlaintext: true } };
    const gateway = await closedAtEnd(startGateway({ bound: { origin: upstream.origin, settings } }));
    const statusOf = async (target: string): Promise<number> => {
      const response = await fetch(`${gateway.origin}${target}`);
      await response.arrayBuffer();
      return response.status;
    };
    expect(await statusOf('/first')).toBe(200);
    for (const round of ['a', 'b', 'c']) {
      const crowd = Array.from({ length: CROWD }, (_, index) => statusOf(`/${round}/${index}`));
      expect(await Promise.all(crowd)).toEqual(crowd.map(() => 200));
    }
  });

  test('serves a body that is not kept from the second on: HEAD obtains a nonce for HEAD only', async () => {
    const upstream = await closedAtEnd(startUpstream(answerer()));
    const settings = { tls: { allowPlaintext: true }, body: { replayUpTo: '1KiB' } };
    const gateway = await closedAtEnd(startGateway({ bound: { origin: upstream.origin, settings } }));
    const put = async (target = '/file'): Promise<number> =>
      (await fetch(`${gateway.origin}${target}`, { method: 'PUT', body: Buffer.alloc(2_000) })).status;
    expect([await put(), await put(), await put('/other')]).toEqual([502, 200, 200]);
    // Nonces that serve others are not used for it.
    for (let left = 3; left > 0; left -= 1) expect((await fetch(`${gateway.origin}/get`)).status).toBe(200);
    expect(await put()).toBe(200);
  });
});
