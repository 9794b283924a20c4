import { describe, expect, test } from '@jest/globals';
import { MemoryChallengeStore } from '../../src/challenges/store/memory.ts';
import type { ChallengeStore } from '../../src/challenges/store/store.ts';
import { CredentialHealth } from '../../src/handshake/credential-health.ts';
import { FlightRecorder } from '../../src/handshake/flight-recorder.ts';
import type { CredentialVersion } from '../../src/upstream/credential-version.ts';
import { Rotation } from '../../src/upstream/rotation.ts';
import { SharedEvidence } from '../../src/upstream/versions.ts';

const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;

function sharedOn(store: ChallengeStore, clock: { now(): number }, rotation: Rotation<CredentialVersion>) {
  const recorder = new FlightRecorder({ clock });
  const recorded = recorder.credential('d', 'main');
  return new SharedEvidence({ store, clock, rotation, key: 'k', recorder, recorded });
}

/** A process whose only version is refused since the time 0. */
function processOn(store: ChallengeStore, clock: { now(): number }) {
  const health = new CredentialHealth();
  health.refuse(health.attempt());
  const version = { key: 'k 1', health, refusedAt: 0 } as unknown as CredentialVersion;
  const rotation = new Rotation(version);
  return { health, version, shared: sharedOn(store, clock, rotation) };
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

/** A process whose version in use is accepted, with a next version, and the notes that it leaves. */
function rotatingOn(store: ChallengeStore, clock: { now(): number }) {
  const versionOf = (key: string) =>
    ({ key, health: new CredentialHealth(), refusedAt: clock.now() }) as unknown as CredentialVersion;
  const [inUse, next] = [versionOf('k 1'), versionOf('k 2')];
  inUse.health.accept(inUse.health.attempt());
  const rotation = new Rotation(inUse);
  rotation.offer(inUse, next);
  const shared = sharedOn(store, clock, rotation);
  /** The role of the next version in this process. */
  const state = () => rotation.stateOf(next);
  return { shared, rotation, inUse, next, state };
}

test('that the upstream accepts a credential is noted every three seconds, and at once if it is news', () => {
  const time = { at: 0, now: () => time.at };
  const notes: string[] = [];
  const store = Object.assign(new MemoryChallengeStore(), {
    noteAccepted: async (key: string, ms: number) => void notes.push(`${time.at} ${key} ${ms / MINUTE_MS}`),
  });
  const { shared, rotation, inUse } = rotatingOn(store, time);
  for (const at of [0, 2_999, 3_000, 5_999]) {
    time.at = at;
    shared.noteAccepted(inUse, false);
  }
  rotation.offer(inUse);
  shared.noteAccepted(inUse, true);
  time.at = 8_998;
  shared.noteAccepted(inUse, false);
  // Of the version, too, where there is more than one.
  expect(notes).toEqual(['0 k 10', '0 k 1 10', '3000 k 10', '3000 k 1 10', '5999 k 10']);
});

test('a note from before the refusal says nothing, and one that was followed counts for a minute', async () => {
  const time = { at: MINUTE_MS, now: () => time.at };
  const place = new MemoryChallengeStore(time);
  const [here, elsewhere] = [processOn(place.join(), time), processOn(place.join(), time)];
  elsewhere.shared.noteAccepted(elsewhere.version, true);
  here.version.refusedAt = time.at;
  time.at += 1_000;
  await here.shared.catchUp();
  expect(here.health.refused).toBe(true);
  const followed: boolean[] = [];
  for (const ms of [1, MINUTE_MS - 1, 1]) {
    time.at += ms;
    elsewhere.shared.noteAccepted(elsewhere.version, true);
    await here.shared.catchUp();
    followed.push(!here.health.refused);
    here.health.refuse(here.health.attempt());
    here.version.refusedAt = time.at - 1;
  }
  expect(followed).toEqual([true, false, true]);
});

describe('of several processes, one tries the next version', () => {
  async function pair() {
    const time = { at: MINUTE_MS, now: () => time.at };
    const place = new MemoryChallengeStore(time);
    const [here, elsewhere] = [rotatingOn(place.join(), time), rotatingOn(place.join(), time)];
    expect(await here.shared.claim(here.next)).toBe(true);
    return { time, here, elsewhere };
  }

  test('and may go on with it, while it waits in the others', async () => {
    const { here, elsewhere } = await pair();
    expect([await elsewhere.shared.claim(elsewhere.next), await here.shared.claim(here.next)]).toEqual([
      false,
      true,
    ]);
    expect([here.state(), elsewhere.state()]).toEqual(['candidate', 'waiting']);
    expect([here.shared.mayLearn, elsewhere.shared.mayLearn]).toEqual([false, true]);
    here.next.health.refuse(here.next.health.attempt());
    expect(here.shared.mayLearn).toBe(false);
  });

  test('for a minute: then one of them does, the one that asks first', async () => {
    const { time, here, elsewhere } = await pair();
    await elsewhere.shared.claim(elsewhere.next);
    time.at += MINUTE_MS;
    expect([await elsewhere.shared.claim(elsewhere.next), await here.shared.claim(here.next)]).toEqual([
      true,
      false,
    ]);
    expect([here.state(), elsewhere.state()]).toEqual(['waiting', 'candidate']);
  });

  test('and another one a minute later', async () => {
    const { time, elsewhere } = await pair();
    await elsewhere.shared.claim(elsewhere.next);
    elsewhere.next.health.refuse(elsewhere.next.health.attempt());
    for (const [ms, state, isRefused] of [
      [MINUTE_MS - 1, 'waiting', true],
      [1, 'candidate', false],
    ] as const) {
      time.at += ms;
      await elsewhere.shared.catchUp();
      expect([elsewhere.state(), elsewhere.next.health.refused]).toEqual([state, isRefused]);
    }
  });

  test('which none does for six hours when the upstream has refused it', async () => {
    const { time, here, elsewhere } = await pair();
    expect(here.rotation.reject(here.next)).toBe('waiting');
    here.shared.wait(here.next);
    await elsewhere.shared.claim(elsewhere.next);
    for (const [ms, states] of [
      [6 * HOUR_MS - 1, ['waiting', 'waiting']],
      [1, ['candidate', 'waiting']],
    ] as const) {
      time.at += ms;
      await here.shared.catchUp();
      await elsewhere.shared.catchUp();
      expect([here.state(), elsewhere.state()]).toEqual(states);
    }
  });

  test('and the others do when the upstream accepts it there, once in six hours', async () => {
    const { time, here, elsewhere } = await pair();
    await elsewhere.shared.claim(elsewhere.next);
    const states: unknown[] = [];
    for (const ms of [1, 6 * HOUR_MS - 1, 1]) {
      time.at += ms;
      here.shared.noteAccepted(here.next, true);
      await elsewhere.shared.catchUp();
      states.push(elsewhere.state());
      elsewhere.rotation.postpone(elsewhere.next);
      elsewhere.shared.wait(elsewhere.next);
    }
    expect(states).toEqual(['candidate', 'waiting', 'candidate']);
  });

  test('which then learn as soon as others that the upstream accepts the credential again', async () => {
    const { time, here, elsewhere } = await pair();
    await elsewhere.shared.claim(elsewhere.next);
    time.at += 1;
    here.shared.noteAccepted(here.next, true);
    await elsewhere.shared.catchUp();
    expect(elsewhere.state()).toBe('candidate');
    elsewhere.rotation.promote(elsewhere.next, true);
    for (const version of elsewhere.rotation.versions) {
      version.health.refuse(version.health.attempt());
      version.refusedAt = time.at;
    }
    time.at += 1;
    here.shared.noteAccepted(here.inUse, true);
    await elsewhere.shared.catchUp();
    expect(elsewhere.next.health.refused).toBe(false);
  });

  test('even where the store says late which one', async () => {
    const leads: PromiseWithResolvers<boolean>[] = [];
    const store = Object.assign(new MemoryChallengeStore(), {
      lead: () => {
        const lead = Promise.withResolvers<boolean>();
        leads.push(lead);
        return lead.promise;
      },
    });
    const { shared, next, state } = rotatingOn(store, { now: () => MINUTE_MS });
    const first = shared.claim(next);
    expect([await shared.claim(next), state(), leads.length]).toEqual([false, 'candidate', 1]);
    leads[0]?.resolve(false);
    expect([await first, state()]).toEqual([false, 'waiting']);
    const again = shared.claim(next);
    leads[1]?.resolve(true);
    expect([await again, state()]).toEqual([true, 'candidate']);
  });
});
