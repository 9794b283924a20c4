import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readdir, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface, type Interface } from 'node:readline';
import { afterEach, beforeEach, expect, test } from '@jest/globals';
import { stringify } from 'yaml';
import { authors, startPair } from '../support/simulated-pair.ts';
import { until } from '../support/until.ts';

let folder: string;
let child: ChildProcess | undefined;
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'process-'));
});
afterEach(async () => {
  if (child !== undefined && child.exitCode === null && child.signalCode === null) {
    child.kill('SIGKILL');
    await once(child, 'exit');
  }
  child = undefined;
  await rm(folder, { recursive: true });
});

interface Served {
  readonly running: ChildProcess;
  readonly log: string[];
  readonly origin: string;
}

/** `serve` in a process of its own, before the simulator, with the password in a file. */
async function serve(nodeArgs: readonly string[] = []): Promise<Served> {
  const { simulator } = await startPair();
  await writeFile(join(folder, 'ca.pem'), simulator.ca);
  const configuration = {
    listen: { port: 0 },
    control: { port: 0 },
    anonymous: true,
    credentials: { demo: { username: { env: 'API_USER' }, password: { file: 'password' } } },
    deployments: {
      submissions: {
        baseUrl: simulator.deployments.submissions.origin,
        match: { pathPrefix: '/' },
        credential: 'demo',
        tls: { caFile: 'ca.pem' },
      },
    },
  };
  await writeFile(join(folder, 'gateway.yaml'), stringify(configuration));
  const running = spawn(
    process.execPath,
    [...nodeArgs, 'src/cli/digest-gateway.js', 'serve', '--config', join(folder, 'gateway.yaml')],
    { stdio: ['ignore', 'ignore', 'pipe'], env: { API_USER: 'demo-user', MARKED: 's3cr3t' } },
  );
  child = running;
  const log: string[] = [];
  const lines: Interface = createInterface(running.stderr);
  lines.on('line', (line) => log.push(line));
  await until(() => log.some((line) => line.includes('"listen"')), 15_000);
  const [, origin = ''] = /"listen":"(http:[^"]+)"/.exec(log.join('\n')) ?? [];
  return { running, log, origin };
}

async function putPassword(text: string): Promise<void> {
  await writeFile(join(folder, 'password.new'), text, { mode: 0o600 });
  await rename(join(folder, 'password.new'), join(folder, 'password'));
}

test('serve takes over a password that changes in its file, keeps it when the file is broken, and says so', async () => {
  await putPassword('wrong\n');
  const { running, log, origin } = await serve();
  expect((await fetch(`${origin}${authors}`)).status).toBe(502);

  await putPassword('demo-api-key\n');
  await until(async () => (await fetch(`${origin}${authors}`)).status === 200, 15_000);
  await rm(join(folder, 'password'));
  await until(() => log.some((line) => line.includes('keeping the current ones')), 15_000);
  expect((await fetch(`${origin}${authors}`)).status).toBe(200);

  running.kill('SIGTERM');
  expect(await once(running, 'exit')).toEqual([0, null]);
  expect(log.filter((line) => line.includes('credentials changed: reloading'))).toHaveLength(1);
  expect(log.join('\n')).not.toContain('demo-api-key');
});

test('a report of the process does not hold its environment', async () => {
  await putPassword('demo-api-key\n');
  const { running, origin } = await serve([
    '--report-on-signal',
    '--report-signal=SIGUSR2',
    `--report-directory=${folder}`,
  ]);
  expect((await fetch(`${origin}${authors}`)).status).toBe(200);
  running.kill('SIGUSR2');
  const reports = async () => (await readdir(folder)).filter((name) => name.startsWith('report.'));
  await until(async () => (await reports()).length === 1, 15_000);
  running.kill('SIGTERM');
  await once(running, 'exit');
  const [report = ''] = await reports();
  const text = await readFile(join(folder, report), 'utf8');
  expect(JSON.parse(text)).toHaveProperty('javascriptHeap');
  expect(text).not.toMatch(/s3cr3t|demo-api-key|demo-user/);
});
