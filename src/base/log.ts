import { constants, fstatSync, openSync } from 'node:fs';
import { createRequire } from 'node:module';
import { type Logger, pino, stdTimeFunctions } from 'pino';
import { errorCode } from './error-code.ts';
import { ignoreSystemError } from './expected-errors.ts';
import { printableLines } from './printable.ts';

const require = createRequire(import.meta.url);

/** The log; `level` can be changed while it is in use. */
export type Log = Pick<Logger, 'debug' | 'info' | 'warn' | 'error' | 'level'>;

/** Buffered bytes while stderr cannot be written; later lines are dropped. */
const BACKLOG = 1024 * 1024;
/** Pause before a full pipe is tried again, in milliseconds. */
const RETRY_MS = 100;
/** Tries for which the end of the process waits. */
const MAX_TRIES_AT_END = 10;

/** Form of log lines: time in RFC 3339, level as a word. */
export const logOptions = {
  timestamp: stdTimeFunctions.isoTime,
  base: null,
  formatters: { level: (level: string) => ({ level }) },
} as const;

/** Where a log goes: to the file, pipe or terminal with this number if it has one. */
interface LogTarget {
  readonly fd?: number;
  readonly isTTY?: boolean;
  /** Of a terminal: NO_COLOR and TERM may say that it has none. */
  hasColors?(): boolean;
  /** The handle of Node.js, which a stream to a pipe or socket has. */
  readonly _handle?: { readonly setBlocking?: (isBlocking: boolean) => unknown } | null;
  write(text: string): unknown;
}

/**
 * Creates a log: JSON lines, or readable ones on a terminal. It writes synchronously, so that the last lines before an
 * exit are not lost. `base`: fields of every line.
 */
export function createLog(target: LogTarget, base: Readonly<Record<string, unknown>> = {}): Log {
  const options = { ...logOptions, base: { ...base } };
  const stream = target.fd === undefined ? target : synchronous(target.fd, target);
  const log = pino(options, target.isTTY === true ? readable(stream, target.hasColors?.() === true) : stream);
  if ('on' in stream) logDropped(stream, log);
  return log;
}

function readable(stream: LogTarget, colorize: boolean): LogTarget {
  // Loaded here, because only a terminal needs it.
  const { prettyFactory }: typeof import('pino-pretty') = require('pino-pretty');
  const format = prettyFactory({ colorize, translateTime: 'SYS:HH:MM:ss.l' });
  return { write: (line: string) => void stream.write(format(JSON.parse(line, plain))) };
}

/** Logs how many lines were dropped, as soon as stderr takes lines again. */
function logDropped(stream: SynchronousStream, log: Log): void {
  let lines = 0;
  stream.on('drop', () => {
    lines += 1;
  });
  stream.on('drain', () => {
    if (lines === 0) return;
    log.warn({ lines }, 'log lines were dropped, since nobody read stderr');
    lines = 0;
  });
}

/** Text of clients and upstreams must not command the terminal. */
function plain(_key: string, value: unknown): unknown {
  return typeof value === 'string' ? printableLines(value) : value;
}

type SynchronousStream = ReturnType<typeof pino.destination>;

function synchronous(fd: number, { _handle: handle }: LogTarget): SynchronousStream {
  const dest = ownDescription(fd);
  // Otherwise sonic-boom sleeps while a pipe is full, and nothing is served until somebody reads it.
  const retryEAGAIN = (): boolean => false;
  const stream = pino.destination({ dest, sync: true, maxLength: BACKLOG, retryEAGAIN });
  if (dest === fd && fstatSync(fd).isSocket()) {
    const { write } = stream;
    // A socket, as systemd's journal is, has no second description. Each worker that begins or ends makes it blocking.
    stream.write = (text) => {
      handle?.setBlocking?.(false);
      return write.call(stream, text);
    };
  }
  let retry: NodeJS.Timeout | undefined;
  let tries = 0;
  const writeRest = (): void => {
    retry = undefined;
    tries += 1;
    stream.write('');
  };
  stream.on('write', () => {
    tries = 0;
  });
  // Without a listener, a write error (full disk, closed terminal) would throw in the logging caller.
  stream.on('error', (error: unknown) => {
    if (errorCode(error) !== 'EAGAIN') return;
    retry ??= setTimeout(writeRest, RETRY_MS);
    if (tries >= MAX_TRIES_AT_END) retry.unref();
  });
  return stream;
}

/**
 * Opens a pipe once more, of which this process has the number. Otherwise a worker that ends, which puts the pipe back as
 * it found it, would make the writes of all processes wait while it is full.
 */
export function ownDescription(fd: number): number {
  const { O_APPEND, O_NONBLOCK, O_WRONLY } = constants;
  try {
    return fstatSync(fd).isFIFO() ? openSync(`/proc/self/fd/${fd}`, O_WRONLY | O_APPEND | O_NONBLOCK) : fd;
  } catch (error) {
    // Another user's pipe, or not Linux.
    ignoreSystemError(error);
    return fd;
  }
}
