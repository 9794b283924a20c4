import { expect, test } from '@jest/globals';
import { auditOptions, recordsIn, useFolders } from '../../support/audit-log.ts';
import { setupFor } from '../../support/gateway.ts';
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

test('a reload gives the rules of a client another credential, and takes it back', async () => {
  const credentials = { account: { username: { value: 'demo-user' }, password: { value: 'demo-api-key' } } };
  const allowing = (rule: Record<string, unknown>) => ({
    anonymous: false,
    credentials,
    clients: [
      { id: 'c', identify: { addresses: ['127.0.0.0/8'] }, allow: [{ deployment: 'submissions', ...rule }] },
    ],
  });
  await using scene = await startScene({ password: 'wrong', credentials, top: allowing({}) });
  const { origin } = scene.simulator.deployments.submissions;
  const reload = async (rule: Record<string, unknown>): Promise<void> => {
    const submissions = { origin, ca: scene.simulator.ca, password: 'wrong' };
    const setup = await setupFor({ submissions }, allowing(rule), scene.gateway.versions);
    await scene.gateway.app.reload(() => Promise.resolve(setup));
  };
  expect((await scene.get(authors)).status).toBe(502);
  await reload({ credential: 'account' });
  expect((await scene.get(authors)).status).toBe(200);
  await reload({});
  expect((await scene.get(authors)).status).toBe(502);
});
