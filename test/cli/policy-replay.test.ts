import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, test } from '@jest/globals';
import type { AccessFacts } from '../../src/audit/record.ts';
import { AUDIT_KEY, openTestAudit, recordAccess, useFolders } from '../support/audit-log.ts';
import { gateway } from '../support/program.ts';

const folder = useFolders();

const configOf = (rules: string, audit = 'audit: { directory: log, keyFile: key, parameters: [ids] }') => `
credentials: { a: { username: { env: U }, password: { env: P } } }
deployments:
  submissions:
    baseUrl: https://a.example
    match: { pathPrefix: /api }
    credential: a
    operations: { authors: { method: GET, path: /api/x, parameters: { ids: quoted-list } } }
clients: [{ id: reporting, identify: { apiKeySha256: ${'a'.repeat(64)} }, allow: [${rules}] }]
${audit}
`;

/** A folder with a log of these requests, and configurations by name. */
async function place(
  configs: Readonly<Record<string, string>>,
  ...records: Partial<AccessFacts>[]
): Promise<(name: string) => string> {
  const directory = await folder();
  await writeFile(join(directory, 'key'), `${AUDIT_KEY}\n`, { mode: 0o600 });
  for (const [name, text] of Object.entries(configs)) await writeFile(join(directory, name), text);
  const { audit } = await openTestAudit(join(directory, 'log'), { parameters: ['ids'] });
  for (const record of records) await recordAccess(audit, record);
  await audit.close();
  return (name) => join(directory, name);
}

const replay = (...args: string[]) => gateway(['policy', 'replay', '--from', '30d', ...args]);

describe('policy replay', () => {
  test('prints what would be refused, what is allowed and what cannot be known; exit status 1', async () => {
    const at = await place(
      { 'new.yaml': configOf('{ deployment: submissions, operations: [authors] }') },
      { requestId: 'q1' },
      { requestId: 'q2' },
      { requestId: 'q3', target: '/api/y', operation: '' },
      { requestId: 'q4', target: `/api/x?ids=${'%27A%27,'.repeat(100)}` },
      { requestId: 'q5', code: 'client-forbidden', status: 403, upstream: undefined },
      { requestId: 'q6', client: '' },
      { requestId: 'q8', code: 'client-key-expired', status: 401, upstream: undefined },
      { requestId: 'q7', client: 'gone', code: 'client-forbidden', status: 403, upstream: undefined },
    );
    const { status, stdout, stderr } = await replay('--config', at('new.yaml'));
    expect(status).toBe(1);
    const rows = stdout
      .trimEnd()
      .split('\n')
      .map((line) => line.split(/ {2,}/));
    expect(rows.map((row) => row.toSpliced(7, 1))).toEqual([
      ['VERDICT', 'WAS', 'CLIENT', 'DEPLOYMENT', 'OPERATION', 'CODE', 'REQUESTS', 'REQUEST-ID'],
      ['refused', 'served', 'reporting', 'submissions', '-', 'client-forbidden', '1', 'q3'],
      ['unknown', 'served', 'reporting', 'submissions', 'authors', 'cut', '1', 'q4'],
      ['allowed', 'served', 'reporting', 'submissions', 'authors', '-', '2', 'q1'],
      ['allowed', 'refused', 'reporting', 'submissions', 'authors', '-', '1', 'q5'],
      ['refused', 'refused', 'gone', 'submissions', 'authors', 'client-unknown', '1', 'q7'],
    ]);
    expect(rows[1]?.[7]).toMatch(/^\d{4}-\d\d-\d\dT.*Z$/);
    expect(stderr.split('\n')).toEqual([
      'of what was served, 1 request would be refused, 2 allowed, and of 1 it cannot be known',
      'cut: path or parameters were too long to be recorded whole',
      '2 requests had no client, an expired key, or no path, and were not judged',
      '',
    ]);
  });

  test('takes what was served against the rules of an observed client for served, and judges by the rules', async () => {
    const until = new Date(Date.now() + 86_400_000).toISOString();
    const observed = configOf('{ deployment: submissions, methods: [GET] }').replace(
      'allow:',
      `mode: { observe: true, until: "${until}" }, allow:`,
    );
    const at = await place(
      { 'new.yaml': observed },
      { requestId: 'q1', method: 'PUT', wouldRefuse: 'client-forbidden' },
    );
    const { status, stdout } = await replay('--config', at('new.yaml'), '--json');
    expect([status, JSON.parse(stdout).groups]).toMatchObject([
      1,
      [{ verdict: 'refused', served: true, code: 'client-forbidden', requests: 1 }],
    ]);
    const search = ['audit', 'search', '--config', at('new.yaml'), '--from', '30d', '--json'];
    const found = await gateway([...search, '--text', 'client-forbidden']);
    expect(JSON.parse(found.stdout)).toMatchObject({ requestId: 'q1', wouldRefuse: 'client-forbidden' });
  });

  test('speaks JSON; exit status 0 if nothing that was served would be refused', async () => {
    const rules = '{ deployment: submissions, methods: [GET] }';
    const refused = { code: 'client-forbidden', status: 403, upstream: undefined, method: 'PUT' };
    const at = await place(
      { 'new.yaml': configOf(rules) },
      { requestId: 'q1' },
      { requestId: 'q2', ...refused },
    );
    const { status, stdout } = await replay('--config', at('new.yaml'), '--json');
    expect([status, JSON.parse(stdout)]).toEqual([
      0,
      {
        unidentified: 0,
        groups: [
          {
            verdict: 'allowed',
            served: true,
            client: 'reporting',
            deployment: 'submissions',
            operation: 'authors',
            code: '',
            requests: 1,
            example: { requestId: 'q1', time: expect.stringMatching(/Z$/) },
          },
          expect.objectContaining({ verdict: 'refused', served: false, code: 'client-forbidden' }),
        ],
      },
    ]);
  });

  test('reads the log of another configuration', async () => {
    const running = configOf('{ deployment: submissions }');
    const next = configOf('{ deployment: submissions, methods: [POST] }', '');
    const at = await place({ 'new.yaml': next, 'gateway.yaml': running }, { requestId: 'q1' });
    const { status, stdout } = await replay('--config', at('new.yaml'), '--log-config', at('gateway.yaml'));
    expect([status, stdout]).toEqual([1, expect.stringMatching(/^refused +served .* client-forbidden +1 /m)]);
    const without = await replay('--config', at('new.yaml'));
    expect([without.status, without.stderr]).toEqual([2, expect.stringContaining('has no audit log')]);
  });

  test('judges requests from a time on, and up to it', async () => {
    const at = await place({ 'new.yaml': configOf('{ deployment: submissions, methods: [POST] }') }, {});
    const args = ['--config', at('new.yaml'), '--from', '2020-01', '--to', '2020-01'];
    expect(await replay(...args)).toMatchObject({
      status: 0,
      stderr: expect.stringMatching(
        /^nothing found: no request in .* from 2020-01-01T.* before 2020-02-01T00:00:00.000Z\n$/,
      ),
    });
    const missing = await gateway(['policy', 'replay', '--config', at('new.yaml')]);
    expect([missing.status, missing.stderr]).toEqual([2, expect.stringContaining('--from')]);
  });
});
