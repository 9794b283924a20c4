import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readdir, readFile } from 'node:fs/promises';
import { createInterface } from 'node:readline';
import { needPackages } from './system-packages.ts';
import { until } from './until.ts';

/**
 * Makes system calls of a running process fail or take long, for real, until it is ended: `inject` as strace's -e
 * has it.
 */
export async function injectFault(pid: number, inject: string): Promise<() => Promise<void>> {
  needPackages('strace');
  const call = inject.split(':')[0] ?? '';
  const args = [
    '-f',
    '-q',
    '-o',
    '/dev/null',
    '-e',
    `trace=${call}`,
    '-e',
    `inject=${inject}`,
    '-p',
    String(pid),
  ];
  const strace = spawn('strace', args, { stdio: ['ignore', 'ignore', 'pipe'] });
  const ended = once(strace, 'close');
  const said: string[] = [];
  createInterface(strace.stderr).on('line', (line) => said.push(line));
  await Promise.race([
    once(strace, 'spawn').then(() => attached(pid)),
    ended.then(() => {
      throw new Error(`strace did not attach: ${said.join('\n')}`);
    }),
  ]);
  return async () => {
    strace.kill('SIGTERM');
    await ended;
  };
}

/** Every thread of the process has a tracer. */
async function attached(pid: number): Promise<void> {
  await until(async () => {
    const threads = await readdir(`/proc/${pid}/task`);
    const statuses = await Promise.all(
      threads.map((thread) => readFile(`/proc/${pid}/task/${thread}/status`, 'utf8')),
    );
    return statuses.every((status) => !/^TracerPid:\s+0$/m.test(status));
  });
}
