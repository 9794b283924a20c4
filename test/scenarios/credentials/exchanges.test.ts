import { expect, test } from '@jest/globals';
import type { BehaviourChange } from '../../../src/simulator/settings.ts';
import { credentialSet } from '../../support/gateway.ts';
import { authors, type RunningScene, startScene } from '../../support/scene.ts';
import { until } from '../../support/until.ts';

const NAME = 'submissions';
const OLD = 'demo-api-key';
const NEW = 'another-api-key';

const exchanges = ({ simulator }: RunningScene): number => simulator.counts(NAME).requests;

const rotations = ({ gateway }: RunningScene, result: string) =>
  gateway.metric('digest_gateway_credential_rotations_total', { result });

function accept({ simulator }: RunningScene, password: string): void {
  simulator.set(NAME, { accounts: [{ username: 'demo-user', password, sites: ['demo'] }] });
}

/** Serves one request; resolves to the exchanges that the upstream saw meanwhile. */
async function serve(pair: RunningScene, status = 200): Promise<number> {
  const before = exchanges(pair);
  const answer = await pair.get(authors);
  await answer.arrayBuffer();
  expect(answer.status).toBe(status);
  return exchanges(pair) - before;
}

const start = (behaviour: BehaviourChange = { qop: 'auth' }): Promise<RunningScene> =>
  startScene({ behaviour });

/** A gateway that has the next version, which the upstream does not accept yet. */
async function startWaiting(): Promise<RunningScene> {
  const pair = await start();
  await serve(pair);
  pair.gateway.plane.offer(await credentialSet(pair.gateway, NAME, OLD, NEW));
  await until(async () => (await rotations(pair, 'waiting')) === 1);
  return pair;
}

const rows: [what: string, exchanges: number, run: () => Promise<number>][] = [
  ['without a nonce', 2, async () => serve(await start())],
  [
    'with a nonce that serves',
    1,
    async () => {
      const pair = await start();
      await serve(pair);
      return serve(pair);
    },
  ],
  [
    'with a nonce that is stale',
    2,
    async () => {
      const pair = await start();
      await serve(pair);
      pair.simulator.reset(NAME);
      return serve(pair);
    },
  ],
  [
    'with a nonce that serves once, and is not called stale',
    2,
    async () => {
      const pair = await start({ qop: 'auth', oneTimeNonces: true, staleFlag: 'never' });
      for (let count = 0; count < 4; count += 1) await serve(pair);
      return serve(pair);
    },
  ],
  [
    'after the upstream dropped its nonces, which it does not call stale',
    2,
    async () => {
      const pair = await start({ qop: 'auth', staleFlag: 'never' });
      await serve(pair);
      pair.simulator.reset(NAME);
      return serve(pair);
    },
  ],
  [
    'with a password that is wrong from now on',
    4,
    async () => {
      const pair = await start();
      await serve(pair);
      accept(pair, NEW);
      return serve(pair, 502);
    },
  ],
  [
    'with a password that was refused just now',
    0,
    async () => {
      const pair = await start();
      await serve(pair);
      accept(pair, NEW);
      await serve(pair, 502);
      return serve(pair, 502);
    },
  ],
  [
    'with a password that was changed to the next one',
    5,
    async () => {
      const pair = await startWaiting();
      accept(pair, NEW);
      return serve(pair);
    },
  ],
];

test.each(rows)('a request %s costs %i exchanges', async (_what, count, run) => {
  expect(await run()).toBe(count);
});

test('a new version costs no request an exchange, and two in the background', async () => {
  const pair = await start();
  await serve(pair);
  const before = exchanges(pair);
  pair.gateway.plane.offer(await credentialSet(pair.gateway, NAME, 'wrong'));
  await until(async () => (await rotations(pair, 'refused')) === 1);
  expect([exchanges(pair) - before, await serve(pair)]).toEqual([2, 1]);
});
