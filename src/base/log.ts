import { type Logger, pino, stdTimeFunctions } from 'pino';
import { prettyFactory } from 'pino-pretty';

/** `level` can be set while it runs. */
export type Log = Pick<Logger, 'debug' | 'info' | 'warn' | 'error' | 'level'>;

/** Lines that are kept while stderr cannot be written, in bytes; what exceeds that is lost. */
const BACKLOG = 1024 * 1024;

/**
 * The process's log on stderr: JSON lines, or readable ones when stderr is a terminal. Written
 * synchronously, so that the last line before an exit is not lost.
 */
export function createLog(terminal: boolean): Log {
  const options = { timestamp: stdTimeFunctions.isoTime, base: null };
  const stderr = pino.destination({ dest: 2, sync: true, maxLength: BACKLOG });
  // Without a listener each line that a full disk or a lost terminal refuses would throw at whoever logs.
  stderr.on('error', () => undefined);
  if (!terminal) return pino(options, stderr);
  const readable = prettyFactory({ colorize: true, translateTime: 'SYS:HH:MM:ss.l' });
  return pino(options, { write: (line: string) => void stderr.write(readable(line)) });
}
