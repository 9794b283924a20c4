import { createRequire } from 'node:module';
import { type Logger, pino, stdTimeFunctions } from 'pino';

const require = createRequire(import.meta.url);

/** The log; `level` can be changed while it is in use. */
export type Log = Pick<Logger, 'debug' | 'info' | 'warn' | 'error' | 'level'>;

/** Buffered bytes while stderr cannot be written; later lines are dropped. */
const BACKLOG = 1024 * 1024;

/** Form of log lines: time in RFC 3339, level as a word. */
export const logOptions = {
  timestamp: stdTimeFunctions.isoTime,
  base: null,
  formatters: { level: (level: string) => ({ level }) },
} as const;

/**
 * Creates the log of the process on stderr: JSON lines, or readable ones on a terminal. It writes
 * synchronously, so that the last lines before an exit are not lost. `base`: fields of every line.
 */
export function createLog(terminal: boolean, base: Readonly<Record<string, unknown>> = {}): Log {
  const options = { ...logOptions, base: { ...base } };
  const stderr = pino.destination({ dest: 2, sync: true, maxLength: BACKLOG });
  // Without a listener, a write error (full disk, closed terminal) would throw in the logging caller.
  stderr.on('error', () => undefined);
  if (!terminal) return pino(options, stderr);
  // Loaded here, because only a terminal needs it.
  const { prettyFactory }: typeof import('pino-pretty') = require('pino-pretty');
  const readable = prettyFactory({ colorize: true, translateTime: 'SYS:HH:MM:ss.l' });
  return pino(options, { write: (line: string) => void stderr.write(readable(line)) });
}
