import { createInterface } from 'node:readline/promises';
import { Writable } from 'node:stream';
import { text } from 'node:stream/consumers';
import { Secret } from '../base/secret.ts';
import { CommandError } from './command-error.ts';

/**
 * Reads a secret from stdin: without echo on a terminal, else until the end, without one trailing newline.
 * @throws CommandError if it is empty or the prompt is interrupted
 */
export async function readSecretInput(prompt: string): Promise<Secret> {
  const entered = process.stdin.isTTY
    ? await promptFor(prompt)
    : (await text(process.stdin)).replace(/\r?\n$/, '');
  if (entered !== '') return new Secret(entered);
  throw new CommandError(2, 'no secret came on stdin: type it, or redirect a file that holds it');
}

async function promptFor(prompt: string): Promise<string> {
  // In terminal mode readline disables the terminal's echo and writes the input to its output, which is
  // discarded.
  const discard = new Writable({ write: (_chunk, _encoding, done) => done() });
  const lines = createInterface({ input: process.stdin, output: discard, terminal: true });
  const { promise: aborted, reject } = Promise.withResolvers<never>();
  lines.once('SIGINT', () => reject(new CommandError(1, 'given up: nothing was changed')));
  lines.once('close', () => reject(new CommandError(1, 'given up: nothing was changed')));
  process.stderr.write(prompt);
  try {
    return await Promise.race([lines.question(''), aborted]);
  } finally {
    process.stderr.write('\n');
    lines.close();
  }
}
