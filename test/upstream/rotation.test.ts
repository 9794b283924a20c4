import { describe, expect, test } from '@jest/globals';
import { Rotation } from '../../src/upstream/rotation.ts';

/** `old` in use, `next` a candidate. */
function rotating(): Rotation<string> {
  const rotation = new Rotation('old');
  rotation.offer('old', 'next');
  return rotation;
}

/** Each version with its state, in order. */
const statesOf = (rotation: Rotation<string>): string[] =>
  rotation.versions.map((version) => `${version} ${rotation.stateOf(version)}`);

test('a version that the sources hold for the first time is a candidate', () => {
  expect(statesOf(rotating())).toEqual(['old in-use', 'next candidate']);
});

test('promotes a candidate and keeps the former version as fallback', () => {
  const rotation = rotating();
  expect(rotation.promote('next', false)).toBeUndefined();
  expect(statesOf(rotation)).toEqual(['next in-use', 'old fallback']);
});

test('a rejected candidate is a candidate no more, and can still be promoted', () => {
  const rotation = rotating();
  rotation.offer('new');
  expect([rotation.reject('new'), rotation.reject('new')]).toEqual(['rejected', undefined]);
  expect([rotation.candidates, rotation.waiting]).toEqual([[], undefined]);
  rotation.promote('new', true);
  expect(statesOf(rotation)).toEqual(['new in-use', 'old fallback']);
});

describe('states of another rotation', () => {
  test('are taken over; a version that is new here keeps its own', () => {
    const before = new Rotation('old');
    before.offer('new', 'next');
    before.reject('new');
    before.reject('next');
    const rotation = new Rotation('new');
    rotation.offer('new', 'other', ['old']);
    expect(rotation.takeOver((version) => before.stateOf(version))).toBe(true);
    expect(statesOf(rotation)).toEqual(['old in-use', 'new rejected', 'other candidate']);
  });

  test.each([
    ['the one in use there is missing here', 'new'],
    ['the one in use here is new', 'newer'],
  ])('are not if %s', (_, current) => {
    const before = new Rotation('old');
    before.offer('new');
    const rotation = new Rotation(current);
    if (current === 'newer') rotation.offer('newer', undefined, ['old']);
    const states = statesOf(rotation);
    expect(rotation.takeOver((version) => before.stateOf(version))).toBe(false);
    expect(statesOf(rotation)).toEqual(states);
  });
});

describe('the next version', () => {
  test('waits when it is rejected, and is a candidate again when it is due', () => {
    const rotation = rotating();
    expect([rotation.reject('next'), rotation.reject('next')]).toEqual(['waiting', undefined]);
    expect([statesOf(rotation), rotation.waiting]).toEqual([['old in-use', 'next waiting'], 'next']);
    expect([rotation.retry('next'), rotation.retry('next')]).toEqual([true, false]);
    expect([rotation.candidates, rotation.waiting]).toEqual([['next'], undefined]);
  });

  test('waits while another process tries it, and can be promoted', () => {
    const rotation = rotating();
    expect([rotation.postpone('next'), rotation.postpone('old')]).toEqual([true, false]);
    rotation.promote('next', true);
    expect(statesOf(rotation)).toEqual(['next in-use', 'old fallback']);
  });

  test('goes on waiting when the sources are read again', () => {
    const rotation = rotating();
    rotation.reject('next');
    rotation.offer('old', 'next');
    expect(statesOf(rotation)).toEqual(['old in-use', 'next waiting']);
  });

  test('is a candidate again when the sources make it the current one', () => {
    const rotation = rotating();
    rotation.reject('next');
    rotation.offer('next');
    expect(statesOf(rotation)).toEqual(['old in-use', 'next candidate']);
    expect(rotation.reject('next')).toBe('rejected');
  });
});

test('promotes the fallback again', () => {
  const rotation = rotating();
  rotation.promote('next', true);
  rotation.promote('old', true);
  expect(statesOf(rotation)).toEqual(['old in-use', 'next fallback']);
  expect(rotation.reject('next')).toBeUndefined();
});

test.each(['old', 'unknown'])('rejects only candidates, not %s', (version) => {
  const rotation = rotating();
  expect(rotation.reject(version)).toBeUndefined();
  expect(statesOf(rotation)).toEqual(['old in-use', 'next candidate']);
});

test('promoting the version in use, or one that left, changes nothing', () => {
  const rotation = rotating();
  rotation.offer('old');
  rotation.promote('old', false);
  rotation.promote('next', false);
  expect(statesOf(rotation)).toEqual(['old in-use']);
});

describe('when the sources no longer hold', () => {
  test('a candidate, it leaves', () => {
    const rotation = rotating();
    expect(rotation.offer('old')).toEqual(['next']);
    expect([rotation.stateOf('next'), rotation.others]).toEqual([undefined, []]);
  });

  test('the version in use, it stays until another one is promoted', () => {
    const rotation = rotating();
    expect(rotation.offer('next')).toEqual([]);
    expect(rotation.inUse).toBe('old');
    expect(rotation.promote('next', false)).toBe('old');
    expect(statesOf(rotation)).toEqual(['next in-use']);
  });

  test('the version in use, and the upstream still accepts it, it stays as fallback', () => {
    const rotation = rotating();
    rotation.offer('next');
    expect(rotation.promote('next', true)).toBeUndefined();
    expect(rotation.others).toEqual(['old']);
  });
});

test('a version that the sources held before is a fallback', () => {
  const rotation = new Rotation('new');
  expect(rotation.offer('new', undefined, ['old'])).toEqual([]);
  expect(statesOf(rotation)).toEqual(['new in-use', 'old fallback']);
  expect(rotation.promote('old', false)).toBeUndefined();
  expect(rotation.offer('new')).toEqual([]);
  expect(statesOf(rotation)).toEqual(['old in-use', 'new fallback']);
});

test('a version keeps its state when the sources hold it again', () => {
  const rotation = rotating();
  rotation.offer('new');
  rotation.reject('new');
  rotation.offer('new', 'old');
  expect(statesOf(rotation)).toEqual(['old in-use', 'new rejected']);
});

test('a version in use that the sources held before is there once', () => {
  const rotation = new Rotation('old');
  rotation.offer('new', undefined, ['old']);
  expect(statesOf(rotation)).toEqual(['old in-use', 'new candidate']);
});

test('the version that is named is promoted, and the others stay in their order', () => {
  const rotation = new Rotation('old');
  rotation.offer('new', 'next', ['older']);
  rotation.promote('next', true);
  expect(statesOf(rotation)).toEqual(['next in-use', 'old fallback', 'new candidate', 'older fallback']);
});

test('a next version in use stays as fallback as long as the sources hold it', () => {
  const rotation = rotating();
  rotation.promote('next', false);
  rotation.offer('old', 'next');
  expect(rotation.promote('old', false)).toBeUndefined();
  expect(statesOf(rotation)).toEqual(['old in-use', 'next fallback']);
});
