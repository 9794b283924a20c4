import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { text } from 'node:stream/consumers';
import { fileURLToPath } from 'node:url';

export const PROGRAM = fileURLToPath(new URL('../../src/cli/digest-gateway.js', import.meta.url));

const { NODE_COMPILE_CACHE } = process.env;
/** The variable that lets processes share compiled modules, for those with an environment of their own. */
export const compileCache = NODE_COMPILE_CACHE === undefined ? {} : { NODE_COMPILE_CACHE };

export interface Ended {
  status: number | null;
  stdout: string;
  stderr: string;
}

/** Runs the program with arguments to its end. Its environment is `environment`, and where Node.js keeps compiled modules; its stdin is `input`. */
export async function gateway(
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
