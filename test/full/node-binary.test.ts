import { spawnSync } from 'node:child_process';
import { copyFile, mkdtemp, readFile, rm, truncate } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { repository } from '../support/repository.ts';

const SCRIPT = 'test/support/verify-node.sh';
const pinned = process.platform === 'linux' && process.arch === 'x64';

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'node-binary-'));
});
afterAll(() => rm(folder, { recursive: true }));

function verify(...args: string[]): { status: number | null; stderr: string } {
  return spawnSync('sh', [SCRIPT, ...args], { cwd: repository, encoding: 'utf8' });
}

test('the installed Node.js is the pinned one, or its platform is said to have no pin', () => {
  const { status, stderr } = verify();
  expect(status).toBe(0);
  expect(stderr).toMatch(
    pinned ? /^$/ : /^Node\.js is not verified: the project pins no hash of it for \S+\.\n$/,
  );
});

test('the pin is for the version that the project is tested with', async () => {
  const { devDependencies } = JSON.parse(await readFile(join(repository, 'package.json'), 'utf8'));
  expect(await readFile(join(repository, SCRIPT), 'utf8')).toContain(`\nversion=${devDependencies.node}\n`);
});

test('another program, or none, ends with status 1 and one sentence where one is pinned', async () => {
  const file = join(folder, 'node');
  if (!pinned) {
    expect(verify(file).status).toBe(0);
    return;
  }
  expect(verify(file)).toMatchObject({
    status: 1,
    stderr: `${file} does not exist. Run npm ci, with install scripts.\n`,
  });
  await copyFile(join(repository, 'node_modules/node/bin/node'), file);
  expect(verify(file).status).toBe(0);
  await truncate(file, 1_000_000);
  const { status, stderr } = verify(file);
  expect(status).toBe(1);
  expect(stderr).toMatch(
    /^\S+ is not the pinned Node\.js \S+: its SHA-256 is [0-9a-f]{64}, not [0-9a-f]{64}\. .*\n$/,
  );
});
