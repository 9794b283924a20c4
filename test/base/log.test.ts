import { execFileSync, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, constants, openSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { stripVTControlCharacters } from 'node:util';
import { expect, test } from '@jest/globals';
import { createLog } from '../../src/base/log.ts';
import { closing } from '../support/closing.ts';

test('on a terminal, nothing that a client or an upstream sent commands it', () => {
  let screen = '';
  const log = createLog({
    isTTY: true,
    write: (text: string) => {
      screen += text;
    },
  });
  const hostile = 'a\u001b[2J\u009b8m\u202eb';
  log.warn({ path: hostile, detail: { hostile } }, hostile);
  log.error({ cause: { stack: `Error: ${hostile}\n    at b` } }, 'internal error');
  expect(screen.split('a\\u001b[2J\\u009b8m\\u202eb')).toHaveLength(5);
  // Colours are those of the log itself.
  expect(stripVTControlCharacters(screen).replaceAll('\n', '')).not.toMatch(/[\p{Cc}\p{Cf}]/u);
});

/** A pipe that nobody reads. */
async function openPipe(): Promise<{ readonly pipe: string; readonly fd: number }> {
  const folder = await mkdtemp(join(tmpdir(), 'log-'));
  closing.push(() => rm(folder, { recursive: true }));
  const pipe = join(folder, 'pipe');
  execFileSync('mkfifo', [pipe]);
  const fd = openSync(pipe, constants.O_RDWR);
  closing.push(() => closeSync(fd));
  return { pipe, fd };
}

const CREATE = `
    import { createLog } from '${new URL('../../src/base/log.ts', import.meta.url)}';
    const log = createLog({ fd: 2 });
`;

test('a full pipe is not waited for, also if another process has made its writes wait', async () => {
  const { fd } = await openPipe();
  const script = `
    import { spawnSync } from 'node:child_process';
    ${CREATE}
    spawnSync('true', { stdio: 'inherit' });
    for (let at = 0; at < 2_000; at += 1) log.info('a'.repeat(1_000));
    process.stdout.write('done');
  `;
  const { stdout } = spawnSync(process.execPath, ['--input-type=module', '-e', script], {
    stdio: ['ignore', 'pipe', fd],
    timeout: 60_000,
    killSignal: 'SIGKILL',
  });
  expect(stdout.toString()).toBe('done');
});

test('the log says how many lines were dropped while nobody read it', async () => {
  const { pipe, fd } = await openPipe();
  const script = `
    ${CREATE}
    for (let at = 0; at < 2_000; at += 1) log.info('a'.repeat(1_000));
    process.stdout.write('done');
    process.stdin.resume();
  `;
  const child = spawn(process.execPath, ['--input-type=module', '-e', script], {
    stdio: ['pipe', 'pipe', fd],
  });
  const ended = once(child, 'close');
  await once(child.stdout ?? child, 'data');
  const reader = new Socket({ fd: openSync(pipe, constants.O_RDONLY | constants.O_NONBLOCK) });
  closing.push(() => reader.destroy());
  let written = 0;
  for await (const line of createInterface(reader)) {
    const { msg, lines } = JSON.parse(line) as { msg: string; lines?: number };
    if (lines === undefined) written += 1;
    else {
      expect([msg, lines]).toEqual(['log lines were dropped, since nobody read stderr', 2_000 - written]);
      break;
    }
  }
  expect(written).toBeLessThan(2_000);
  child.stdin?.end();
  await ended;
});
