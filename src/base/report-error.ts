import { isNativeError } from 'node:util/types';

/** Errors in a chain of causes that a description holds at most. */
const MOST_CAUSES = 4;

/**
 * Hands an error over that no caller can receive, as `reportError` of browsers does: it is thrown in a turn of its own
 * and ends in the process's handler of uncaught exceptions, which logs and counts it.
 */
export function reportError(error: unknown): void {
  queueMicrotask(() => {
    throw error;
  });
}

/** Calls something whose error is no business of the caller's: it is reported. */
export function isolate(call: () => void): void {
  try {
    call();
  } catch (error) {
    reportError(error);
  }
}

/** Calls `call` with each item. An error of one is reported, and the others are called all the same. */
export function callEach<T>(items: Iterable<T>, call: (item: T) => void): void {
  for (const item of items) {
    try {
      call(item);
    } catch (error) {
      reportError(error);
    }
  }
}

/**
 * Name, code, message and stack of an error and of its causes, for the log. Other properties are left out, and so is
 * what a message quotes: both can hold a secret, as in `Unexpected token 'h', "hunter2" is not valid JSON`.
 */
export function describeError(error: unknown): string {
  const described: string[] = [];
  let current = error;
  for (let count = 0; count < MOST_CAUSES && current !== undefined; count += 1) {
    described.push(describeOne(current));
    current = isNativeError(current) ? current.cause : undefined;
  }
  return described.join('\ncaused by ');
}

function describeOne(error: unknown): string {
  if (!isNativeError(error)) return `no Error, but of type ${typeof error}`;
  const code = 'code' in error && typeof error.code === 'string' ? ` [${error.code}]` : '';
  const message = error.message.replace(/["'`].*["'`]/s, '"…"');
  // The stack begins with the message as it was; only its frames are taken.
  const frames = (error.stack ?? '').split('\n').filter((line) => /^ {4}at /.test(line));
  return [`${error.name}${code}: ${message}`, ...frames].join('\n');
}
