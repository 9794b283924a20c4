import { expect, test } from '@jest/globals';
import { EgressAddresses, type EgressNews } from '../../src/upstream/egress-addresses.ts';

const FAILBACK = 60_000;

/** Three local addresses, all on this host at first, and what was reported of them. */
function addressesOf(localAddresses: readonly string[] = ['a', 'b', 'c']) {
  const absent = new Set<string>();
  const news: EgressNews[] = [];
  const clock = { time: 1, now: () => clock.time };
  const options = { deployment: 'd', localAddresses, failback: FAILBACK };
  const deps = {
    clock,
    onEgress: (each: EgressNews) => void news.push(each),
    isPresent: (address: string) => Promise.resolve(!absent.has(address)),
  };
  const egress = new EgressAddresses(options, deps);
  const statuses = async () => (await egress.states()).map(({ status }) => status).join(' ');
  const reported = () => news.splice(0).map(({ address, status }) => `${address} ${status}`);
  return { egress, absent, clock, statuses, reported, options, deps };
}

test('requests leave from the first one', async () => {
  const { egress, statuses, reported } = addressesOf();
  expect(egress.choose(true)).toMatchObject({ index: 0, address: 'a' });
  expect(await statuses()).toBe('in-use standby standby');
  expect(reported()).toEqual([]);
});

test('what was last known of them stays while a look finds nothing out', async () => {
  const { absent, options, deps } = addressesOf();
  let isKnown = true;
  const isPresent = async (address: string) => (isKnown ? deps.isPresent(address) : undefined);
  const egress = new EgressAddresses(options, { ...deps, isPresent });
  absent.add('a');
  await egress.look();
  isKnown = false;
  await egress.look();
  expect(egress.choose(false).address).toBe('b');
});

test('one that the host does not have is passed over until the host has it again', async () => {
  const { egress, absent, statuses, reported } = addressesOf();
  absent.add('a');
  expect(egress.missing(egress.choose(false))).toMatchObject({ address: 'b' });
  expect(egress.choose(true).address).toBe('b');
  expect(await statuses()).toBe('missing in-use standby');
  absent.clear();
  await egress.look();
  expect(egress.choose(false).address).toBe('a');
  expect(reported()).toEqual(['a missing', 'a in-use']);
});

test('one that the host lost is passed over before a request fails', async () => {
  const { egress, absent, reported } = addressesOf();
  absent.add('a').add('b');
  await egress.look();
  expect(egress.choose(false).address).toBe('c');
  expect(reported()).toEqual(['a missing', 'b missing']);
});

test('after a refusal, one request per failback that can be repeated tries it', async () => {
  const { egress, clock, statuses } = addressesOf();
  expect(egress.refused(egress.choose(true), 'unregistered')).toMatchObject({ address: 'b' });
  expect(await statuses()).toBe('refused in-use standby');
  clock.time += FAILBACK - 1;
  expect(egress.choose(true).address).toBe('b');
  clock.time += 1;
  expect(
    [egress.choose(false), egress.choose(true), egress.choose(true)].map((each) => each.address),
  ).toEqual(['b', 'a', 'b']);
  clock.time += FAILBACK;
  expect(egress.choose(true).address).toBe('a');
});

test.each([
  [200, 'a'],
  [399, 'a'],
  [400, 'b'],
  [503, 'b'],
])('a trial that gets %i leads to %s', (status, expected) => {
  const { egress, clock, reported } = addressesOf();
  egress.refused(egress.choose(true), 'unregistered');
  clock.time += FAILBACK;
  egress.accepted(egress.choose(true), status);
  expect(egress.choose(false).address).toBe(expected);
  expect(reported()).toEqual(expected === 'a' ? ['a refused', 'a in-use'] : ['a refused']);
});

test('the response to a request from before a refusal, or a refusal from before an acceptance, changes nothing', () => {
  const { egress, clock, reported } = addressesOf();
  const early = egress.choose(true);
  clock.time += 1;
  egress.refused(egress.choose(true), 'unregistered');
  egress.accepted(early, 200);
  expect(egress.choose(false).address).toBe('b');
  clock.time += FAILBACK;
  egress.accepted(egress.choose(true), 200);
  expect(egress.refused(early, 'unregistered')?.address).toBe('b');
  expect(egress.choose(false).address).toBe('a');
  expect(reported()).toEqual(['a refused', 'a in-use']);
});

test('a refusal counts although another request got a response from the address meanwhile', () => {
  const { egress, clock } = addressesOf();
  const refused = egress.choose(true);
  egress.accepted(egress.choose(true), 200);
  clock.time += 1;
  egress.accepted(egress.choose(true), 200);
  egress.refused(refused, 'unregistered');
  expect(egress.choose(false).address).toBe('b');
});

test('a refusal counts in the millisecond in which the address was accepted again', () => {
  const { egress, clock } = addressesOf();
  egress.refused(egress.choose(true), 'unregistered');
  clock.time += FAILBACK;
  egress.accepted(egress.choose(true), 200);
  egress.refused(egress.choose(true), 'unregistered');
  expect(egress.choose(false).address).toBe('b');
});

test('one that comes after that in use is not tried', async () => {
  const { egress, clock } = addressesOf();
  const second = egress.missing(egress.choose(true));
  if (second !== undefined) egress.refused(second, 'unregistered');
  // The host has the first again.
  await egress.look();
  clock.time += FAILBACK;
  expect(egress.choose(true).address).toBe('a');
});

test('where the system chooses, there are none to choose from', () => {
  const { egress } = addressesOf([]);
  expect([egress.areSeveral, egress.inUse]).toEqual([false, 0]);
  expect(() => egress.choose(true)).toThrow('no local addresses');
});

test('where none can be used, a refused one is in use, and no request goes round', async () => {
  const { egress, absent, statuses } = addressesOf();
  absent.add('a');
  const first = egress.missing(egress.choose(true));
  const second = first && egress.refused(first, 'unregistered');
  expect(second?.address).toBe('c');
  expect(second && egress.refused(second, 'unregistered')).toBeUndefined();
  expect(await statuses()).toBe('missing refused refused');
  expect(egress.choose(false).address).toBe('b');
  // It is accepted again without a trial.
  egress.accepted(egress.choose(false), 200);
  expect(await statuses()).toBe('missing in-use refused');
});

test('where all were refused, each is tried in turn, by any request, until one is accepted again', async () => {
  const { egress, clock, statuses } = addressesOf(['a', 'b']);
  const second = egress.refused(egress.choose(true), 'unregistered');
  if (second !== undefined) egress.refused(second, 'unregistered');
  expect(egress.choose(true).address).toBe('a');
  clock.time += FAILBACK;
  const trial = egress.choose(false);
  expect([trial.address, egress.choose(false).address]).toEqual(['b', 'a']);
  egress.accepted(trial, 200);
  expect(await statuses()).toBe('refused in-use');
});

test('a trial without a response goes on from the address in use', () => {
  const { egress, clock } = addressesOf();
  egress.refused(egress.choose(true), 'unregistered');
  clock.time += FAILBACK;
  const trial = egress.choose(true);
  expect([trial.address, trial.isTrial]).toEqual(['a', true]);
  expect(egress.untried(trial)).toMatchObject({ address: 'b', isTrial: false });
});

test('a request leaves from each at most once, whatever changes meanwhile', async () => {
  const { egress } = addressesOf(['a', 'b']);
  const second = egress.missing(egress.choose(true));
  // The host has it again.
  await egress.look();
  expect(second?.address).toBe('b');
  expect(second && egress.missing(second)).toBeUndefined();
});

test('none is left when the host has none', async () => {
  const { egress, absent, statuses } = addressesOf(['a', 'b']);
  absent.add('a').add('b');
  expect(await statuses()).toBe('missing missing');
  expect(egress.missing(egress.choose(true))).toBeUndefined();
});

test('a single one is watched, and nothing is reported of it', async () => {
  const { egress, absent, statuses, reported } = addressesOf(['a']);
  absent.add('a');
  expect(await statuses()).toBe('missing');
  expect([egress.areSeveral, egress.inUse, reported()]).toEqual([false, 0, []]);
});

test('what is known of them outlives a reload that changes other settings', () => {
  const { egress, options, deps } = addressesOf();
  expect(EgressAddresses.of({ ...options }, deps, egress)).toBe(egress);
  expect(EgressAddresses.of({ ...options, localAddresses: ['b'] }, deps, egress)).not.toBe(egress);
});
