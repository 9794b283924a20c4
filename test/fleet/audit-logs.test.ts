import { describe, expect, test } from '@jest/globals';
import { noAudit } from '../../src/audit/audit.ts';
import { IdleLogs } from '../../src/fleet/audit-logs.ts';

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
