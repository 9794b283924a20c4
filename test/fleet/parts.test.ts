import { describe, expect, test } from '@jest/globals';
import { noAudit } from '../../src/audit/audit.ts';
import type { AuditLine } from '../../src/control/view.ts';
import { IdleLogs } from '../../src/fleet/idle-logs.ts';
import { RecentLines } from '../../src/fleet/reports.ts';
import { setupOfWorker } from '../../src/fleet/worker-setup.ts';
import { auditOptions } from '../support/audit-log.ts';
import { setupFor } from '../support/gateway.ts';

describe('the setup of a worker', () => {
  test('has its part of connections and memory, at least 1, and an audit folder of its own', async () => {
    const adapted = { connections: { max: 10, adapt: true }, match: { pathPrefix: '/b' } };
    const setup = {
      ...(await setupFor(
        {
          a: { origin: 'https://a.example.org', settings: { connections: 2 } },
          b: { origin: 'https://b.example.org', settings: adapted },
        },
        { listen: { port: 0, limits: { connections: 100, connectionsPerAddress: 10, bodyMemory: '4MiB' } } },
      )),
      audit: auditOptions('/log'),
    };
    const { config, audit } = setupOfWorker(setup, 3, 4);
    const { connections, connectionsPerAddress, bodyMemory } = config.listen.limits;
    expect([connections, connectionsPerAddress, bodyMemory]).toEqual([25, 10, 2 ** 20]);
    expect(config.deployments['a']?.connections).toBe(1);
    expect(config.deployments['b']?.connections).toEqual({ max: 3, adapt: true });
    expect(audit?.replica).toBe('r1@3');
    expect(setupOfWorker({ ...setup, audit: undefined }, 1, 1).audit).toBeUndefined();
  });
});

test('lines of the audit log are kept by their position', () => {
  const lines = new RecentLines();
  const line = (seq: number): AuditLine => ({ seq }) as AuditLine;
  const seqs = (position: number) => lines.since(position).lines.map(({ seq }) => seq);
  expect(lines.since(0)).toEqual({ lines: [], position: 0 });
  lines.add([line(1), line(2)]);
  lines.add([line(7)]);
  expect([seqs(0), seqs(2), seqs(3)]).toEqual([[1, 2, 7], [7], []]);
  lines.add(Array.from({ length: 600 }, (_, at) => line(100 + at)));
  expect(seqs(0)).toHaveLength(500);
  expect(seqs(602)).toEqual([699]);
  expect(lines.since(0).position).toBe(603);
});

describe('audit logs of workers that do not run', () => {
  /** Records what is opened and closed; the log of worker 9 cannot be opened. */
  function scene(numbers: readonly number[]) {
    const steps: string[] = [];
    const warnings: object[] = [];
    const log = {
      level: 'info',
      debug() {},
      info() {},
      error() {},
      warn: (fields: object) => warnings.push(fields),
    };
    const logs = new IdleLogs({
      log: log as never,
      list: async () => numbers,
      open: async (number) => {
        if (number === 9) throw new Error('it is locked');
        steps.push(`open ${number}`);
        return { ...noAudit, close: async () => void steps.push(`close ${number}`) };
      },
    });
    return { logs, steps, warnings };
  }

  test('are open until a worker needs its own', async () => {
    const { logs, steps } = scene([1, 2, 3]);
    await logs.keep(() => new Set([1]));
    await logs.keep(() => new Set([1]));
    await logs.release(2);
    await logs.release(1);
    await logs.close();
    expect(steps).toEqual(['open 2', 'open 3', 'close 2', 'close 3']);
  });

  test('are left alone if they cannot be opened, with a warning each time', async () => {
    const { logs, steps, warnings } = scene([9, 4]);
    await logs.keep(() => new Set());
    expect(steps).toEqual(['open 4']);
    expect(warnings).toEqual([{ reason: 'Error: it is locked', worker: 9 }]);
  });
});
