import { jest } from '@jest/globals';

/** Sets the wall clock alone: timers and I/O go on. `jest.useRealTimers` takes it back. */
export function setWallClock(now: number): void {
  jest.useFakeTimers({
    now,
    doNotFake: [
      'hrtime',
      'nextTick',
      'performance',
      'queueMicrotask',
      'setImmediate',
      'clearImmediate',
      'setInterval',
      'clearInterval',
      'setTimeout',
      'clearTimeout',
    ],
  });
}
