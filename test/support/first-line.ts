import type { ChildProcess } from 'node:child_process';

/** The first line that passes, of those that a process prints from now on. Rejects when it ends without one. */
export async function firstLine(
  child: ChildProcess,
  passes: (line: string) => boolean,
  of: 'stdout' | 'stderr' = 'stderr',
): Promise<string> {
  let printed = '';
  const { promise, resolve, reject } = Promise.withResolvers<string>();
  child[of]?.setEncoding('utf8').on('data', (piece: string) => {
    printed += piece;
    const line = printed.split('\n').slice(0, -1).find(passes);
    if (line !== undefined) resolve(line);
  });
  child.once('exit', () => reject(new Error(`It ended:\n${printed}`)));
  return promise;
}
