import { expect, test } from '@jest/globals';
import { pino } from 'pino';
import { AuditSinks } from '../../src/audit/shipping/audit-sinks.ts';
import { Metrics } from '../../src/metrics/metrics.ts';
import { REPLICA, useFolders } from '../support/audit-log.ts';
import { SINK, syslogTo } from '../support/sink-scene.ts';
import { until } from '../support/until.ts';

const folder = useFolders();

test('a sink whose thread fails is shown as failing, and its lag grows', async () => {
  const data = { directory: await folder(), replica: REPLICA, sinks: [syslogTo(1)] };
  // Without a key the thread fails at its start.
  const sinks = new AuditSinks(
    { ...data, key: undefined as never },
    { log: pino({ level: 'silent' }), recordLoss: () => Promise.resolve(false) },
  );
  const metrics = new Metrics({ version: '0', node: '0' });
  try {
    await until(() => sinks.states[0]?.failing !== null);
    expect(sinks.states).toEqual([{ name: SINK, failing: 'its thread failed', rejected: false }]);
    await until(async () => {
      sinks.observe(metrics);
      const { values } = await metrics.auditSinkLagSeconds.get();
      return values.some(({ labels, value }) => labels['sink'] === SINK && value > 0);
    });
  } finally {
    await sinks.close();
  }
});
