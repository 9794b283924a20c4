import { execFileSync } from 'node:child_process';
import { closeSync, constants, openSync, read, readdirSync, readlinkSync, writeSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach } from '@jest/globals';
import { useFolders } from './audit-log.ts';

/** Threads of Node.js that do what files are asked for. */
const THREADS = Number(process.env['UV_THREADPOOL_SIZE'] ?? 4);
const OPEN_FILES = '/proc/self/fd';

/** A disk that answers nothing, for this process, from `hang` on until `release`. */
export interface HangingDisk {
  hang(): Promise<void>;
  /** Lets all that waits be done, also if a `hang` follows in the same turn. */
  release(): void;
}

/**
 * Use it before other helpers: at the end of a test they need the disk. Every thread that could work on a file is kept
 * busy, so writes wait in their order. The end of a test releases them.
 */
export function useHangingDisk(): HangingDisk {
  let fd: number | undefined;
  let hanging = 0;
  const release = (): void => {
    if (hanging > 0) writeSync(fd as number, Buffer.alloc(hanging));
    hanging = 0;
  };
  afterEach(release);
  const folder = useFolders();
  return {
    async hang() {
      if (fd === undefined) {
        const pipe = join(await folder(), 'pipe');
        execFileSync('mkfifo', [pipe]);
        // With both ends open, a read waits and does not see an end.
        fd = openSync(pipe, constants.O_RDWR);
      }
      for (let thread = 0; thread < THREADS; thread += 1) read(fd, Buffer.alloc(1), 0, 1, null, () => {});
      hanging += THREADS;
    },
    release,
  };
}

/**
 * From now on, what this process writes to its open file goes to another one, such as `/dev/full`, a full disk, or
 * `/dev/null`, which takes everything and makes nothing durable.
 * @throws Error if this process does not have the file open
 */
export function divertWrites(path: string, to: '/dev/full' | '/dev/null'): void {
  const fd = Number(readdirSync(OPEN_FILES).find((each) => linkOf(each) === path));
  if (Number.isNaN(fd)) throw new Error(`${path} is not open`);
  closeSync(fd);
  // The lowest number that is free is given to the next file.
  const others: number[] = [];
  for (let opened = openSync(to, 'w'); opened !== fd; opened = openSync(to, 'w')) others.push(opened);
  others.forEach(closeSync);
}

function linkOf(fd: string): string | undefined {
  try {
    return readlinkSync(join(OPEN_FILES, fd));
  } catch {
    return undefined;
  }
}
