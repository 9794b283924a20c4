import { execFile } from 'node:child_process';
import { mkdtempDisposable, readFile, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { expect, test } from '@jest/globals';
import { defaultSettings } from '../../src/simulator/settings.ts';
import { startGatewayProcess } from '../support/gateway-process.ts';
import { PROGRAM } from '../support/program.ts';
import { repository } from '../support/repository.ts';
import { authors } from '../support/scene.ts';
import { startSimulator } from '../support/simulator.ts';

const NODE = join(repository, 'node_modules/.cache/node-arm64/node');
/** Runs the Node.js of arm64, elsewhere by emulation with Debian's libraries for it. */
const RUNNER =
  process.arch === 'arm64' ? [NODE] : ['qemu-aarch64-static', '-L', '/usr/aarch64-linux-gnu', NODE];

test('on arm64 the program answers a challenge over TLS, and its audit log is intact', async () => {
  const [command = '', ...options] = RUNNER;
  const onArm64 = (...args: string[]) => promisify(execFile)(command, [...options, ...args]);
  expect((await onArm64('--print', 'process.arch')).stdout).toBe('arm64\n');

  await using folder = await mkdtempDisposable(join(tmpdir(), 'arm64-'));
  const keyFile = join(folder.path, 'key');
  await writeFile(keyFile, '5f'.repeat(32), { mode: 0o600 });
  await using stack = new AsyncDisposableStack();
  const simulator = await startSimulator(defaultSettings());
  stack.defer(() => simulator.close());
  const { origin } = simulator.deployments.submissions;
  const [first = ''] = (await readFile(PROGRAM, 'utf8')).split('\n', 1);
  const flags = first.split(' ').filter((word) => word.startsWith('--'));
  await using gateway = await startGatewayProcess(
    { submissions: { origin, ca: simulator.ca } },
    { audit: { directory: join(folder.path, 'audit'), keyFile } },
    { runner: [...RUNNER, ...flags] },
  );
  const response = await fetch(gateway.origin + authors);
  expect(response.status).toBe(200);
  expect(await response.text()).toContain('DEMO-2026-0001');
  expect(await gateway.metric('digest_gateway_challenges_total', { reason: 'cold' })).toBe(1);
  const verified = await onArm64(PROGRAM, 'audit', 'verify', '--config', gateway.configFile);
  expect(verified.stdout).toContain(': ok — 1 replica');
  await gateway.close();
  expect(await gateway.ended).toBe(0);
  // Emulation takes many times the CPU time.
}, 600_000);
