import { readFile } from 'node:fs/promises';
import { runCommand } from '../../support/program.ts';

/**
 * Keeps load and upstream, which are started by this process, off the last core; resolves to that core's number,
 * which is for the contenders. With one core, nothing is divided.
 */
export async function divideCores(): Promise<string | undefined> {
  const status = await readFile('/proc/self/status', 'utf8');
  const [, list = ''] = /^Cpus_allowed_list:\s+(\S+)$/m.exec(status) ?? [];
  const cores = parseCoreList(list);
  const last = cores.pop();
  if (last === undefined || cores.length === 0) return undefined;
  const { status: failed, printed } = await runCommand('taskset', [
    ...['--all-tasks', '--pid', '--cpu-list'],
    ...[cores.join(','), `${process.pid}`],
  ]);
  if (failed !== 0) throw new Error(`taskset failed: ${printed}`);
  return `${last}`;
}

/** `0-2,5` */
function parseCoreList(text: string): number[] {
  return text.split(',').flatMap((range) => {
    const [first = 0, last = first] = range.split('-').map(Number);
    return Array.from({ length: last - first + 1 }, (_, index) => first + index);
  });
}
