import { runCommand } from './program.ts';

/**
 * Runs a program with the rights of root: as it is if this process has them, else with sudo, which may not ask.
 * Resolves to what it printed.
 * @throws Error with what it printed if its status is not 0
 */
export async function asRoot(command: string, ...args: readonly string[]): Promise<string> {
  const [program = command, ...rest] = [
    ...(process.getuid?.() === 0 ? [] : ['sudo', '-n']),
    command,
    ...args,
  ];
  const { status, printed } = await runCommand(program, rest);
  if (status !== 0) throw new Error(`${command} ${args.join(' ')} (status ${status}): ${printed.trim()}`);
  return printed.trim();
}
