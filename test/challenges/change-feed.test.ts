import { afterEach, beforeEach, describe, expect, jest, test } from '@jest/globals';
import { Secret } from '../../src/base/secret.ts';
import { ChangeFeed } from '../../src/challenges/store/change-feed.ts';
import { storeKeys, ValueSigner } from '../../src/challenges/store/value-signer.ts';

const LONGEST_MESSAGE = 4096;
const LIFE_MS = 60_000;
const CLOCK_DIFFERENCE_MS = 60_000;
const PAUSE_MS = 50;
const secret = new ValueSigner(storeKeys(new Secret('a'.repeat(64))));

beforeEach(() => {
  jest.useFakeTimers({ now: Date.UTC(2026, 10, 22) });
});
afterEach(() => {
  jest.useRealTimers();
});

/** A process that uses the key `k`, what it heard, and what it rejected. */
function processNamed(name: string, { signer = new ValueSigner([]), channel = 'changes' } = {}) {
  const heard: string[] = [];
  const rejected: string[] = [];
  const feed = new ChangeFeed({
    process: name,
    channel,
    signer,
    isUsed: (key) => key.startsWith('k'),
    onChange: (key) => heard.push(key),
    onRejected: (reason) => rejected.push(reason),
  });
  return { feed, heard, rejected };
}

describe('an announcement', () => {
  test('reaches the others that use its key, and not who made it', () => {
    const [one, other] = [processNamed('1'), processNamed('2')];
    for (const key of ['k', 'unused', 'k with spaces']) {
      const message = one.feed.announcement(key);
      for (const { feed } of [one, other]) feed.hear(message);
    }
    expect([one.heard, other.heard]).toEqual([[], ['k', 'k with spaces']]);
    expect([...one.rejected, ...other.rejected]).toEqual([]);
  });

  test('is told at once, and those of the pause after it as one', () => {
    const [one, { feed, heard }] = [processNamed('1'), processNamed('2')];
    const hear = (key: string): void => feed.hear(one.feed.announcement(key));
    for (const key of ['k', 'k', 'k', 'k2']) hear(key);
    expect(heard).toEqual(['k', 'k2']);
    jest.advanceTimersByTime(PAUSE_MS - 1);
    expect(heard).toEqual(['k', 'k2']);
    jest.advanceTimersByTime(1);
    expect(heard).toEqual(['k', 'k2', 'k']);
    hear('k2');
    expect(heard).toEqual(['k', 'k2', 'k', 'k2']);
    jest.advanceTimersByTime(2 * PAUSE_MS);
    expect([heard.length, jest.getTimerCount()]).toEqual([4, 0]);
  });

  test('of which there is no end is told more and more seldom, until there was a quiet pause', () => {
    const [one, { feed, heard }] = [processNamed('1'), processNamed('2')];
    const hear = (): void => feed.hear(one.feed.announcement('k'));
    for (let ms = 0; ms < 10_000; ms += 10) {
      hear();
      jest.advanceTimersByTime(10);
    }
    // At 0, 50, 150, 350, 750 and 1,550 ms, then once a second.
    expect(heard.length).toBe(14);
    jest.advanceTimersByTime(2_000);
    const before = heard.length;
    hear();
    hear();
    jest.advanceTimersByTime(PAUSE_MS);
    expect(heard.length).toBe(before + 2);
  });

  test('is not told once the feed is closed', () => {
    const [one, { feed, heard }] = [processNamed('1'), processNamed('2')];
    for (let count = 0; count < 2; count += 1) feed.hear(one.feed.announcement('k'));
    feed.close();
    jest.advanceTimersByTime(PAUSE_MS);
    expect([heard, jest.getTimerCount()]).toEqual([['k'], 0]);
  });

  test.each([
    ['no text', ''],
    ['no name of a process', ' k'],
    ['no key', '1'],
    ['more characters than one of a gateway', `1 ${'k'.repeat(LONGEST_MESSAGE - 1)}`],
  ])('with %s is rejected', (_, message) => {
    const { feed, heard, rejected } = processNamed('2');
    feed.hear(message);
    expect([heard, rejected]).toEqual([[], ['malformed']]);
  });

  test('has 4096 characters at most', () => {
    const { feed, heard, rejected } = processNamed('2');
    const key = 'k'.repeat(LONGEST_MESSAGE - 2);
    feed.hear(`1 ${key}`);
    expect([heard, rejected]).toEqual([[key], []]);
  });
});

describe('with a key, an announcement', () => {
  test('is believed for a minute, and for as long as clocks may differ', () => {
    const one = processNamed('1', { signer: secret });
    const { feed, heard, rejected } = processNamed('2', { signer: secret });
    const message = one.feed.announcement('k');
    jest.advanceTimersByTime(LIFE_MS + CLOCK_DIFFERENCE_MS);
    feed.hear(message);
    expect([heard, rejected]).toEqual([['k'], []]);
    jest.advanceTimersByTime(1);
    feed.hear(message);
    expect(rejected).toEqual(['expired']);
  });

  test('is rejected without a signature, or with that of another channel', () => {
    const { feed, heard, rejected } = processNamed('2', { signer: secret });
    feed.hear(processNamed('1').feed.announcement('k'));
    feed.hear(processNamed('1', { signer: secret, channel: 'others' }).feed.announcement('k'));
    feed.hear(secret.sign({ kind: 'leader', place: 'changes' }, '1 k', 0, LIFE_MS));
    expect([heard, rejected]).toEqual([[], ['forged', 'forged', 'forged']]);
  });
});
