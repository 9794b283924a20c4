import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { describe, expect, test } from '@jest/globals';
import {
  cpuBetween,
  cpuOf,
  machineCpu,
  memoryOf,
  parseProcStat,
  parseSchedstat,
  parseStatus,
} from './process-tree.ts';

describe('files of /proc', () => {
  test('schedstat has the nanoseconds on the CPU first', () => {
    expect(parseSchedstat('365906352 1142237775 275\n')).toBe(365_906_352);
    expect(() => parseSchedstat('365906352\n')).toThrow('This is not a schedstat file');
  });

  test('status has memory in kB', () => {
    const text = 'Name:\tnode\nVmPeak:\t   9 kB\nVmHWM:\t  123456 kB\nVmRSS:\t    2048 kB\nThreads:\t1\n';
    expect(parseStatus(text, 'VmRSS')).toBe(2048 * 1024);
    expect(parseStatus(text, 'VmHWM')).toBe(123_456 * 1024);
    expect(parseStatus('Name:\tkthreadd\n', 'VmRSS')).toBe(0);
  });

  test('stat has the time of all cores; being idle, waiting for disks and guests do not count again', () => {
    const text = 'cpu  100 20 3 4000 500 6 7 8 90 10\ncpu0 50 10 1 2000 250 3 3 4 45 5\nintr 1\n';
    expect(parseProcStat(text)).toBe((100 + 20 + 3 + 6 + 7 + 8) * 1e7);
  });
});

describe('CPU time', () => {
  test('is summed over threads; new ones count from 0, ended ones do not', () => {
    const before = new Map([
      ['1/1', 100],
      ['1/2', 50],
    ]);
    const after = new Map([
      ['1/1', 130],
      ['3/3', 7],
    ]);
    expect(cpuBetween(before, after)).toBe(37);
  });

  test('includes processes that a process has started', async () => {
    const work = 'echo up; read _; i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; echo done; read _';
    // The second command keeps the shell from becoming the inner one.
    const child = spawn('sh', ['-c', 'sh -c "$0"; :', work], { stdio: ['pipe', 'pipe', 'inherit'] });
    const ended = once(child, 'close');
    const pid = child.pid ?? 0;
    try {
      await once(child.stdout, 'data');
      const before = cpuOf(pid);
      expect(before.size).toBe(2);
      child.stdin.write('go\n');
      await once(child.stdout, 'data');
      expect(cpuBetween(before, cpuOf(pid))).toBeGreaterThan(1e6);
      const { now, peak } = memoryOf(pid);
      expect(now).toBeGreaterThan(0);
      expect(peak).toBeGreaterThanOrEqual(now);
    } finally {
      child.stdin.end();
      await ended;
    }
    expect(cpuOf(pid).size).toBe(0);
    expect(memoryOf(pid)).toEqual({ now: 0, peak: 0 });
  });

  test('of the machine goes on', () => expect(machineCpu()).toBeGreaterThan(0));
});
