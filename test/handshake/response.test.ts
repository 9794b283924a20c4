import { describe, expect, jest, test } from '@jest/globals';
import { GatewayError } from '../../src/base/errors.ts';
import { UpstreamResponse } from '../../src/handshake/response.ts';
import { ScriptedSource } from './scene.ts';

const BROKEN = new GatewayError('upstream-unreachable', 'The connection broke.');

function begun() {
  const source = new ScriptedSource();
  const response = new UpstreamResponse(200, 'OK', ['A', 'b'], true, source);
  const push = (text: string): void => response.push(Buffer.from(text));
  const take = (): string[] => response.take().map(String);
  return { response, source, push, take };
}

describe('a response', () => {
  test('is whole at its end, with its trailers, and the pieces that were not taken are the last ones', () => {
    const { response, push, take } = begun();
    push('a');
    push('b');
    expect([response.isWhole, take(), response.hasPieces]).toEqual([false, ['a', 'b'], false]);
    push('c');
    response.end(['T', 'u']);
    expect([response.isWhole, response.trailers, take(), take()]).toEqual([true, ['T', 'u'], ['c'], []]);
  });

  test('without a source has nothing that could follow', async () => {
    const response = new UpstreamResponse(204, '', [], true, undefined);
    await response.more();
    expect([response.isWhole, response.take()]).toEqual([true, []]);
  });

  test('resolves a wait with the next piece, or the end', async () => {
    const { response, push, take } = begun();
    const first = response.more();
    push('a');
    await first;
    expect(take()).toEqual(['a']);
    const end = response.more();
    response.end([]);
    await end;
    expect(response.isWhole).toBe(true);
  });

  test('that breaks off rejects a wait, now and later; what had come can be taken', async () => {
    const { response } = begun();
    const waiting = response.more();
    response.fail(BROKEN);
    await expect(waiting).rejects.toBe(BROKEN);
    await expect(response.more()).rejects.toBe(BROKEN);
    const late = begun();
    late.push('a');
    late.response.fail(BROKEN);
    expect([late.take(), late.response.isWhole, late.response.error]).toEqual([['a'], false, BROKEN]);
  });

  test('has one end: a second one changes nothing', () => {
    const { response, source } = begun();
    response.end([]);
    response.fail(BROKEN);
    response.abandon();
    expect([response.isWhole, response.error, source.calls]).toEqual([true, undefined, []]);
    const other = begun();
    other.response.fail(BROKEN);
    other.response.abandon();
    expect([other.response.error, other.source.calls]).toEqual([BROKEN, []]);
  });
});

describe('the upstream is held back', () => {
  test('while 64 KiB wait for a reader, and read on when they are taken', () => {
    const { response, source, push } = begun();
    push('a'.repeat(65_000));
    expect(source.calls).toEqual([]);
    push('a');
    expect(source.calls).toEqual(['pause']);
    response.take();
    expect(source.calls).toEqual(['pause', 'resume']);
    response.take();
    push('b');
    expect(source.calls).toEqual(['pause', 'resume']);
  });

  test('while very many small pieces wait', () => {
    const { source, push } = begun();
    for (let count = 0; count < 200; count += 1) push('a');
    expect(source.calls[0]).toBe('pause');
  });

  test('never while a reader waits for more', async () => {
    const { response, source, push } = begun();
    const waiting = response.more();
    push('a'.repeat(100_000));
    await waiting;
    expect(source.calls).toEqual([]);
  });

  test('until a reader that paused it resumes it, and no longer than it lasts', () => {
    const { response, source } = begun();
    response.pause();
    response.resume();
    response.resume();
    expect(source.calls).toEqual(['pause', 'resume']);
    response.pause();
    response.end([]);
    response.resume();
    response.pause();
    expect(source.calls).toEqual(['pause', 'resume', 'pause']);
  });
});

describe('the rest of a response', () => {
  test('is skipped up to its end', async () => {
    const { response, push } = begun();
    push('a');
    const skipped = response.skip();
    push('b');
    expect(response.isWhole).toBe(false);
    response.end([]);
    await skipped;
    expect(response.isWhole).toBe(true);
  });

  test('is skipped in vain if it breaks off', async () => {
    const { response } = begun();
    const skipped = response.skip();
    response.fail(BROKEN);
    await expect(skipped).rejects.toBe(BROKEN);
  });

  test.each([
    ['ends', true, (response: UpstreamResponse) => response.end([])],
    ['breaks off', false, (response: UpstreamResponse) => response.fail(BROKEN)],
  ])('is discarded until it %s', async (_how, isWhole, finish) => {
    const { response, source } = begun();
    const discarded = response.discard();
    finish(response);
    await discarded;
    expect([response.isWhole, source.calls]).toEqual([isWhole, []]);
  });

  test('is discarded for a second, then abandoned', async () => {
    jest.useFakeTimers();
    try {
      const { response, source } = begun();
      const discarded = response.discard();
      jest.advanceTimersByTime(999);
      expect(source.calls).toEqual([]);
      jest.advanceTimersByTime(1);
      await discarded;
      expect([source.calls, response.isWhole]).toEqual([['abandon'], false]);
      expect(jest.getTimerCount()).toBe(0);
    } finally {
      jest.useRealTimers();
    }
  });

  test.each([
    [65_536, []],
    [65_537, ['abandon']],
  ])('of %i bytes is discarded up to 64 KiB, then abandoned', async (length, calls) => {
    jest.useFakeTimers();
    try {
      const { response, source, push } = begun();
      push('a'.repeat(length - 1));
      const discarded = response.discard();
      push('a');
      await Promise.resolve();
      if (calls.length === 0) response.end([]);
      await discarded;
      const isWhole = calls.length === 0;
      expect([response.isWhole, source.calls.filter((call) => call === 'abandon')]).toEqual([isWhole, calls]);
      expect(jest.getTimerCount()).toBe(0);
    } finally {
      jest.useRealTimers();
    }
  });

  test('is abandoned at once', async () => {
    const { response, source } = begun();
    const waiting = response.more();
    response.abandon();
    await expect(waiting).rejects.toMatchObject({ code: 'upstream-protocol' });
    expect(source.calls).toEqual(['abandon']);
  });
});

describe('a check of a body', () => {
  /** Notes the pieces and the end. */
  function noting(fails: { readonly atEnd?: boolean } = {}) {
    const noted: string[] = [];
    const finish = (): void => {
      noted.push('end');
      if (fails.atEnd === true) throw BROKEN;
    };
    return { noted, check: { update: (piece: Buffer) => void noted.push(`${piece}`), finish } };
  }

  test.each([0, 1, 2])('sees all of it if %i pieces came before', (before) => {
    const { response, push } = begun();
    const { noted, check } = noting();
    const pieces = ['a', 'b'];
    pieces.slice(0, before).forEach(push);
    response.inspect(check);
    pieces.slice(before).forEach(push);
    response.end([]);
    expect(noted).toEqual(['a', 'b', 'end']);
  });

  test('is told of the end at once if it came before', () => {
    const { response, push } = begun();
    const { noted, check } = noting();
    push('a');
    response.end([]);
    response.inspect(check);
    expect(noted).toEqual(['a', 'end']);
  });

  test('that fails at the end breaks the response off', async () => {
    const { response, push, take } = begun();
    response.inspect(noting({ atEnd: true }).check, true);
    const waiting = response.more();
    push('a');
    push('b');
    await waiting;
    expect(take()).toEqual(['a']);
    const end = response.more();
    response.end([]);
    await expect(end).rejects.toBe(BROKEN);
    expect([response.isWhole, response.take()]).toEqual([false, []]);
  });

  test('holds no piece back unless it is asked to', () => {
    const { response, push, take } = begun();
    response.inspect(noting().check);
    push('a');
    expect([response.hasPieces, take()]).toEqual([true, ['a']]);
  });

  test('beside another one sees the same', () => {
    const { response, push } = begun();
    const [one, other] = [noting(), noting()];
    response.inspect(one.check, true);
    response.inspect(other.check);
    push('a');
    response.end([]);
    expect([one.noted, other.noted]).toEqual([
      ['a', 'end'],
      ['a', 'end'],
    ]);
  });
});
