import { setTimeout as delay } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { CALL_DEADLINE_MS, CALLS_AT_MOST, type ProcessPort } from '../../src/base/message-calls.ts';
import { ChannelChallengeStore, primaryChallenges } from '../../src/challenges/store/channel.ts';
import { learned, parked, recalled } from '../support/challenges.ts';
import { closing } from '../support/closing.ts';
import { type PrimaryProcess, portPair, startPrimary } from '../support/process-ports.ts';
import { until } from '../support/until.ts';

const LONG_MS = 60_000;

/** A store at the port, and the names of its calls that failed. */
function storeAt(port: ProcessPort) {
  const failed: string[] = [];
  const store = new ChannelChallengeStore(port, (operation) => failed.push(operation));
  closing.push(() => store.close());
  return { store, failed };
}

async function primaryProcess() {
  const primary = await startPrimary();
  closing.push(() => primary.close());
  return primary;
}

const messageOf = (call: Promise<unknown>): Promise<string> => call.then(String, (error) => error.message);

describe('a primary process that hangs', () => {
  test('rejects each call by its deadline, and does not carry it out later', async () => {
    const { child, port } = await primaryProcess();
    const { store, failed } = storeAt(port);
    await store.learn('k', learned);
    child.kill('SIGSTOP');
    const start = performance.now();
    const calls = [store.load('k'), store.take('k'), store.park('k', parked('late', 1), LONG_MS)];
    expect(await Promise.all(calls.map(messageOf))).toEqual([
      'load: no reply in time',
      'take: no reply in time',
      'park: no reply in time',
    ]);
    expect(performance.now() - start).toBeGreaterThanOrEqual(CALL_DEADLINE_MS - 1);
    expect(failed).toEqual(['load', 'take', 'park']);
    await until(() => performance.now() - start > CALL_DEADLINE_MS + 50);
    child.kill('SIGCONT');
    await until(async () => (await store.recall('k').catch(() => undefined)) !== undefined);
    expect(await store.take('k')).toBeUndefined();
  });

  test('keeps the number of calls and of unsent messages bounded', async () => {
    const { child, port } = await primaryProcess();
    const { store } = storeAt(port);
    child.kill('SIGSTOP');
    const calls = Array.from({ length: CALLS_AT_MOST + 1 }, () => messageOf(store.load('k')));
    expect(await calls.at(-1)).toBe('load: too many calls');
    let posted = 0;
    while (port.post('x'.repeat(100)) && posted < 100_000) posted += 1;
    expect(posted).toBeLessThan(100_000);
    expect(await messageOf(storeAt(port).store.load('k'))).toBe('load: the message could not be sent');
  });

  test('adds the time of a call to the age of what it carries', async () => {
    const { child, port } = await primaryProcess();
    const { store } = storeAt(port);
    // A call that takes longer than its deadline on a busy machine is tried again.
    await until(async () => {
      child.kill('SIGSTOP');
      const call = store.park('k', parked('n', 1, 5_000), LONG_MS).then(
        () => true,
        () => false,
      );
      await delay(200);
      child.kill('SIGCONT');
      return await call;
    });
    expect((await store.take('k'))?.ageMs).toBeGreaterThanOrEqual(5_199);
  });
});

describe('a port that closes', () => {
  test('rejects the calls under way and all others at once', async () => {
    const { child, port } = await primaryProcess();
    const { store } = storeAt(port);
    child.kill('SIGSTOP');
    const calls = [store.load('k'), store.lead('k', 1_000)];
    child.kill('SIGKILL');
    const [load = '', lead = ''] = await Promise.all(calls.map(messageOf));
    expect([load, lead]).toEqual([expect.stringMatching(/^load: /), expect.stringMatching(/^lead: /)]);
    expect(await messageOf(store.load('k'))).toBe(load);
    const { store: later } = storeAt(port);
    expect(await messageOf(later.load('k'))).toMatch(/^load: /);
  });

  test('ends the stores of its worker at the primary, but for a leadership, which ends by its time', async () => {
    const primary = primaryChallenges();
    const pair = portPair();
    closing.push(pair.close);
    primary.serve(pair.ports[0]);
    const other = storeAt(pair.ports[1]);
    const { ports, close } = portPair();
    const posted: unknown[] = [];
    primary.serve({ ...ports[0], post: (message) => posted.push(message) > 0 && ports[0].post(message) });
    const { store } = storeAt(ports[1]);
    expect(await store.lead('k', 300)).toBe(true);
    await other.store.learn('k', learned);
    expect(posted).toHaveLength(2);
    const closed = new Promise<void>((resolve) => void ports[0].onClose(resolve));
    close();
    await closed;
    await other.store.learn('k', learned);
    expect(posted).toHaveLength(2);
    await until(() => other.store.lead('k', LONG_MS));
  });
});

describe('a message that no gateway sends', () => {
  const call = { kind: 'call', session: 's', id: 1, name: 'load', body: ['k'], sentAt: Date.now() };
  let primary: PrimaryProcess;
  beforeAll(async () => {
    primary = await startPrimary();
  });
  afterAll(() => primary.close());
  const toPrimary = (message: unknown) => ({ service: 'challenges', side: 'client', message });

  test.each([
    ['null', null],
    ['a number', 7],
    ['a text', 'load'],
    ['a list', [[]]],
    ['no message', toPrimary(undefined)],
    ['a kind of another version', toPrimary({ ...call, kind: 'query' })],
    ['a session that is no text', toPrimary({ ...call, session: {} })],
    ['an id that is no number', toPrimary({ ...call, id: Number.NaN })],
    ['a time that is no number', toPrimary({ ...call, sentAt: 'now' })],
    ['a long name', toPrimary({ ...call, name: 'x'.repeat(1_000_000) })],
    ['the end of a session that is not there', toPrimary({ kind: 'end', session: 'x' })],
  ])('does nothing: %s', async (_, message) => {
    const { child, port } = primary;
    const received: unknown[] = [];
    closing.push(port.onMessage((reply) => received.push(reply)));
    port.post(message);
    for (const other of [message, { portMessages: message }]) child.send(other as object);
    const { store } = storeAt(port);
    await store.learn('k', learned);
    expect(await store.recall('k')).toEqual(recalled);
    expect(received).toHaveLength(2);
  });
});
