import { execFileSync, spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { expect, test } from '@jest/globals';
import { useFolders } from '../support/audit-log.ts';

const folder = useFolders();

/** How a process ends that has left something open; its status or signal, and what it printed. */
function endOf(open: string, pipe = ''): [number | null, NodeJS.Signals | null, string] {
  const script = `
    import { open } from 'node:fs';
    import { createServer } from 'node:net';
    import { endWithin } from '${new URL('../../src/cli/serve.ts', import.meta.url)}';
    process.exitCode = 3;
    ${open}
    endWithin(100, { warn: (msg) => process.stderr.write(msg) });
  `;
  const { status, signal, stderr } = spawnSync(
    process.execPath,
    ['--input-type=module', '-e', script, pipe],
    { timeout: 60_000, killSignal: 'SIGTERM' },
  );
  return [status, signal, stderr.toString()];
}

test('a gateway that stopped ends though a pipe without a writer keeps one of its threads', async () => {
  const pipe = join(await folder(), 'pipe');
  execFileSync('mkfifo', [pipe]);
  expect(endOf("open(process.argv.at(-1), 'r', () => undefined);", pipe)).toEqual([
    null,
    'SIGKILL',
    'a disk or a pipe does not respond; the process ends without waiting for it',
  ]);
});

test('one that has left something else open ends with its status', () => {
  expect(endOf('createServer().listen(0);')).toEqual([3, null, '']);
});

test('one that has left nothing open does not wait', () => {
  expect(endOf('')).toEqual([3, null, '']);
});
