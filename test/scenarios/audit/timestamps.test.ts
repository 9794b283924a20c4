import { cp, mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, test } from '@jest/globals';
import { defaultSettings } from '../../../src/simulator/settings.ts';
import { AUDIT_KEY, useFolders } from '../../support/audit-log.ts';
import { closedAtEnd } from '../../support/closing.ts';
import { startConfiguredGateway } from '../../support/gateway.ts';
import { gateway as run, runCommand } from '../../support/program.ts';
import { repository } from '../../support/repository.ts';
import { newSigningKey } from '../../support/signing-key.ts';
import { startSimulator } from '../../support/simulator.ts';
import { startTsa } from '../../support/time-stamping-authority.ts';
import { until } from '../../support/until.ts';

const folder = useFolders();
const REPLICA = 'gateway-1';

test('a gateway gets time stamps, and an auditor checks them with openssl as the page shows', async () => {
  const place = await folder();
  const key = newSigningKey();
  await using tsa = await startTsa();
  const simulator = await closedAtEnd(startSimulator({ deployments: defaultSettings().deployments }));
  const directory = join(place, 'audit');
  const files = { key: AUDIT_KEY, signing: key.privatePem, 'audit-signing-key.pub': key.publicPem };
  for (const [name, text] of Object.entries(files)) await writeFile(join(place, name), text, { mode: 0o600 });
  const audit = {
    directory,
    replica: REPLICA,
    keyFile: join(place, 'key'),
    signingKeyFile: join(place, 'signing'),
    timestamps: { url: tsa.url, caFile: tsa.caFile },
  };
  const upstream = { origin: simulator.deployments.submissions.origin, ca: simulator.ca };
  const gateway = await closedAtEnd(startConfiguredGateway({ submissions: upstream }, { audit }));
  const metrics = async (): Promise<string> => (await fetch(`${gateway.control}/metrics`)).text();
  const delivered = /^digest_gateway_audit_sink_records_total\{sink="timestamps"\} [1-9]/m;
  await until(async () => delivered.test(await metrics()));
  expect(await metrics()).toMatch(/^digest_gateway_audit_sink_lag_seconds\{sink="timestamps"\} 0$/m);
  expect(await (await fetch(`${gateway.control}/readyz?verbose`)).text()).toContain('audit-sink-timestamps');
  await gateway.close();
  expect(tsa.requests).toBe(1);
  await mkdir(join(place, 'copy'));
  await cp(directory, join(place, 'copy/audit'), { recursive: true });
  await cp(tsa.caFile, join(place, 'tsa-ca.pem'));
  const verifyArgs = [
    'audit',
    'verify',
    '--directory',
    directory,
    '--timestamp-ca',
    join(place, 'tsa-ca.pem'),
  ];
  const verified = await run([...verifyArgs, '--public-key', join(place, 'audit-signing-key.pub')]);
  expect([verified.status, verified.stdout]).toEqual([
    0,
    expect.stringMatching(/: ok — .*, 1 time-stamped head, the last of 20\S+Z\n$/),
  ]);
  const alone = await run([...verifyArgs, '--config', join(place, 'none.yaml')]);
  expect([alone.status, alone.stderr]).toEqual([
    2,
    expect.stringContaining('--timestamp-ca needs --public-key'),
  ]);
  const noCa = [...verifyArgs.slice(0, -1), join(place, 'audit-signing-key.pub')];
  const wrong = await run([...noCa, '--public-key', join(place, 'audit-signing-key.pub')]);
  expect([wrong.status, wrong.stderr]).toEqual([2, expect.stringContaining('holds no certificate')]);
  const page = await readFile(join(repository, 'docs/audit/witness.md'), 'utf8');
  const commands = page.match(/(?<=^\$ )(?:tail|printf|sed|openssl) .*$/gm) ?? [];
  expect(commands).toHaveLength(4);
  const { status, printed } = await runCommand('sh', ['-c', `cd ${place}; ${commands.join('\n')}`]);
  expect([status, printed]).toEqual([0, expect.stringMatching(/^Verification: OK$/m)]);
});
