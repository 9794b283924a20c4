import { open, readFile } from 'node:fs/promises';
import type { Readable, Writable } from 'node:stream';
import { fileErrorText, messageOf } from '../base/error-code.ts';
import { readUpTo } from '../base/guarded-file.ts';
import { printableLines } from '../base/printable.ts';
import type { ProcessContext } from '../credentials/sources.ts';

/** The part of its process that a command uses. */
export interface Io {
  readonly stdin: Readable & { readonly isTTY?: boolean };
  readonly stdout: Output;
  readonly stderr: Output;
  readonly env: Readonly<Record<string, string | undefined>>;
  /** Windows has no user ids. */
  readonly geteuid?: (() => number) | undefined;
  /** Ends the process although something is pending. */
  exit?(status: ExitStatus): void;
}

/** A stream for text, and what a terminal adds to it. */
export type Output = Writable & { readonly isTTY?: boolean; readonly columns?: number; readonly fd?: number };

/** 0 done, 1 failed or found an error, 2 wrong usage or configuration. */
export type ExitStatus = 0 | 1 | 2;

/** Makes an action of commander from a command, whose result is the exit status; none: 0. */
export type Run = <Given extends unknown[]>(
  command: (io: Io, ...given: Given) => Promise<ExitStatus> | Promise<void>,
) => (...given: Given) => Promise<void>;

/** Returns the environment and user of a command, for sources of secrets. */
export function processContext({ env: environment, geteuid }: Io): ProcessContext {
  const uid = geteuid?.();
  return { environment, ...(uid !== undefined && { uid }) };
}

/** Writes a result to stdout. Resolves when stdout has taken it, so that a slow reader slows the command. */
export function print({ stdout }: Io, text: string): Promise<void> {
  return new Promise((resolve, reject) => {
    stdout.write(text, (error) => (error ? reject(error) : resolve()));
  });
}

/** Writes lines to stderr, for people. Names of files can be in them, which somebody else chose. */
export function note({ stderr }: Io, text: string): void {
  stderr.write(`${printableLines(text)}\n`);
}

/**
 * Reads the text of a file that an option names. `tooLarge`: the message for one with more bytes than `largest`.
 * @throws CommandError
 */
export async function readBounded(
  file: string,
  largest: number,
  tooLarge = 'it is too large',
): Promise<string> {
  try {
    await using handle = await open(file);
    const bytes = await readUpTo(handle, largest);
    if (bytes === undefined) throw new Error(tooLarge);
    return bytes.toString();
  } catch (error) {
    const reason = fileErrorText(error, file) ?? `${file} cannot be read: ${messageOf(error)}`;
    throw new CommandError(2, reason, error);
  }
}

/** A command that failed. The message is printed without a stack. */
export class CommandError extends Error {
  override readonly name = 'CommandError';
  /** The exit status: 1 failed, 2 wrong usage or configuration. */
  readonly status: 1 | 2;

  constructor(status: 1 | 2, message: string, cause?: unknown) {
    super(message, cause === undefined ? undefined : { cause });
    this.status = status;
  }
}

/** Returns the version in package.json. */
export async function packageVersion(): Promise<string> {
  // package.json is two folders up from src/cli and from dist/cli.
  const text = await readFile(new URL('../../package.json', import.meta.url), 'utf8');
  const { version } = JSON.parse(text) as { version: string };
  return version;
}

const SIGNALS = ['SIGTERM', 'SIGINT'] as const;

/** Resolves with the next SIGTERM or SIGINT. A later one ends the process unless this is called again. */
export function shutdownSignal(): Promise<NodeJS.Signals> {
  return new Promise((resolve) => {
    const heard = (signal: NodeJS.Signals): void => {
      for (const each of SIGNALS) process.off(each, heard);
      resolve(signal);
    };
    for (const each of SIGNALS) process.on(each, heard);
  });
}
