import type { IncomingMessage, ServerResponse } from 'node:http';
import { expect, test } from '@jest/globals';
import { useClosing } from '../../support/closing.ts';
import { readChallenges } from '../../support/digest-client.ts';
import { type RunningGateway, startGateway } from '../../support/gateway.ts';
import { startUpstream } from '../../support/scripted-upstream.ts';

const CROWD = 2;

const closing = useClosing();

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
