import { createHash } from 'node:crypto';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, test } from '@jest/globals';
import { parse, stringify } from 'yaml';
import type { UsageView } from '../../../src/control/audit-view.ts';
import { AUDIT_KEY, auditOptions, useFolders } from '../../support/audit-log.ts';
import { gateway as command } from '../../support/program.ts';
import { authors, startScene } from '../../support/scene.ts';

const folder = useFolders();
const KEY = 'key of reporting';
const [PATH = ''] = authors.split('?', 1);
const OPERATIONS = {
  authors: {
    method: 'GET',
    path: PATH,
    parameters: { ids: 'quoted-list', site_name: 'text', external_id: 'digits?' },
  },
};
const CLIENT = {
  id: 'reporting',
  identify: { apiKeySha256: createHash('sha256').update(KEY).digest('hex') },
  allow: [{ deployment: 'submissions' }],
};

/** The text of a configuration with the log and these rules. */
function configWith(allow: unknown): string {
  return stringify({
    credentials: { a: { username: { env: 'U' }, password: { env: 'P' } } },
    deployments: {
      submissions: {
        baseUrl: 'https://submissions.example.org',
        match: { pathPrefix: '/api' },
        credential: 'a',
        operations: OPERATIONS,
      },
    },
    clients: [{ ...CLIENT, allow }],
    audit: { directory: 'log', keyFile: 'key', parameters: ['ids', 'site_name', 'external_id'] },
  });
}

test('the log of a gateway tells what was used, which rules would serve it, and what others would refuse', async () => {
  const directory = await folder();
  const parameters = ['ids', 'site_name', 'external_id'];
  const { get, gateway } = await startScene({
    audit: auditOptions(join(directory, 'log'), { parameters }),
    settings: { operations: OPERATIONS },
    top: { anonymous: false, clients: [CLIENT] },
  });
  const headers = { 'x-api-key': KEY };
  const targets = [authors, authors, `${PATH}?ids=%27DEMO-2026-0001%27,%27DEMO-2026-0002%27&site_name=demo`];
  let bytes = 0;
  for (const target of targets) {
    const response = await get(target, { headers });
    bytes += (await response.arrayBuffer()).byteLength;
  }
  await (await get(authors)).text();

  const report = await fetch(`${gateway.control}/api/audit/usage?by=client,operation,status`);
  const { rows } = (await report.json()) as UsageView;
  expect(rows.map(({ values, requests, identifiers }) => [...values, requests, identifiers])).toEqual([
    ['reporting', 'authors', '200', 3, 4],
    ['', '', '401', 1, 1],
  ]);
  await gateway.app.close();

  await writeFile(join(directory, 'key'), AUDIT_KEY, { mode: 0o600 });
  const run = async (name: string, allow: unknown, ...args: string[]) => {
    const config = join(directory, name);
    await writeFile(config, configWith(allow));
    return command([...args, '--config', config, '--from', '1h']);
  };
  const usage = await run('gateway.yaml', CLIENT.allow, 'audit', 'usage', '--by', 'client', '--json');
  expect(JSON.parse(usage.stdout).rows[0]).toMatchObject({
    client: 'reporting',
    requests: 3,
    bytesOut: bytes,
  });

  const learned = await run('gateway.yaml', CLIENT.allow, 'policy', 'learn', '--client', 'reporting');
  const { allow } = parse(learned.stdout);
  expect([learned.status, allow]).toEqual([
    0,
    [{ deployment: 'submissions', operations: ['authors'], methods: ['GET'] }],
  ]);
  expect((await run('tight.yaml', allow, 'policy', 'replay')).status).toBe(0);
  const tighter = [{ ...allow[0], parameters: { ids: { max: 1 } } }];
  const refused = await run('tighter.yaml', tighter, 'policy', 'replay', '--json');
  expect([refused.status, JSON.parse(refused.stdout).groups]).toMatchObject([
    1,
    [
      { verdict: 'refused', served: true, code: 'parameter-invalid', requests: 1 },
      { verdict: 'allowed', served: true, requests: 2 },
    ],
  ]);
});
