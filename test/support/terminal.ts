import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { text } from 'node:stream/consumers';
import { needPackages } from './system-packages.ts';

export interface TerminalEnd {
  readonly status: number | null;
  /** Text on the pseudo terminal: stdout and stderr of the program, as far as they are not redirected. */
  readonly screen: string;
}

/**
 * Runs a shell command on a pseudo terminal of 120 columns to its end. Redirections are the shell's: `… 2>file`.
 */
export async function onTerminal(command: string): Promise<TerminalEnd> {
  needPackages('bsdutils');
  const run = `stty cols 120; exec ${command}`;
  const args = ['--quiet', '--return', '--command', run, '/dev/null'];
  const child = spawn('script', args, {
    env: { ...process.env, TERM: 'xterm' },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const [screen, [status]] = await Promise.all([
    text(child.stdout),
    once(child, 'close') as Promise<[number | null]>,
  ]);
  return { status, screen };
}
