import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { Readable, Writable } from 'node:stream';
import { text } from 'node:stream/consumers';
import { fileURLToPath } from 'node:url';
import { needProgram } from './system-packages.ts';

/** The program as it stands in the checkout. */
export const SOURCE_PROGRAM = fileURLToPath(new URL('../../src/cli/digest-gateway.js', import.meta.url));
/** The same in few files, which start in half the time; outside of jest the one above. */
export const PROGRAM = process.env['TEST_PROGRAM'] ?? SOURCE_PROGRAM;

const { NODE_COMPILE_CACHE } = process.env;
/** The variable that lets processes share compiled modules, for those with an environment of their own. */
export const compileCache = NODE_COMPILE_CACHE === undefined ? {} : { NODE_COMPILE_CACHE };

export interface Ended {
  status: number | null;
  stdout: string;
  stderr: string;
}

/**
 * Runs a command in this process. Its environment is `environment`, and its stdin is `input`; none of them is a
 * terminal.
 */
export async function gateway(
  args: readonly string[],
  environment: Readonly<Record<string, string>> = {},
  input: string | Uint8Array = '',
): Promise<Ended> {
  // Loaded here, because others need only the name of the program.
  const { main } = await import('../../src/cli/main.ts');
  const [stdout, stderr] = [new Printed(), new Printed()];
  const stdin = Readable.from([input], { objectMode: false });
  const before = FOR_LIFE.map((event) => process.listeners(event));
  const status = await main(args, { stdin, stdout, stderr, env: environment, geteuid: process.geteuid });
  for (const [index, event] of FOR_LIFE.entries()) {
    for (const listener of process.listeners(event)) {
      if (!before[index]?.includes(listener)) process.removeListener(event, listener);
    }
  }
  return { status, stdout: stdout.text, stderr: stderr.text };
}

/** Events of the process that commands listen to until it ends; the process of a test runs others after it. */
const FOR_LIFE = ['SIGHUP', 'SIGUSR2', 'uncaughtException', 'unhandledRejection'] as const;

/** What a command printed. */
class Printed extends Writable {
  text = '';

  override _write(chunk: Buffer, _encoding: string, done: () => void): void {
    this.text += chunk;
    done();
  }
}

/** Does the same in a process of its own. Its environment has also where Node.js keeps compiled modules. */
export async function runProgram(
  args: readonly string[],
  environment: Readonly<Record<string, string>> = {},
  nodeArgs: readonly string[] = [],
  input: string | Uint8Array = '',
): Promise<Ended> {
  const child = spawn(process.execPath, [...nodeArgs, PROGRAM, ...args], {
    env: { ...compileCache, ...environment },
    stdio: 'pipe',
  });
  // A program that reads nothing may be gone before this is written.
  child.stdin.on('error', () => undefined).end(input);
  const [stdout, stderr, [status]] = await Promise.all([
    text(child.stdout),
    text(child.stderr),
    once(child, 'close') as Promise<[number | null]>,
  ]);
  return { status, stdout, stderr };
}

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
