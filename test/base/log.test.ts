import { execFileSync, spawnSync } from 'node:child_process';
import { closeSync, constants, openSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
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

test('a full pipe is not waited for, also if another process has made its writes wait', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'log-'));
  closing.push(() => rm(folder, { recursive: true }));
  const pipe = join(folder, 'pipe');
  execFileSync('mkfifo', [pipe]);
  const fd = openSync(pipe, constants.O_RDWR);
  closing.push(() => closeSync(fd));
  const script = `
    import { createLog } from '${new URL('../../src/base/log.ts', import.meta.url)}';
    import { spawnSync } from 'node:child_process';
    const log = createLog({ fd: 2 });
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
