import { describe, expect, test } from '@jest/globals';
import { closedAtEnd, closing } from '../../support/closing.ts';
import { type RunningGateway, startGateway } from '../../support/gateway.ts';
import { authors, startScene } from '../../support/scene.ts';

const NAME = 'submissions';
/** As libmicrohttpd 0.9.75: one nonce for all who ask within a second, counts that rise, and no stale. */
const upstream = { qop: 'auth', nc: 'rising', sharedNonceMs: 1_000, staleFlag: 'never' } as const;

async function get({ origin }: Pick<RunningGateway, 'origin'>, path = authors): Promise<number> {
  const answer = await fetch(`${origin}${path}`);
  await answer.arrayBuffer();
  return answer.status;
}

const refusals = ({ logged }: RunningGateway) =>
  logged.filter(({ code }) => code === 'upstream-credential-refused');

describe('a server that gives one nonce to all who ask within a second', () => {
  test('serves gateways that start at once without Redis, and refuses no credential', async () => {
    const { simulator, gateway } = await startScene({ behaviour: upstream });
    const deployment = { origin: simulator.deployments.submissions.origin, ca: simulator.ca };
    const others = await Promise.all([1, 2].map(() => startGateway({ [NAME]: deployment })));
    for (const other of others) closing.push(() => other.close());
    const gateways = [gateway, ...others];
    expect(await Promise.all(gateways.map((each) => get(each)))).toEqual([200, 200, 200]);
    expect(gateways.flatMap(refusals)).toEqual([]);
    expect(await Promise.all(gateways.map((each) => get(each)))).toEqual([200, 200, 200]);
  });

  test('serves six deployments of one gateway at once', async () => {
    const { simulator } = await startScene({ behaviour: upstream });
    const { origin } = simulator.deployments.submissions;
    const names = ['a', 'b', 'c', 'd', 'e', 'f'];
    const deployments = names.map((name) => [
      name,
      {
        origin,
        ca: simulator.ca,
        settings: { match: { pathPrefix: `/${name}/` }, rewrite: { stripPrefix: `/${name}` } },
      },
    ]);
    const gateway = await closedAtEnd(startGateway(Object.fromEntries(deployments)));
    expect(await Promise.all(names.map((name) => get(gateway, `/${name}${authors}`)))).toEqual(
      names.map(() => 200),
    );
    expect(refusals(gateway)).toEqual([]);
  });

  test('refuses a wrong password all the same, which costs few failed log-ins', async () => {
    const { simulator, gateway } = await startScene({ behaviour: upstream, password: 'wrong' });
    for (const _ of [1, 2, 3]) expect(await get(gateway)).toBe(502);
    expect(refusals(gateway).length).toBeGreaterThan(0);
    expect(simulator.counts(NAME).refused['wrong-response']).toBeLessThanOrEqual(4);
  });
});
