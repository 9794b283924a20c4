import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { text } from 'node:stream/consumers';
import { needProgram } from './system-packages.ts';

export interface CommandEnd {
  readonly status: number | null;
  /** stdout, then stderr. */
  readonly printed: string;
}

/** Runs a program of the system to its end. */
export async function runCommand(
  command: string,
  args: readonly string[],
  input: string | Buffer = '',
): Promise<CommandEnd> {
  needProgram(command);
  const child = spawn(command, args, { stdio: 'pipe' });
  // A program that reads nothing may be gone before this is written.
  child.stdin.on('error', () => undefined).end(input);
  const [out, err, [status]] = await Promise.all([
    text(child.stdout),
    text(child.stderr),
    once(child, 'close') as Promise<[number | null]>,
  ]);
  return { status, printed: `${out}${err}` };
}
