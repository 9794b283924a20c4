import { readFile, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { describe, expect, test } from '@jest/globals';
import type { AccessFacts } from '../../src/audit/record.ts';
import { CLIENTS, CREDENTIALS, DEPLOYMENTS } from '../config/texts.ts';
import { AUDIT_KEY, openTestAudit, recordAccess, useFolders } from '../support/audit-log.ts';
import { gateway } from '../support/program.ts';

const folder = useFolders();

/** The configuration of a log with these requests. */
async function place(...records: Partial<AccessFacts>[]): Promise<string> {
  const directory = await folder();
  const config = join(directory, 'gateway.yaml');
  await writeFile(join(directory, 'key'), `${AUDIT_KEY}\n`, { mode: 0o600 });
  await writeFile(
    config,
    `${CLIENTS}\n${CREDENTIALS}\n${DEPLOYMENTS}\naudit: { directory: log, keyFile: key, parameters: [ids] }\n`,
  );
  const { audit } = await openTestAudit(join(directory, 'log'), { parameters: ['ids'] });
  for (const record of records) await recordAccess(audit, record);
  await audit.close();
  return config;
}

const usage = (config: string, ...more: string[]) => gateway(['audit', 'usage', '--config', config, ...more]);

describe('audit usage', () => {
  test('prints a table of all groups with their total, without control characters', async () => {
    const config = await place(
      { target: '/x?ids=%27A%27,%27B%27' },
      { client: 'a\u001b[2J', site: '', status: 404, credential: undefined },
      { status: 500 },
      { status: 500 },
    );
    const { status, stdout, stderr } = await usage(config);
    expect([status, stderr]).toEqual([0, '']);
    expect(
      stdout
        .trimEnd()
        .split('\n')
        .map((line) => line.split(/ {2,}/)),
    ).toEqual([
      [
        'CLIENT',
        'SITE',
        'OPERATION',
        'CREDENTIAL',
        'REQUESTS',
        'IDENTIFIERS',
        'BYTES-OUT',
        'BYTES-IN',
        'DAYS',
        'ERRORS',
      ],
      ['reporting', 'journal-a', 'authors', 'journal-a', '3', '4', '0', '0', '1', '2 (500:2)'],
      ['a\\u001b[2J', '-', 'authors', '-', '1', '1', '0', '0', '1', '1 (404:1)'],
      ['total', '4', '5', '0', '0', '1', '3 (500:2 404:1)'],
    ]);
  });

  test('prints CSV and JSON of other groups', async () => {
    const config = await place({}, { deployment: 'abstracts' }, { deployment: 'abstracts', status: 404 });
    const csv = await usage(config, '--by', 'deployment,status', '--csv');
    expect(csv.stdout.split('\r\n')).toEqual([
      'deployment,status,requests,identifiers,uncounted,bytesIn,bytesOut,days,errors,errorStatuses',
      'abstracts,200,1,1,0,0,0,1,0,',
      'abstracts,404,1,1,0,0,0,1,1,404:1',
      'submissions,200,1,1,0,0,0,1,0,',
      '',
    ]);
    const json = JSON.parse((await usage(config, '--by', 'deployment', '--json')).stdout);
    expect(json).toMatchObject({
      by: ['deployment'],
      rows: [
        { deployment: 'abstracts', requests: 2, errors: 1, statuses: { 404: 1 } },
        { deployment: 'submissions', requests: 1, errors: 0 },
      ],
      total: { requests: 3, days: 1 },
      daily: [{ day: new Date().toISOString().slice(0, 10), requests: 3 }],
      namesOnly: [],
    });
  });

  test('says how many refusals have no record', async () => {
    const config = await place({ status: 403 });
    const { audit } = await openTestAudit(join(dirname(config), 'log'));
    await audit.adminWritten('refusals-left-out', { client: 'reporting', address: '192.0.2.7', count: 1 });
    await audit.close();
    expect(await usage(config, '--by', 'client')).toMatchObject({
      status: 0,
      stderr: 'the log leaves out 1 refusal of the gateway: too many came at once for a record of each\n',
    });
  });

  test('counts operations with names that every object has', async () => {
    const config = await place(
      { operation: 'constructor' },
      { deployment: 'constructor', operation: 'name' },
      { deployment: '__proto__', operation: 'toString' },
    );
    const { status, stdout, stderr } = await usage(config, '--by', 'operation', '--json');
    expect([status, stderr]).toEqual([0, '']);
    expect(JSON.parse(stdout).total).toMatchObject({ requests: 3, identifiers: 3 });
  });

  test('counts from a time, and up to it', async () => {
    const config = await place({});
    const requests = async (...options: string[]) =>
      JSON.parse((await usage(config, '--json', ...options)).stdout).total.requests;
    expect(await requests('--from', '30d')).toBe(1);
    expect(await requests('--from', '1h ago', '--to', new Date().toISOString().slice(0, 10))).toBe(1);
    expect(await requests('--to', '1h')).toBe(0);
  });

  test('says which setting makes it count identifiers', async () => {
    const config = await place({});
    const operations = '{ authors: { method: GET, path: /x, parameters: { token: quoted-list } } }';
    const submissions = `submissions: { baseUrl: "https://b.example", match: { pathPrefix: /x }, credential: a, operations: ${operations} }`;
    const text = await readFile(config, 'utf8');
    await writeFile(config, text.replace('deployments: {', `deployments: { ${submissions},`));
    const { stderr } = await usage(config);
    expect(stderr.split('\n')).toEqual([
      'the log has token by name only: add it to audit.parameters to count identifiers from then on',
      'the identifiers of 1 request are not counted, or not all of them, since the log does not have the list whole, or its key is destroyed or missing',
      '',
    ]);
  });

  test.each([
    [['--by', 'clients'], /--by.*clients/],
    [['--from', 'yesterday'], /--from.*yesterday/],
    [['--to', '2026-02-30'], /--to.*2026-02-30/],
    [['--json', '--csv'], /--json.*--csv|--csv.*--json/],
    [['--replica', 'r2'], /\br2\b.*\br1\b/],
  ])('refuses %j', async (options, named) => {
    const config = await place({});
    expect(await usage(config, ...options)).toMatchObject({
      status: 2,
      stdout: '',
      stderr: expect.stringMatching(named),
    });
  });
});
