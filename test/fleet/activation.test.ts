import { expect, test } from '@jest/globals';
import { activateIn } from '../../src/fleet/activation.ts';
import type { AppSetup } from '../../src/setup/setup.ts';
import { setupFor } from '../support/gateway.ts';

/** A worker whose response to `prepare` is in the hands of the test. */
class TestWorker {
  isGone = false;
  readonly did: string[] = [];
  readonly prepared = Promise.withResolvers<readonly string[]>();
  readonly #silence = Promise.withResolvers<void>();
  readonly silent = this.#silence.promise;

  inTurn = <T>(steps: () => Promise<T>): Promise<T> => steps();
  readonly calls = {
    prepare: (): Promise<readonly string[]> => this.prepared.promise,
    commit: async (): Promise<void> => void this.did.push('commit'),
  };
  /** Only `abandon` is begun without waiting for it. */
  begin = (): void => void this.did.push('abandon');
  kill = (): void => void this.did.push('kill');
  fallSilent = (): void => this.#silence.resolve();
}

const setup: AppSetup = await setupFor({ d: { origin: 'https://u.example.org' } });
const stays = (): boolean => true;

test('a worker that responds has a new configuration at once, beside one that does not', async () => {
  const [quick, hung] = [new TestWorker(), new TestWorker()];
  quick.prepared.resolve(['anonymous']);
  const { changed, settled } = await activateIn([hung, quick], setup, stays);
  hung.fallSilent();
  await settled;
  expect([changed, quick.did, hung.did]).toEqual([['anonymous'], ['commit'], []]);
});

test('one that was silent follows as soon as it has prepared it', async () => {
  const [quick, slow] = [new TestWorker(), new TestWorker()];
  quick.prepared.resolve([]);
  const { settled } = await activateIn([quick, slow], setup, stays);
  slow.prepared.resolve([]);
  await settled;
  expect(slow.did).toEqual(['commit']);
});

test('the first that cannot use it decides for all, and nothing of it stays', async () => {
  const [quick, slow] = [new TestWorker(), new TestWorker()];
  const error = new Error('cannot be built');
  quick.prepared.reject(error);
  await expect(activateIn([slow, quick], setup, stays)).rejects.toBe(error);
  const abandoned = Promise.withResolvers<void>();
  slow.begin = abandoned.resolve;
  slow.prepared.resolve([]);
  await abandoned.promise;
  expect([quick.did, slow.did]).toEqual([[], []]);
});

test('one that cannot follow the others is replaced', async () => {
  const [quick, odd] = [new TestWorker(), new TestWorker()];
  quick.prepared.resolve([]);
  const { settled } = await activateIn([quick, odd], setup, stays);
  const error = new Error('no memory');
  odd.prepared.reject(error);
  await expect(settled).rejects.toBe(error);
  expect([quick.did, odd.did]).toEqual([['commit'], ['kill']]);
});

test('a follower has prepared it first, and waits for the decision of the others, whatever it is', async () => {
  const [follower, slow] = [new TestWorker(), new TestWorker()];
  follower.prepared.resolve(['anonymous']);
  const activated = activateIn([slow], setup, stays, [follower]);
  await follower.prepared.promise;
  expect(follower.did).toEqual([]);
  slow.prepared.resolve(['clients']);
  const { changed, settled } = await activated;
  await settled;
  expect([changed, follower.did, slow.did]).toEqual([['clients'], ['commit'], ['commit']]);
  const error = new Error('cannot be built');
  slow.calls.prepare = () => Promise.reject(error);
  await expect(activateIn([slow], setup, stays, [follower])).rejects.toBe(error);
  await expect(activateIn([], setup, stays, [follower])).rejects.toThrow('no worker serves at the moment');
  expect(follower.did).toEqual(['commit', 'abandon', 'abandon']);
});

test('without a worker nothing is activated', async () => {
  await expect(activateIn([], setup, stays)).rejects.toThrow('no worker serves at the moment');
});
