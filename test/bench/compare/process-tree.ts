import { readdirSync, readFileSync } from 'node:fs';

/** CPU time of each thread so far, in nanoseconds, by `PID/TID`. */
export type CpuTimes = ReadonlyMap<string, number>;

/** Resident memory in bytes. Pages that several processes share count in each. */
export interface Memory {
  readonly now: number;
  /** The highest so far. */
  readonly peak: number;
}

/** `/proc/stat` counts in hundredths of a second (USER_HZ). */
const NS_PER_TICK = 1e7;

/** CPU time of every thread of a process and its descendants. Linux only. */
export function cpuOf(root: number): CpuTimes {
  const times = new Map<string, number>();
  for (const pid of processesOf(root)) {
    for (const tid of entries(`/proc/${pid}/task`)) {
      const text = content(`/proc/${pid}/task/${tid}/schedstat`);
      if (text !== undefined) times.set(`${pid}/${tid}`, parseSchedstat(text));
    }
  }
  return times;
}

/** Nanoseconds of CPU time between two readings. A thread that ended in between does not count. */
export function cpuBetween(before: CpuTimes, after: CpuTimes): number {
  let sum = 0;
  for (const [thread, time] of after) sum += time - (before.get(thread) ?? 0);
  return sum;
}

/** CPU time that the machine spent on anything so far, or had to leave to other machines, in nanoseconds. Linux only. */
export function machineCpu(): number {
  return parseProcStat(readFileSync('/proc/stat', 'utf8'));
}

/** The first line of `/proc/stat` without idle and iowait. Guests are in user already. */
export function parseProcStat(text: string): number {
  const [, numbers = ''] = /^cpu +([\d ]+)$/m.exec(text) ?? [];
  const [user = 0, nice = 0, system = 0, , , irq = 0, softirq = 0, steal = 0] = numbers
    .split(' ')
    .map(Number);
  return (user + nice + system + irq + softirq + steal) * NS_PER_TICK;
}

/** Resident memory of a process and its descendants. Linux only. */
export function memoryOf(root: number): Memory {
  let [now, peak] = [0, 0];
  for (const pid of processesOf(root)) {
    const status = content(`/proc/${pid}/status`) ?? '';
    now += parseStatus(status, 'VmRSS');
    peak += parseStatus(status, 'VmHWM');
  }
  return { now, peak };
}

/**
 * Nanoseconds on the CPU: the first number of a schedstat file. `/proc/PID/stat` counts in hundredths of a second, too
 * coarse for a slice.
 */
export function parseSchedstat(text: string): number {
  const [, time] = /^(\d+) \d+ \d+\s*$/.exec(text) ?? [];
  if (time === undefined) throw new Error(`This is not a schedstat file: ${JSON.stringify(text)}`);
  return Number(time);
}

/** Bytes of a field of `/proc/PID/status`; 0 if it is missing, as it is for a process that has ended. */
export function parseStatus(text: string, field: 'VmRSS' | 'VmHWM'): number {
  const [, kilobytes] = new RegExp(`^${field}:\\s+(\\d+) kB$`, 'm').exec(text) ?? [];
  return Number(kilobytes ?? 0) * 1024;
}

function processesOf(root: number): number[] {
  const children = entries(`/proc/${root}/task`).flatMap((tid) =>
    (content(`/proc/${root}/task/${tid}/children`) ?? '').split(' ').filter((pid) => pid.trim() !== ''),
  );
  return [root, ...children.flatMap((pid) => processesOf(Number(pid)))];
}

/** Processes and threads may end while they are read. */
function entries(folder: string): string[] {
  try {
    return readdirSync(folder);
  } catch {
    return [];
  }
}

function content(file: string): string | undefined {
  try {
    return readFileSync(file, 'utf8');
  } catch {
    return undefined;
  }
}
