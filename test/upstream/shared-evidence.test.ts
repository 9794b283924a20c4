import { expect, test } from '@jest/globals';
import { MemoryChallengeStore } from '../../src/challenges/store/memory.ts';
import type { ChallengeStore } from '../../src/challenges/store/store.ts';
import { CredentialHealth } from '../../src/handshake/credential-health.ts';
import type { CredentialVersion } from '../../src/upstream/credential-version.ts';
import { Rotation } from '../../src/upstream/rotation.ts';
import { SharedEvidence } from '../../src/upstream/versions.ts';

const MINUTE_MS = 60_000;

/** A process whose only version is refused since the time 0. */
function processOn(store: ChallengeStore, clock: { now(): number }) {
  const health = new CredentialHealth();
  health.refuse(health.attempt());
  const version = { key: 'k 1', health, refusedAt: 0 } as unknown as CredentialVersion;
  const rotation = new Rotation(version);
  return { health, version, shared: new SharedEvidence({ store, clock, rotation, key: 'k' }) };
}

test('a process knows for ten minutes that another one has seen the credential accepted', async () => {
  const time = { at: MINUTE_MS, now: () => time.at };
  const place = new MemoryChallengeStore(time);
  const [here, elsewhere] = [processOn(place.join(), time), processOn(place.join(), time)];
  await here.shared.catchUp();
  expect([here.shared.mayLearn, here.health.refused]).toEqual([true, true]);
  elsewhere.shared.noteAccepted(elsewhere.version, true);
  time.at += 10 * MINUTE_MS - 1;
  await here.shared.catchUp();
  expect([here.shared.mayLearn, here.health.refused]).toEqual([false, false]);
  const late = processOn(place.join(), time);
  time.at += 1;
  await late.shared.catchUp();
  expect(late.health.refused).toBe(true);
});

test('a store that fails says nothing of a credential, and stops no request', async () => {
  const fails = () => Promise.reject(new Error('the connection broke'));
  const store = Object.assign(new MemoryChallengeStore(), {
    noteAccepted: fails,
    acceptedAgo: fails,
    lead: fails,
  });
  const { shared, version, health } = processOn(store, { now: () => MINUTE_MS });
  shared.noteAccepted(version, true);
  await shared.catchUp();
  expect([health.refused, await shared.claim(version)]).toEqual([true, false]);
});
