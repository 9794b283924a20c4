import type { ChildProcess } from 'node:child_process';
import type { Worker as ClusterWorker } from 'node:cluster';
import { EventEmitter } from 'node:events';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { expect, test } from '@jest/globals';
import type { ReportOptions, WorkerReport } from '../../src/app/worker.ts';
import { ipcPort, serveCalls } from '../../src/base/message-calls.ts';
import type { WorkerState } from '../../src/control/state.ts';
import type { AuditLine } from '../../src/control/view.ts';
import { RemoteWorker, STATE_ONLY } from '../../src/fleet/remote-worker.ts';

/** One end of an IPC channel in this process. */
class End extends EventEmitter {
  readonly connected = true;
  readonly pid = 1;
  other: End | undefined;

  send(message: unknown, _handle?: unknown, _options?: unknown, done?: () => void): boolean {
    setImmediate(() => this.other?.emit('message', message));
    done?.();
    return true;
  }
}

/** A worker in this process. `own`: emits its end. `process`: its end of the channel. */
function connectedWorker() {
  const [child, process] = [new End(), new End()];
  child.other = process;
  process.other = child;
  const own = Object.assign(new EventEmitter(), { process: child as unknown as ChildProcess, kill() {} });
  const remote = new RemoteWorker(own as unknown as ClusterWorker, 1);
  return { remote, own, process: ipcPort(process as unknown as NodeJS.Process) };
}

test('audit lines that another report has while the worker drains come once', async () => {
  const { remote, own, process } = connectedWorker();
  const seqs: number[] = [];
  const report = async ({ auditFrom }: ReportOptions): Promise<WorkerReport> => ({
    state: undefined,
    metrics: [],
    // The first line is not kept any more.
    lines:
      auditFrom === undefined ? [] : seqs.map((seq) => ({ seq }) as AuditLine).slice(Math.max(1, auditFrom)),
    refusals: [],
    keysSeen: [],
    auditPosition: auditFrom === undefined ? undefined : seqs.length,
    auditHead: undefined,
  });
  const drains = Promise.withResolvers<void>();
  const ends = Promise.withResolvers<void>();
  serveCalls(process, 'worker', (name) => {
    if (name === 'report') return report;
    if (name !== 'drain') return undefined;
    return async (options: ReportOptions) => {
      drains.resolve();
      await ends.promise;
      return report(options);
    };
  });

  const withLines = { metrics: [], withState: false, withLines: true };
  const shown: number[] = [];
  const show = (): void => {
    for (const { lines } of remote.takeReports()) shown.push(...lines.map(({ seq }) => seq));
  };
  seqs.push(1, 2, 3);
  await remote.update(withLines);
  const drained = remote.drain(false, 60_000);
  await drains.promise;
  seqs.push(4, 5);
  await remote.update(withLines);
  seqs.push(6);
  ends.resolve();
  for (show(); shown.at(-1) !== 6; show()) await nextTurn();
  own.emit('exit', 0, null);

  expect(await drained).toBeUndefined();
  expect(shown).toEqual([2, 3, 4, 5, 6]);
});

test('reports that only a state was wanted of leave nothing to collect, however many are asked for', async () => {
  const { remote, process } = connectedWorker();
  const state = { worker: 1 } as WorkerState;
  const metrics = [{ name: 'm' }] as unknown as WorkerReport['metrics'];
  serveCalls(process, 'worker', () => async (options: ReportOptions) => ({
    state,
    metrics: options.metrics === 'all' ? metrics : [],
    lines: [],
    refusals: [],
    keysSeen: [],
  }));
  for (let asked = 0; asked < 3; asked += 1) await remote.update(STATE_ONLY);
  expect([remote.state, remote.takeReports()]).toEqual([state, []]);
  await remote.update({ metrics: 'all', withState: true, withLines: false });
  expect(remote.takeReports()).toEqual([{ metrics, lines: [], refusals: [], keysSeen: [] }]);
});
