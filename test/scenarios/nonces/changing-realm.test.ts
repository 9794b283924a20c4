import type { ServerResponse } from 'node:http';
import { expect, test } from '@jest/globals';
import { closedAtEnd } from '../../support/closing.ts';
import { readChallenges } from '../../support/digest-client.ts';
import { startGateway } from '../../support/gateway.ts';
import { startUpstream } from '../../support/scripted-upstream.ts';

/**
 * An upstream that refuses the lower count of two requests which use a nonce at once, with a challenge of another realm
 * each time: the policy is learned, and what was learned is forgotten.
 */
async function startChanging(): Promise<{ readonly origin: string; close(): Promise<void> }> {
  const crowd: { readonly nc: number; readonly res: ServerResponse }[] = [];
  let issued = 0;
  const challenge = (res: ServerResponse): void => {
    issued += 1;
    const realm = `r${issued}`;
    res.setHeader('www-authenticate', `Digest realm="${realm}", nonce="n${issued}", qop="auth", stale=true`);
    res.writeHead(401).end();
  };
  return startUpstream((req, res) => {
    const [sent] = readChallenges([req.headers.authorization ?? '']);
    if (sent === undefined) return challenge(res);
    if (req.url !== '/crowd' || sent.get('nc') === '00000001') return void res.end();
    crowd.push({ nc: Number.parseInt(sent.get('nc') ?? '', 16), res });
    if (crowd.length < 2) return undefined;
    const [lower, higher] = crowd.splice(0).toSorted((a, b) => a.nc - b.nc);
    higher?.res.end();
    if (lower !== undefined) challenge(lower.res);
    return undefined;
  });
}

test('an upstream whose realm changes with each challenge gets one log line about its nonces in ten seconds', async () => {
  const upstream = await closedAtEnd(startChanging());
  let now = 0;
  const settings = { tls: { allowPlaintext: true }, digest: { renewAhead: false } };
  const deployments = { changing: { origin: upstream.origin, settings } };
  const gateway = await closedAtEnd(startGateway(deployments, {}, { clock: { now: () => now } }));
  const get = async (path: string): Promise<number> => (await fetch(`${gateway.origin}${path}`)).status;
  const steps = () => gateway.metric('digest_gateway_nonce_policy_steps_total');
  const lines = () => gateway.logged.filter(({ policy }) => policy === 'exclusive');
  const round = async (): Promise<void> => {
    const before = await steps();
    expect(await get('/first')).toBe(200);
    expect(await Promise.all(['/crowd', '/crowd'].map(get))).toEqual([200, 200]);
    expect(await steps()).toBe(before + 1);
  };
  for (let count = 0; count < 4; count += 1) await round();
  expect(lines()).toHaveLength(1);
  now = 10_000;
  await round();
  expect(lines().map(({ suppressed }) => suppressed)).toEqual([0, 3]);
});
