import { setImmediate as turn } from 'node:timers/promises';
import { describe, expect, test } from '@jest/globals';
import { MemoryChallengeStore } from '../../src/challenges/store/memory.ts';
import type { CredentialSet } from '../../src/credentials/credentials.ts';
import type { CredentialVersion } from '../../src/upstream/credential-version.ts';
import { credential, HandshakeScene, type SceneOptions } from '../handshake/scene.ts';

const NEW = { ...credential, version: '8', username: 'new' };
const ONLY: CredentialSet = { name: 'main', current: credential, next: undefined };

/** Version 7 in use, and what the sources hold beside it. */
function versionsOf(change: Partial<CredentialSet> = {}, options?: SceneOptions) {
  const scene = new HandshakeScene(options);
  const { versions } = scene.credential;
  versions.offer({ ...ONLY, ...change });
  const named = (name: string): CredentialVersion => {
    const found = versions.named(name);
    if (found === undefined) throw new Error(`there is no version ${name}`);
    return found;
  };
  const refuse = (name: string): void =>
    versions.refuse(named(name), named(name).health.attempt(), 'verdict');
  const accept = (name: string): void => {
    const { health } = named(name);
    health.accept(health.attempt());
    versions.accept(named(name));
  };
  /** Each version with its state, the one in use first. */
  const states = () => versions.all.map((each) => `${each.version} ${versions.stateOf(each)}`);
  return { scene, versions, named, refuse, accept, states, events: scene.events };
}

describe('the state of a version', () => {
  test.each<[string, Partial<CredentialSet>, string[], string[]]>([
    ['in use', {}, [], ['7 in-use']],
    ['in use, and refused', {}, ['7'], ['7 refused']],
    ['a candidate', { current: NEW }, [], ['7 in-use', '8 candidate']],
    ['a candidate that was refused', { current: NEW }, ['8'], ['7 in-use', '8 refused']],
    ['the next one, which the upstream does not accept yet', { next: NEW }, ['8'], ['7 in-use', '8 waiting']],
    ['the former one', { former: [NEW] }, [], ['7 in-use', '8 fallback']],
    ['the former one, refused', { former: [NEW] }, ['8'], ['7 in-use', '8 fallback']],
  ])('%s', (_what, change, refused, expected) => {
    const { refuse, states } = versionsOf(change);
    for (const name of refused) refuse(name);
    expect(states()).toEqual(expected);
  });

  test('is that of the former one if it is not part of the rotation any more', () => {
    const { versions, named } = versionsOf({ current: NEW });
    const left = named('8');
    versions.offer(ONLY);
    expect(versions.stateOf(left)).toBe('fallback');
  });
});

describe('the versions at an upstream that replaces another one', () => {
  test('have the states that they had there, and the next one waits as long', () => {
    const before = versionsOf({ next: NEW });
    before.refuse('8');
    const after = versionsOf({ next: NEW });
    after.versions.takeOver(before.versions);
    expect(after.states()).toEqual(['7 in-use', '8 waiting']);
    expect(after.versions.shared.retryAt).toBe(before.versions.shared.retryAt);
    expect(after.versions.shared.retryAt).toBeGreaterThan(0);
  });

  test('are used in the order that they had there', () => {
    const before = versionsOf({ current: NEW });
    before.versions.promote(before.named('8'), 'operator');
    const after = versionsOf({ next: NEW });
    after.versions.takeOver(before.versions);
    expect(after.states()).toEqual(['8 in-use', '7 fallback']);
  });
});

test('requests fail when every version is refused', () => {
  const { versions, refuse } = versionsOf({ former: [NEW] });
  const seen = ['7', '8'].map((name) => {
    const before = versions.areRefused;
    refuse(name);
    return [before, versions.areRefused];
  });
  expect(seen).toEqual([
    [false, false],
    [false, true],
  ]);
});

describe('a version that is accepted', () => {
  test('takes the place of one in use that is refused, and of no other', () => {
    const { accept, refuse, states, events } = versionsOf({ former: [NEW] });
    accept('8');
    expect(states()).toEqual(['7 in-use', '8 fallback']);
    refuse('7');
    accept('8');
    expect(states()).toEqual(['8 in-use', '7 fallback']);
    expect(events).toEqual(['version 7 refused', 'version 8 promoted']);
  });

  test('is told once if it was refused', () => {
    const { accept, refuse, events } = versionsOf();
    refuse('7');
    refuse('7');
    accept('7');
    accept('7');
    expect(events).toEqual(['version 7 refused', 'version 7 accepted']);
  });

  test('is noted for other processes, with its key where there are several', async () => {
    const store = new MemoryChallengeStore();
    const { accept, named } = versionsOf({ former: [NEW] }, { store: store.join() });
    accept('7');
    expect([await store.acceptedAgo('k'), await store.acceptedAgo(named('7').key)]).toEqual([
      expect.any(Number),
      expect.any(Number),
    ]);
  });
});

describe('a version that is promoted', () => {
  test('leaves the former one as fallback if the upstream accepts that, and drops it otherwise', () => {
    for (const isRefused of [false, true]) {
      const { scene, versions, named, refuse, states, events } = versionsOf({ current: NEW });
      const former = named('7');
      if (isRefused) refuse('7');
      events.length = 0;
      versions.promote(named('8'), 'operator');
      versions.promote(named('8'), 'operator');
      expect(states()).toEqual(isRefused ? ['8 in-use'] : ['8 in-use', '7 fallback']);
      expect(events).toEqual(['version 8 promoted']);
      // One that left has no nonces any more.
      if (isRefused) expect(() => former.on(scene.transport)).toThrow('no such transport');
      else expect(former.on(scene.transport)).toBeDefined();
    }
  });

  test('is none that the sources no longer hold', () => {
    const { scene, versions, named, states, events } = versionsOf({ current: NEW });
    const left = named('8');
    versions.offer(ONLY);
    versions.promote(left, 'operator');
    expect([states(), events]).toEqual([['7 in-use'], []]);
    expect(() => left.on(scene.transport)).toThrow('no such transport');
  });

  test.each([
    [true, expect.any(Number)],
    [false, undefined],
  ])('is noted for other processes if it is known to be accepted: %s', async (isAccepted, ago) => {
    const store = new MemoryChallengeStore();
    const { versions, accept, named } = versionsOf({ current: NEW }, { store: store.join() });
    accept('7');
    const { health } = named('8');
    if (isAccepted) health.accept(health.attempt());
    versions.promote(named('8'), 'operator');
    expect(await store.acceptedAgo(named('8').key)).toEqual(ago);
  });
});

test('a refusal of an attempt that another one overtook changes nothing', () => {
  const { versions, named, accept, states, events } = versionsOf({ current: NEW });
  const attempt = named('8').health.attempt();
  accept('8');
  versions.refuse(named('8'), attempt, 'verdict');
  expect([states(), events]).toEqual([['7 in-use', '8 candidate'], []]);
});

test('a next version that is refused waits in every process, and is unknown when it becomes the current one', async () => {
  const place = new MemoryChallengeStore();
  const { versions, named, refuse, states } = versionsOf({ next: NEW }, { store: place.join() });
  refuse('8');
  expect(await place.join().lead(`${named('8').key} next`, 1)).toBe(false);
  versions.offer({ ...ONLY, current: NEW });
  expect([states(), named('8').health.refused]).toEqual([['7 in-use', '8 candidate'], false]);
});

test('a current version that is refused keeps no process from trying it as the next one', async () => {
  const place = new MemoryChallengeStore();
  const { named, refuse } = versionsOf({ current: NEW }, { store: place.join() });
  refuse('8');
  expect(await place.join().lead(`${named('8').key} next`, 1)).toBe(true);
});

test('sources that are read again leave what is known of a candidate', () => {
  const { versions, named, accept } = versionsOf({ current: NEW });
  accept('8');
  versions.offer({ ...ONLY, current: NEW });
  expect(named('8').health.accepted).toBe(true);
});

test('a new version begins with what was learned of the upstream with the one in use', async () => {
  const { scene, versions, named } = versionsOf();
  await scene.warmUp();
  await scene.refuseOvertaken();
  versions.offer({ ...ONLY, next: NEW });
  await turn();
  expect([scene.pool.policy, named('8').on(scene.transport).pool.policy]).toEqual(['exclusive', 'exclusive']);
});

test('the latest transport that is attached carries the gateway’s own requests', async () => {
  const { scene, versions } = versionsOf();
  const other = { ...scene.transport };
  scene.credential.versions.attach(other);
  expect(versions.latestTransport).toBe(other);
  await scene.credential.versions.detach(scene.transport);
  expect(versions.latestTransport).toBe(other);
  await scene.credential.versions.detach(other);
  expect(versions.latestTransport).toBeUndefined();
});

test('what becomes of versions is in the flight record', () => {
  const { scene, versions, named, refuse, accept } = versionsOf({ current: NEW });
  refuse('7');
  accept('7');
  versions.promote(named('8'), 'operator');
  const noted = scene.recorder
    .lines('test')
    .map((line) => JSON.parse(line))
    .filter(({ kind }) => ['refused', 'promoted'].includes(kind))
    .map(({ kind, owner, versions: names, by }) => [kind, owner, names, by]);
  expect(noted).toEqual([
    ['refused', 1, ['7'], 'verdict'],
    ['promoted', 1, ['8', '7'], 'operator'],
  ]);
});
