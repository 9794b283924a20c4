import { hash } from 'node:crypto';
import { expect, test } from '@jest/globals';
import { auditOptions, recordsIn, useFolders } from '../../support/audit-log.ts';
import { basic } from '../../support/client-call.ts';
import { authors, startScene } from '../../support/scene.ts';

const folder = useFolders();

test('the audit record says which API key a client presented', async () => {
  const directory = await folder();
  const apiKeys = [
    { sha256: hash('sha256', 'first'), note: 'Berlin' },
    { sha256: hash('sha256', 'second'), expires: '9999-12-31' },
    { sha256: hash('sha256', 'third'), expires: '2026-01-31', note: 'Lyon' },
  ];
  const scene = await startScene({
    audit: auditOptions(directory),
    top: {
      anonymous: false,
      clients: [
        { id: 'keyed', identify: { apiKeys }, allow: [{ deployment: 'submissions' }] },
        {
          id: 'near',
          identify: { addresses: ['127.0.0.0/8'] },
          allow: [{ deployment: 'submissions', methods: ['HEAD'] }],
        },
      ],
    },
  });
  const asked = async (headers: Record<string, string>) => (await scene.get(authors, { headers })).status;
  expect(await asked({ 'x-api-key': 'first' })).toBe(200);
  expect(await asked({ authorization: basic('keyed', 'second') })).toBe(200);
  expect(await asked({})).toBe(403);
  expect(await asked({ 'x-api-key': 'third' })).toBe(401);
  await scene.gateway.app.close();
  const records = (await recordsIn(directory)).filter(({ kind }) => kind === 'access');
  expect(records).toMatchObject([
    { client: 'keyed', key: 'Berlin' },
    { client: 'keyed', key: hash('sha256', 'second').slice(0, 8) },
    { client: 'near' },
    { client: 'keyed', key: 'Lyon', code: 'client-key-expired', deployment: '' },
  ]);
  expect(records[2]).not.toHaveProperty('key');
});
