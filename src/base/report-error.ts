import { isNativeError } from 'node:util/types';

/** Maximum number of errors in a described chain of causes. */
const MOST_CAUSES = 4;

/**
 * Reports an error that no caller can receive, as `reportError` of browsers does: it is thrown in a
 * microtask and reaches the process's handler of uncaught exceptions, which logs and counts it.
 */
export function reportError(error: unknown): void {
  queueMicrotask(() => {
    throw error;
  });
}

/** Calls a function and reports its error instead of throwing it. */
export function isolate(call: () => void): void {
  try {
    call();
  } catch (error) {
    reportError(error);
  }
}

/** Calls `call` with each item. An error is reported, and the remaining items are still called. */
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
 * Describes an error and its causes for the log: name, code, message and stack. Other properties and quoted
 * parts of a message are left out, because both can contain a secret, as in `Unexpected token 'h',
 * "hunter2" is not valid JSON`.
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
  const message = withoutQuotes(error.message);
  // The stack starts with the full message; only its frames are used.
  const frames = (error.stack ?? '').split('\n').filter((line) => /^ {4}at /.test(line));
  return [`${error.name}${code}: ${message}`, ...frames].join('\n');
}

/** Cuts what a message quotes, which can be a secret. */
export function withoutQuotes(message: string): string {
  return message.replace(/["'`].*["'`]/s, '"…"');
}
