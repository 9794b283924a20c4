import { expect, test } from '@jest/globals';
import type { ProcessPort } from '../../src/base/message-calls.ts';
import { ChannelLimitStore, primaryLimits } from '../../src/limits/channel.ts';
import { closing } from '../support/closing.ts';
import { limit, limitsOf, realClocks, today, unused } from '../support/limited.ts';
import { portPair, startPrimary } from '../support/process-ports.ts';
import { until } from '../support/until.ts';

/** A process that is limited to 40 requests a day, which it shares through the port. */
function processAt(port: ProcessPort) {
  const scene = limitsOf({ a: limit({ daily: 40 }) }, {}, () => new ChannelLimitStore(port));
  closing.push(() => scene.limits.close());
  return scene;
}

/** The limit in a store, asked by a process that does not count. */
async function known(store: ChannelLimitStore) {
  return await store.settle('client:a', { ...unused(), perSecond: 0, lifetimeMs: 0 });
}

test('while the primary process hangs, each process admits its part, and reports it afterwards', async () => {
  const primary = await startPrimary();
  closing.push(() => primary.close());
  const { child, port } = primary;
  const [one, other] = [processAt(port), processAt(port)];
  for (const _round of [1, 2]) for (const { limits } of [one, other]) await limits.restore();
  child.kill('SIGSTOP');
  expect(one.passing(30)).toBe(20);
  // Ends by its deadline.
  await one.limits.restore();
  child.kill('SIGCONT');
  const store = new ChannelLimitStore(port);
  closing.push(() => store.close());
  await until(async () => {
    await one.limits.restore();
    return (await known(store)).used === 20;
  });
  let passed = 0;
  for (let round = 1; round <= 10; round += 1) {
    await other.limits.restore();
    passed += other.passing(40);
  }
  expect(passed).toBe(20);
});

test.each([
  ['no report', undefined],
  ['a total that is no number', { ...unused(), total: Number.NaN }],
  ['a negative total', { ...unused(), total: -1 }],
  ['infinite tokens', { ...unused(), tokens: Number.POSITIVE_INFINITY }],
  ['a process that never ends', { ...unused(), lifetimeMs: 1e15 }],
])('a report is refused: %s', async (_, report) => {
  const pair = portPair();
  closing.push(pair.close);
  primaryLimits(realClocks).serve(pair.ports[0]);
  const store = new ChannelLimitStore(pair.ports[1]);
  await expect(store.settle('client:a', report as never)).rejects.toThrow(/invalid_type|too_small|too_big/);
  expect(await known(store)).toMatchObject({ used: 0, members: 1 });
});

test.each([
  ['nothing', undefined],
  ['no number of tokens', { tokens: Number.NaN }],
  ['no processes', { members: 0 }],
  ['more than the whole', { share: 2 }],
])('a reply is not believed: %s', async (_, change) => {
  const pair = portPair();
  closing.push(pair.close);
  pair.ports[0].onMessage((message) => {
    const { session, id } = (message as { message: { session: string; id: number } }).message;
    const state = { tokens: 1, used: 0, day: today(), othersInFlight: 0, members: 1, share: 1 };
    const body = change && { ...state, ...change };
    pair.ports[0].post({ service: 'limits', side: 'server', message: { kind: 'result', session, id, body } });
  });
  await expect(new ChannelLimitStore(pair.ports[1]).settle('client:a', unused())).rejects.toThrow();
});
