import { expect, test } from '@jest/globals';
import { replicaName } from '../../src/setup/audit.ts';
import { setupFor } from '../support/gateway.ts';

const DEPLOYMENTS = { d: { origin: 'https://u.example.org' } };

const exportOf = async (settings: object) => {
  const otlp = { endpoint: 'http://127.0.0.1:1/v1/metrics', ...settings };
  return (await setupFor(DEPLOYMENTS, { metrics: { otlp } })).metricsExport;
};

test('secrets and files of the receiver of metrics that cannot be read or used are issues', async () => {
  const headers = {
    authorization: { env: 'MISSING' },
    'x-key': { value: 'marked\nsecret' },
  };
  const reading = exportOf({ headers, tls: { caFile: 'nothing.pem' } });
  await expect(reading).rejects.toMatchObject({
    issues: [
      { path: 'metrics.otlp.headers.authorization', message: expect.stringContaining('MISSING') },
      {
        path: 'metrics.otlp.headers.x-key',
        message: 'has a character that a header field cannot have',
      },
      { path: 'metrics.otlp.tls.caFile', message: expect.stringContaining('does not exist') },
    ],
  });
  await expect(reading).rejects.not.toThrow('marked');
});

test('an export is named by its instance, or by the host', async () => {
  expect((await exportOf({ instance: 'gw-1:8081' }))?.instance).toBe('gw-1:8081');
  expect((await exportOf({}))?.instance).toBe(replicaName());
});
