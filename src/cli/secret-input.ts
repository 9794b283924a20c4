import { createInterface } from 'node:readline/promises';
import { Writable } from 'node:stream';
import { text } from 'node:stream/consumers';
import { Secret } from '../base/secret.ts';
import { CommandError } from './command-error.ts';

/** A secret from stdin: asked for without echo on a terminal, else all that comes, without one newline at its end. */
export async function readSecretInput(prompt: string): Promise<Secret> {
  const entered = process.stdin.isTTY
    ? await asked(prompt)
    : (await text(process.stdin)).replace(/\r?\n$/, '');
  if (entered !== '') return new Secret(entered);
  throw new CommandError(2, 'no secret came on stdin: type it, or redirect a file that holds it');
}

async function asked(prompt: string): Promise<string> {
  // With a terminal, readline switches its echo off and writes what is typed to its output instead.
  const nowhere = new Writable({ write: (_chunk, _encoding, done) => done() });
  const lines = createInterface({ input: process.stdin, output: nowhere, terminal: true });
  const { promise: givenUp, reject } = Promise.withResolvers<never>();
  lines.once('SIGINT', () => reject(new CommandError(1, 'given up: nothing was changed')));
  lines.once('close', () => reject(new CommandError(1, 'given up: nothing was changed')));
  process.stderr.write(prompt);
  try {
    return await Promise.race([lines.question(''), givenUp]);
  } finally {
    process.stderr.write('\n');
    lines.close();
  }
}
