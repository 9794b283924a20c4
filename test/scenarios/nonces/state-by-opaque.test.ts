import type { IncomingMessage, ServerResponse } from 'node:http';
import { describe, expect, test } from '@jest/globals';
import { closedAtEnd, closing } from '../../support/closing.ts';
import { readChallenges } from '../../support/digest-client.ts';
import { type RunningGateway, startGateway } from '../../support/gateway.ts';
import { startUpstream } from '../../support/scripted-upstream.ts';

const CROWD = 2;

interface Held {
  readonly nc: number;
  readonly reply: () => void;
}

/**
 * An upstream that counts as Apache does with AuthDigestNcCheck: one count for each opaque, which a challenge sets
 * back to 0. The first requests to /crowd arrive together and in the wrong order.
 */
async function startCounting(): Promise<RunningGateway> {
  const counts = new Map<string, number>();
  const held: Held[] = [];
  let opaques = 0;
  let nonces = 0;
  const challenge = (res: ServerResponse, opaque: string): void => {
    nonces += 1;
    counts.set(opaque, 0);
    res.setHeader(
      'www-authenticate',
      `Digest realm="r", nonce="n${nonces}", opaque="${opaque}", algorithm=MD5, qop="auth"`,
    );
    res.writeHead(401).end();
  };
  const check = (res: ServerResponse, opaque: string, nc: number): void => {
    const count = (counts.get(opaque) ?? 0) + 1;
    counts.set(opaque, count);
    if (nc === count) res.end();
    else challenge(res, opaque);
  };
  const upstream = await startUpstream((req: IncomingMessage, res: ServerResponse) => {
    const [sent] = readChallenges([req.headers.authorization ?? '']);
    if (sent === undefined) {
      opaques += 1;
      challenge(res, `o${opaques}`);
      return;
    }
    const nc = Number.parseInt(sent.get('nc') ?? '', 16);
    const reply = (): void => check(res, sent.get('opaque') ?? '', nc);
    if (req.url !== '/crowd' || held.length === CROWD) {
      reply();
      return;
    }
    held.push({ nc, reply });
    if (held.length === CROWD) for (const each of held.toSorted((a, b) => b.nc - a.nc)) each.reply();
  });
  closing.push(() => upstream.close());
  const settings = { tls: { allowPlaintext: true } };
  // All that happens is recent, however slow the machine is.
  const clock = { now: () => 0 };
  const gateway = await startGateway({ counting: { origin: upstream.origin, settings } }, {}, { clock });
  closing.push(() => gateway.close());
  return gateway;
}

test('requests that were refused together do not answer challenges of the same state', async () => {
  const gateway = await startCounting();
  expect((await fetch(`${gateway.origin}/first`)).status).toBe(200);
  const answers = await Promise.all([1, 2].map(() => fetch(`${gateway.origin}/crowd`)));
  expect(answers.map(({ status }) => status)).toEqual([200, 200]);
});

describe('an upstream that counts for each opaque, and whose nonce is the same for a second,', () => {
  /** It does so as WEBrick with CheckNc, which names the next nonce in each response. */
  async function startWebrick() {
    const counts = new Map<string, number>();
    const seen: string[] = [];
    let second = 1;
    const upstream = await startUpstream((req, res) => {
      const [sent] = readChallenges([req.headers.authorization ?? '']);
      const opaque = sent?.get('opaque') ?? '';
      const count = counts.get(opaque);
      const isNext = count !== undefined && Number.parseInt(sent?.get('nc') ?? '', 16) === count + 1;
      seen.push(`${req.url} ${isNext ? 'accepted' : 'refused'}`);
      if (isNext) {
        counts.set(opaque, count + 1);
        res.setHeader('authentication-info', `nextnonce="n${second}"`);
        res.end();
        return;
      }
      counts.delete(opaque);
      counts.set(`o${seen.length}`, 0);
      const challenge = `Digest realm="r", nonce="n${second}", opaque="o${seen.length}", algorithm=MD5, qop="auth", stale=${sent !== undefined}`;
      res.writeHead(401, { 'www-authenticate': challenge }).end();
    });
    closing.push(() => upstream.close());
    const settings = { tls: { allowPlaintext: true } };
    const gateway = await closedAtEnd(startGateway({ webrick: { origin: upstream.origin, settings } }));
    const ask = async (path: string): Promise<number> => (await fetch(`${gateway.origin}${path}`)).status;
    const nextSecond = (): void => {
      second += 1;
    };
    return { seen, ask, nextSecond };
  }

  test('is served, and in one exchange once it has shown that', async () => {
    const { seen, ask, nextSecond } = await startWebrick();
    const statuses = [await ask('/1')];
    for (const pair of [
      ['/2', '/3'],
      ['/4', '/5'],
    ]) {
      nextSecond();
      for (const path of pair) statuses.push(await ask(path));
    }
    expect(statuses).toEqual([200, 200, 200, 200, 200]);
    expect(seen).toEqual([
      '/1 refused',
      '/1 accepted',
      '/2 accepted',
      // Its nonce is a new one, named in the last response, so the count begins with 1. The challenge has it, too.
      '/3 refused',
      '/3 accepted',
      '/4 accepted',
      '/5 accepted',
    ]);
  });
});
