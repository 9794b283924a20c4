import { expect, test } from '@jest/globals';
import { Secret } from '../../src/base/secret.ts';
import { SourceReader } from '../../src/credentials/sources.ts';
import { readAuditSinks, replicaName } from '../../src/setup/audit.ts';
import { ContentReading } from '../../src/setup/content.ts';

test('secrets and files of a receiver that cannot be read or used are issues', async () => {
  const headers = {
    authorization: { env: 'MISSING' },
    'x-key': { value: new Secret('marked\nsecret') },
  };
  const otlp = { endpoint: 'http://127.0.0.1:1/v1/logs', headers, tls: { caFile: '/nothing.pem' } };
  const reader = new SourceReader({ environment: {} }, undefined);
  const reading = new ContentReading(reader, undefined);
  await readAuditSinks({ durability: 'write', sinks: [{ name: 'a', otlp }] }, undefined, reading);
  const { issues } = reading;
  const path = ['audit', 'sinks', 0, 'otlp'];
  expect(issues).toMatchObject([
    { path: [...path, 'headers', 'authorization'], message: expect.stringContaining('MISSING') },
    {
      path: [...path, 'headers', 'x-key'],
      message: 'has a character that a header field cannot have',
    },
    { path: [...path, 'tls', 'caFile'], message: expect.stringContaining('does not exist') },
  ]);
  expect(JSON.stringify(issues)).not.toContain('marked');
});

test('an access key or session token for S3 that no header field can have is an issue, which does not quote it', async () => {
  const s3 = {
    bucket: 'archive',
    region: 'eu-central-1',
    pathStyle: false,
    lock: false as const,
    // The whole credentials file of AWS in place of the key.
    accessKeyId: { value: new Secret('[default]\naws_access_key_id = A\naws_secret_access_key = marked') },
    secretAccessKey: { value: new Secret('s') },
    sessionToken: { value: new Secret('marked\ntoken') },
    tls: {},
  };
  const reading = new ContentReading(new SourceReader({ environment: {} }, undefined), undefined);
  await readAuditSinks({ durability: 'write', sinks: [{ name: 'a', s3 }] }, undefined, reading);
  const message = 'has a character that a header field cannot have';
  expect(reading.issues).toEqual([
    { path: ['audit', 'sinks', 0, 's3', 'accessKeyId'], message },
    { path: ['audit', 'sinks', 0, 's3', 'sessionToken'], message },
  ]);
});

test.each([
  ['gateway-1', 'gateway-1'],
  ['gateway-1.example.internal', 'gateway-1.example.internal'],
  ['-büro 7', 'b-ro-7'],
  ['', 'gateway'],
  // A pod of Kubernetes, and a container with a name of its own.
  ['digest-gateway-6f7c9d5b44-x2x9k', 'digest-gateway-6f7c9d5b44-x2x9k'],
  // The id of a container: the next one has another.
  ['3f2c2d63f36d', 'gateway'],
])('the host name %p writes to the folder %p', (host, folder) => {
  expect(replicaName(host)).toBe(folder);
});
