import { expect, test } from '@jest/globals';
import { setupFor } from '../../support/running-gateway.ts';
import { authors, type Pair, startPair } from '../../support/simulated-pair.ts';

const SITES = ['journal-a', 'journal-b', 'journal c'];
const accounts = SITES.map((site) => ({
  username: `user of ${site}`,
  password: `key of ${site}`,
  sites: [site],
}));
const credentials = Object.fromEntries(
  SITES.map((site, index) => [
    `c${index}`,
    { username: { value: `user of ${site}` }, password: { value: `key of ${site}` } },
  ]),
);
const sites = Object.fromEntries(SITES.map((site, index) => [site, { credential: `c${index}` }]));
const settings = { credential: undefined, siteParameter: 'site_name', sites };

const asking = (query: string) => authors.replace('site_name=demo', query);

/** A gateway in front of a service with an account for each site. */
async function startSites(top: Record<string, unknown> = { credentials }): Promise<Pair> {
  const pair = await startPair({ accounts, qop: 'auth', nc: 'window' });
  const { origin } = pair.simulator.deployments.submissions;
  const deployment = { origin, ca: pair.simulator.ca, settings };
  await pair.gateway.app.reload(async () =>
    setupFor({ submissions: deployment }, top, pair.gateway.versions),
  );
  return pair;
}

test('each site gets the answers of its own account, and their nonces stay apart', async () => {
  const pair = await startSites();
  const queries = ['site_name=journal-a', 'site_name=journal%2Db', 'site_name=journal%20c'];
  const targets = Array.from({ length: 40 }, (_, index) => asking(queries[index % queries.length] ?? ''));
  const answers = await Promise.all(targets.map((target) => pair.get(target)));
  expect(answers.map(({ status }) => status)).toEqual(Array(40).fill(200));
  const { challenges, refused, refusedBySite, distinctNonces } = pair.simulator.counts('submissions');
  expect([challenges, distinctNonces, refusedBySite, refused['wrong-response']]).toEqual([3, 3, 0, 0]);
  const inUse = await pair.gateway.metric('digest_gateway_credential_state', {
    deployment: 'submissions',
    state: 'in-use',
  });
  expect(inUse).toBe(3);
});

test('one credential that is refused leaves the others alone', async () => {
  const broken = {
    ...credentials,
    c1: { username: { value: 'user of journal-b' }, password: { value: 'wrong' } },
  };
  const pair = await startSites({ credentials: broken });
  const statusOf = async (site: string) => (await pair.get(asking(`site_name=${site}`))).status;
  expect([await statusOf('journal-a'), await statusOf('journal-b'), await statusOf('journal-a')]).toEqual([
    200, 502, 200,
  ]);
  const readiness = await fetch(`${pair.gateway.control}/readyz`);
  expect([readiness.status, await readiness.text()]).toEqual([200, expect.stringContaining('credential c1')]);
});
