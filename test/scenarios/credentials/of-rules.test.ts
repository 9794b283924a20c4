import { expect, test } from '@jest/globals';
import { auditOptions, recordsIn, useFolders } from '../../support/audit-log.ts';
import { authors, startScene } from '../../support/scene.ts';

const folder = useFolders();

test('sends a request with the credential that a rule of its client names, and records the rule', async () => {
  const directory = await folder();
  await using scene = await startScene({
    audit: auditOptions(directory),
    password: 'wrong',
    credentials: {
      account: { username: { value: 'demo-user' }, password: { value: 'demo-api-key' } },
    },
    top: {
      anonymous: false,
      clients: [
        {
          id: 'reporting',
          identify: { addresses: ['127.0.0.0/8'] },
          allow: [
            { deployment: 'submissions', methods: ['GET'], credential: 'account' },
            { deployment: 'submissions' },
          ],
        },
      ],
    },
  });
  expect((await scene.get(authors)).status).toBe(200);
  expect((await scene.get(authors, { method: 'HEAD' })).status).toBe(502);
  await scene.gateway.app.close();
  const records = (await recordsIn(directory)).filter(({ kind }) => kind === 'access');
  expect(records).toMatchObject([
    { status: 200, credential: { name: 'account', version: '1' }, credentialRule: 'allow[0]' },
    { status: 502 },
  ]);
  expect(records[1]).not.toHaveProperty('credentialRule');
});
