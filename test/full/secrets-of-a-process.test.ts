import { readdir, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { beforeEach, expect, test } from '@jest/globals';
import { useFolders } from '../support/audit-log.ts';
import { type GatewayProcess, startGatewayProcess } from '../support/gateway-process.ts';
import { authors, startScene } from '../support/scene.ts';
import { until } from '../support/until.ts';

const makeFolder = useFolders();
let folder: string;
beforeEach(async () => {
  folder = await makeFolder();
});

/** A gateway in front of the simulator, with the password in a file. */
async function serve(nodeArgs: readonly string[] = []): Promise<GatewayProcess> {
  const { simulator } = await startScene();
  const { origin } = simulator.deployments.submissions;
  const demo = { username: { env: 'API_USER' }, password: { file: join(folder, 'password') } };
  return startGatewayProcess(
    { submissions: { origin, ca: simulator.ca, settings: { credential: 'demo' } } },
    { credentials: { demo } },
    {
      runner: [process.execPath, ...nodeArgs],
      environment: { API_USER: 'demo-user', MARKED: 's3cr3t' },
    },
  );
}

async function putPassword(text: string): Promise<void> {
  await writeFile(join(folder, 'password.new'), text, { mode: 0o600 });
  await rename(join(folder, 'password.new'), join(folder, 'password'));
}

test('serve takes over a password that changes in its file, keeps it when the file is broken, and says so', async () => {
  await putPassword('wrong\n');
  await using gateway = await serve();
  const { origin, printed } = gateway;
  expect((await fetch(`${origin}${authors}`)).status).toBe(502);

  await putPassword('demo-api-key\n');
  await until(async () => (await fetch(`${origin}${authors}`)).status === 200);
  await rm(join(folder, 'password'));
  await until(() => printed.some((line) => line.includes('keeping their current versions')));
  expect((await fetch(`${origin}${authors}`)).status).toBe(200);

  await gateway.drain();
  expect(await gateway.ended).toBe(0);
  expect(printed.filter((line) => line.includes('credentials changed: reloading'))).toHaveLength(1);
  expect(printed.join('\n')).not.toContain('demo-api-key');
});

test('a report of the process does not hold its environment', async () => {
  await putPassword('demo-api-key\n');
  await using gateway = await serve([
    '--report-on-signal',
    '--report-signal=SIGUSR2',
    `--report-directory=${folder}`,
  ]);
  expect((await fetch(`${gateway.origin}${authors}`)).status).toBe(200);
  process.kill(gateway.pid, 'SIGUSR2');
  const reports = async () => (await readdir(folder)).filter((name) => name.startsWith('report.'));
  await until(async () => (await reports()).length === 1);
  await gateway.drain();
  const [report = ''] = await reports();
  const text = await readFile(join(folder, report), 'utf8');
  expect(JSON.parse(text)).toHaveProperty('javascriptHeap');
  expect(text).not.toMatch(/s3cr3t|demo-api-key|demo-user/);
});

test('core dumps of the gateway and its workers leave their memory out', async () => {
  // 33 is what Linux has by default.
  const runner = ['sh', '-c', 'echo 0x33 > /proc/self/coredump_filter && exec "$@"', 'sh'];
  await using gateway = await startGatewayProcess(
    { d: { origin: 'https://a.invalid' } },
    { workers: 2 },
    { runner },
  );
  const processes = [gateway.pid, ...(await gateway.workers())];
  expect(processes).toHaveLength(3);
  const filters = processes.map((pid) => readFile(`/proc/${pid}/coredump_filter`, 'utf8'));
  expect(await Promise.all(filters)).toEqual(['00000000\n', '00000000\n', '00000000\n']);
});
