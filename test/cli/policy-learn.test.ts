import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, test } from '@jest/globals';
import type { AccessFacts } from '../../src/audit/record.ts';
import { AUDIT_KEY, openTestAudit, recordAccess, useFolders } from '../support/audit-log.ts';
import { gateway } from '../support/program.ts';

const folder = useFolders();

const configOf = (allow: string): string => `
credentials:
  a: { username: { env: U }, password: { env: P } }
  b: { username: { env: U }, password: { env: P } }
deployments:
  submissions:
    baseUrl: https://a.example
    match: { pathPrefix: /api }
    siteParameter: site
    sites: { x: { credential: a }, y: { credential: a } }
    injectSite: true
    operations: { authors: { method: GET, path: /api/x, parameters: { ids: quoted-list } } }
audit: { directory: log, keyFile: key, parameters: [ids, site] }
clients:
  - id: reporting
    identify: { apiKeySha256: ${'a'.repeat(64)} }
${allow.replace(/^/gm, '    ')}
`;

const FREE = 'allow: [{ deployment: submissions }]';

/** The configuration of a log with these requests, and a writer of another one beside it. */
async function place(...records: Partial<AccessFacts>[]) {
  const directory = await folder();
  await writeFile(join(directory, 'key'), `${AUDIT_KEY}\n`, { mode: 0o600 });
  const { audit } = await openTestAudit(join(directory, 'log'), { parameters: ['ids', 'site'] });
  for (const record of records) {
    await recordAccess(audit, { credential: { name: 'a', version: '1' }, ...record });
  }
  await audit.close();
  const write = async (name: string, allow: string): Promise<string> => {
    await writeFile(join(directory, name), configOf(allow));
    return join(directory, name);
  };
  return { config: await write('gateway.yaml', FREE), write };
}

const learn = (config: string, ...args: string[]) =>
  gateway(['policy', 'learn', '--config', config, '--from', '30d', ...args]);

describe('policy learn', () => {
  const x = { site: 'x', target: '/api/x?ids=%27A%27&site=x' };

  test('prints rules ready to paste, which refuse nothing that was served', async () => {
    const { config, write } = await place(
      x,
      x,
      { site: 'y', target: '/api/x?ids=%27A%27&site=y' },
      { ...x, method: 'PUT', code: 'client-forbidden', status: 403, upstream: undefined },
      { ...x, client: 'other', method: 'DELETE' },
    );
    const { status, stdout, stderr } = await learn(config, '--client', 'reporting');
    expect([status, stderr]).toEqual([0, '']);
    expect(stdout.split('\n')).toEqual([
      '# 3 requests of reporting',
      'allow:',
      '  - deployment: submissions # 3 requests',
      '    sites: [x, "y"] # x 2, y 1',
      '    operations: [authors]',
      '    methods: [GET]',
      '',
    ]);
    const next = await write('next.yaml', stdout);
    const args = ['policy', 'replay', '--config', next, '--from', '30d', '--json'];
    const { groups } = JSON.parse((await gateway(args)).stdout) as { groups: Record<string, unknown>[] };
    expect(groups.filter(({ client }) => client === 'reporting')).toMatchObject([
      { verdict: 'allowed', served: true, requests: 3 },
      { verdict: 'refused', served: false, requests: 1 },
    ]);
  });

  test('takes credentials and ends over from present rules, and says which requests would get another credential', async () => {
    const credential = { name: 'b', version: '1' };
    const { write } = await place(x, { ...x, credential, credentialRule: 'allow[0]' });
    const config = await write(
      'present.yaml',
      'allow: [{ deployment: submissions, sites: [x], credential: b, ends: 2099-03-01 }]',
    );
    const { status, stdout, stderr } = await learn(config, '--client', 'reporting');
    expect([status, stderr]).toEqual([0, '1 request would get the credential b, and had a\n']);
    expect(stdout.split('\n').slice(2)).toEqual([
      '  - deployment: submissions # 2 requests',
      '    sites: [x]',
      '    operations: [authors]',
      '    methods: [GET]',
      '    credential: b',
      '    ends: 2099-03-01',
      '',
    ]);
  });

  test('says what no rules can serve, and what cannot be known; exit status 1', async () => {
    const target = '/api/x?ids=%27A%27';
    const { config } = await place(
      { site: 'x', target },
      { site: 'y', target },
      { site: 'gone', target: '/api/x?ids=%27A%27&site=gone' },
      { ...x, target: `/api/x?ids=${'%27A%27,'.repeat(100)}&site=x` },
    );
    const { status, stderr } = await learn(config, '--client', 'reporting');
    expect([status, stderr.split('\n')]).toEqual([
      1,
      [
        'no rule serves 1 request to submissions: site-unknown',
        'these rules would refuse 3 requests: see policy replay',
        'of 1 request it cannot be known: see policy replay',
        '',
      ],
    ]);
  });

  test('says that there is nothing to learn from', async () => {
    const { config } = await place(x);
    const nobody = await learn(config, '--client', 'nobody');
    expect(nobody).toMatchObject({
      status: 1,
      stdout: '',
      stderr: expect.stringMatching(/nothing found: no request of nobody that was served in .* from /),
    });
    const missing = await learn(config);
    expect([missing.status, missing.stderr]).toEqual([2, expect.stringContaining('--client')]);
  });
});
