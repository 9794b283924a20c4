import { execFileSync, spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { expect, test } from '@jest/globals';
import { useFolders } from '../../support/audit-log.ts';

const folder = useFolders();

const LEFT = 'the process ends without waiting for what it has left open';

/** How a process ends that has left something open; its status or signal, and what it printed. */
function endOf(open: string, pipe = ''): [number | null, NodeJS.Signals | null, string] {
  const script = `
    import { open } from 'node:fs';
    import { createServer } from 'node:net';
    import { Worker } from 'node:worker_threads';
    import { endWithin } from '${new URL('../../../src/cli/serve.ts', import.meta.url)}';
    process.exitCode = 3;
    process.on('SIGTERM', () => undefined);
    ${open}
    endWithin(process, 100, { warn: (_fields, msg) => process.stderr.write(msg) });
  `;
  const { status, signal, stderr } = spawnSync(
    process.execPath,
    ['--input-type=module', '-e', script, pipe],
    { timeout: 60_000, killSignal: 'SIGKILL' },
  );
  return [status, signal, stderr.toString()];
}

test.each([
  ['', "open(process.argv.at(-1), 'r', () => undefined);"],
  [
    ', of a thread that reads the configuration',
    'new Worker(new URL(\'data:text/javascript,import { readFile } from "node:fs"; readFile(process.argv.at(-1), () => undefined)\'), { argv: [process.argv.at(-1)] });',
  ],
])(
  'a gateway that stopped ends though a pipe without a writer keeps one of its threads%s',
  async (_of, left) => {
    const pipe = join(await folder(), 'pipe');
    execFileSync('mkfifo', [pipe]);
    expect(endOf(left, pipe)).toEqual([3, null, LEFT]);
  },
);

test('one that has left something else open ends with its status', () => {
  expect(endOf('createServer().listen(0);')).toEqual([3, null, LEFT]);
});

test('one whose Node.js was removed meanwhile ends by a signal', () => {
  const removed = "process.execPath = '/missing/node'; createServer().listen(0);";
  expect(endOf(removed)).toEqual([null, 'SIGKILL', LEFT]);
});

test('one that has left nothing open does not wait', () => {
  expect(endOf('')).toEqual([3, null, '']);
});
