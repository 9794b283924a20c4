import { type Logger, pino, stdTimeFunctions } from 'pino';
import pretty from 'pino-pretty';

/** `level` can be set while it runs. */
export type Log = Pick<Logger, 'debug' | 'info' | 'warn' | 'error' | 'level'>;

/**
 * The process's log on stderr: JSON lines, or readable ones when stderr is a terminal. Written
 * synchronously, so that the last line before an exit is not lost.
 */
export function createLog(terminal: boolean): Log {
  const options = { timestamp: stdTimeFunctions.isoTime, base: null };
  return terminal
    ? pino(options, pretty({ destination: 2, sync: true, colorize: true, translateTime: 'SYS:HH:MM:ss.l' }))
    : pino(options, pino.destination({ dest: 2, sync: true }));
}
