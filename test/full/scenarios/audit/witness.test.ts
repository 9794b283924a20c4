import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { expect, test } from '@jest/globals';
import { checkpointsIn } from '../../../../src/audit/segments/head-files.ts';
import { defaultSettings } from '../../../../src/simulator/settings.ts';
import { AUDIT_KEY, useFolders } from '../../../support/audit-log.ts';
import { closedAtEnd, closing } from '../../../support/closing.ts';
import { startGatewayProcess } from '../../../support/gateway-process.ts';
import { PROGRAM, gateway as run } from '../../../support/program.ts';
import { newSigningKey } from '../../../support/signing-key.ts';
import { startSimulator } from '../../../support/simulator.ts';
import { until } from '../../../support/until.ts';
import { startTestWitness, WITNESS_NAME } from '../../../support/witness.ts';

const folder = useFolders();
const REPLICA = 'gateway-1';

test('a witness ends with one line and status 1 at an error that reaches no caller', async () => {
  await using witness = await startTestWitness({ [REPLICA]: newSigningKey().publicPem });
  await witness.stop();
  const script = join(witness.directory, 'throws.mjs');
  await writeFile(script, "process.on('SIGUSR2', () => { throw new TypeError('a defect'); });");
  const child = spawn(PROGRAM, ['witness', '--config', join(witness.directory, 'witness.yaml')], {
    env: { ...process.env, NODE_OPTIONS: `--import=${script}` },
    stdio: ['ignore', 'ignore', 'pipe'],
  });
  closing.push(() => void child.kill('SIGKILL'));
  const lines: Record<string, unknown>[] = [];
  createInterface(child.stderr).on('line', (line) => lines.push(JSON.parse(line)));
  await until(() => lines.some(({ msg }) => msg === 'the witness is up'));
  const ended = once(child, 'close');
  child.kill('SIGUSR2');
  expect(await ended).toEqual([1, null]);
  expect(lines.slice(1)).toMatchObject([
    {
      level: 'error',
      cause: expect.stringMatching(/^TypeError: a defect\n {4}at /),
      msg: 'internal error; the process ends',
    },
  ]);
});

test('a gateway with workers serves while its witness is away, and is cosigned when it is back', async () => {
  const place = await folder();
  const key = newSigningKey();
  await using witness = await startTestWitness({ [REPLICA]: key.publicPem });
  await witness.stop();
  const simulator = await closedAtEnd(startSimulator({ deployments: defaultSettings().deployments }));
  const directory = join(place, 'audit');
  const files = {
    key: AUDIT_KEY,
    signing: key.privatePem,
    'signing.pub': key.publicPem,
    witness: witness.publicKey,
  };
  for (const [name, text] of Object.entries(files)) await writeFile(join(place, name), text, { mode: 0o600 });
  const audit = {
    directory,
    replica: REPLICA,
    keyFile: join(place, 'key'),
    signingKeyFile: join(place, 'signing'),
    witness: { url: witness.url, publicKey: witness.publicKey, every: '1s' },
  };
  const upstream = { origin: simulator.deployments.submissions.origin, ca: simulator.ca };
  const gateway = await closedAtEnd(startGatewayProcess({ submissions: upstream }, { audit, workers: 2 }));
  const controlText = async (path: string): Promise<string> =>
    (await fetch(`${gateway.control}${path}`)).text();
  const metric = async (name: string): Promise<number> => {
    const text = await controlText('/metrics');
    return Number(new RegExp(`^digest_gateway_${name} (\\S+)$`, 'm').exec(text)?.[1]);
  };
  for (let index = 0; index < 20; index += 1) {
    const response = await fetch(`${gateway.origin}/?n=${index}`, {
      headers: { 'x-request-id': `q${index}` },
    });
    await response.arrayBuffer();
    expect(response.status).toBeLessThan(500);
  }
  await until(async () => (await metric('audit_sink_lag_seconds{sink="witness"}')) > 0);
  expect(await controlText('/readyz?verbose')).toMatch(/audit-sink-witness.*ECONNREFUSED/);
  expect(await metric('audit_witness_conflict')).toBe(0);
  await witness.restart();
  await until(async () => (await metric('audit_sink_lag_seconds{sink="witness"}')) === 0);
  expect(await controlText('/readyz?verbose')).not.toMatch(/audit-sink-witness.*ECONNREFUSED/);
  await gateway.close();
  const heads = await witness.checkpoints();
  const replicas = checkpointsIn(heads).map(({ replica }) => replica);
  expect(replicas.sort()).toEqual([REPLICA, `${REPLICA}@1`, `${REPLICA}@2`]);
  await writeFile(join(place, 'heads'), heads);
  const keys = ['--public-key', join(place, 'signing.pub'), '--witness-key', join(place, 'witness')];
  const verified = await run([
    'audit',
    'verify',
    '--directory',
    directory,
    ...keys,
    '--witness-heads',
    join(place, 'heads'),
  ]);
  expect([verified.status, verified.stdout]).toEqual([
    0,
    expect.stringMatching(/: ok — .* cosigned heads over \d+ records, the last of 20\S+Z\n$/),
  ]);
  const { stdout } = await run(['audit', 'prove', 'q7', '--directory', directory]);
  await writeFile(join(place, 'proof'), stdout);
  const checked = await run(['audit', 'check-proof', join(place, 'proof'), ...keys]);
  expect([checked.status, checked.stdout]).toEqual([
    0,
    expect.stringContaining(`, cosigned by ${WITNESS_NAME} at 20`),
  ]);
});
