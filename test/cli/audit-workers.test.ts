import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { beforeEach, expect, test } from '@jest/globals';
import type { Audit } from '../../src/audit/audit.ts';
import { served } from '../config/issue-lines.ts';
import { CREDENTIALS, DEPLOYMENTS } from '../config/texts.ts';
import { AUDIT_KEY, openTestAudit, recordAccess, useFolders } from '../support/audit-log.ts';
import { closing } from '../support/closing.ts';
import { gateway, PROGRAM } from '../support/program.ts';
import { until } from '../support/until.ts';

const folder = useFolders();
let config: string;
let log: string;

beforeEach(async () => {
  const directory = await folder();
  config = join(directory, 'gateway.yaml');
  log = join(directory, 'log');
  await writeFile(join(directory, 'key'), `${AUDIT_KEY}\n`, { mode: 0o600 });
  const audit = 'audit: { directory: log, keyFile: key, parameters: [ids] }';
  await writeFile(config, served([CREDENTIALS, DEPLOYMENTS, audit, ''].join('\n')));
});

async function open(replica: string): Promise<Audit> {
  const { audit } = await openTestAudit(log, { replica });
  closing.push(() => audit.close());
  return audit;
}

/** One request of each process, whose id is the name of the process. */
async function write(...names: string[]): Promise<void> {
  for (const name of names) {
    const audit = await open(name);
    await recordAccess(audit, { requestId: name });
    await audit.close();
  }
}

const audit = (command: string, ...more: string[]) =>
  gateway(['audit', command, '--config', config, ...more]);

test('audit verify counts the workers with their replica, and tells where a log is broken', async () => {
  await write('r1', 'r1@1', 'r1@2', 'r2');
  const whole = await audit('verify');
  expect([whole.status, whole.stderr]).toEqual([0, '']);
  expect(whole.stdout).toContain('log: ok — 2 replicas with 2 workers, 4 records, 8 seals, 4 segments\n');
  const heads = Array.from(whole.stdout.matchAll(/^head (\S+)$/gm), ([, head = '']) => head);
  expect(heads.map((head) => head.split(':')[0])).toEqual(['r1', 'r1@1', 'r1@2', 'r2']);
  const given = heads.flatMap((head) => ['--head', head]);
  expect(await audit('verify', ...given)).toMatchObject({ status: 0 });

  const file = join(log, 'r1@2', '000000000001.jsonl');
  await writeFile(file, (await readFile(file, 'utf8')).replace('192.0.2.7', '192.0.2.8'));
  await rm(join(log, 'r1@1'), { recursive: true });
  const broken = await audit('verify', ...given);
  expect(broken.status).toBe(1);
  expect(broken.stdout).toMatch(
    /^r1@2\/000000000001\.jsonl:3: .+ \[batch-altered\]\nr1@2: .+ \[log-truncated\]\nr1@1: .+ \[log-missing\]\n/,
  );
  expect(broken.stdout).toContain('ALTERED — 2 replicas with 1 worker, 2 records');
  expect(await audit('verify', '--replica', 'r2')).toMatchObject({
    status: 0,
    stdout: expect.stringContaining('log, r2: ok — 1 replica, 1 record,'),
  });
  expect(await audit('verify', '--replica', 'r1@1', '--head', heads[1] ?? '')).toMatchObject({
    status: 1,
    stdout: expect.stringMatching(/^r1@1: .+ \[log-missing\]\n.*no audit log here\n$/),
  });
  expect(await audit('verify', '--replica', 'r1', '--head', heads[3] ?? '')).toMatchObject({
    status: 2,
    stderr: expect.stringContaining('--replica leaves out the log of --head r2:1:'),
  });
});

test('audit search, tail and export read the workers of a replica as one log, or one of them', async () => {
  await write('r1', 'r1@1', 'r1@2', 'r2');
  const idsIn = (text: string): string[] =>
    Array.from(text.matchAll(/"requestId":"([^"]+)"/g), ([, id = '']) => id);
  for (const command of ['search', 'tail', 'export']) {
    const json = command === 'export' ? [] : ['--json'];
    const ids = async (...options: string[]) => idsIn((await audit(command, ...json, ...options)).stdout);
    const [all, replica, worker, absent] = await Promise.all([
      ids(),
      ids('--replica', 'r1'),
      ids('--replica', 'r1@2'),
      audit(command, '--replica', 'r1@7'),
    ]);
    const found = { all, replica, worker };
    expect([command, found]).toEqual([
      command,
      { all: ['r1', 'r1@1', 'r1@2', 'r2'], replica: ['r1', 'r1@1', 'r1@2'], worker: ['r1@2'] },
    ]);
    const stderr = expect.stringMatching(/\br1@7\b.*\br1, r2\b/);
    expect([command, absent]).toMatchObject([command, { status: 2, stderr }]);
  }
});

test('audit tail, usage and export say where there is nothing', async () => {
  await write();
  for (const args of [
    ['tail'],
    ['usage', '--from', '2020-01', '--to', '2020-02'],
    ['export', '--from', '2020-01', '--to', '2020-02'],
  ]) {
    const { status, stderr } = await audit(args[0] ?? '', ...args.slice(1));
    expect([status, stderr]).toEqual([
      0,
      expect.stringMatching(/^nothing found: there is no audit log in \//),
    ]);
  }
});

test('audit tail --follow prints the records of workers that begin later, and of no other replica', async () => {
  const seen: string[] = [];
  await write('r1');
  const options = ['-f', '--json', '--replica', 'r1', '--config', config];
  const child = spawn(process.execPath, [PROGRAM, 'audit', 'tail', ...options], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  closing.push(() => child.kill('SIGKILL'));
  createInterface(child.stdout).on('line', (line) => seen.push(JSON.parse(line).requestId));
  await until(() => seen.length === 1);
  const audits = await Promise.all(['r2', 'r1@1', 'r1@2'].map(open));
  for (const turn of ['a', 'b']) {
    for (const [index, each] of audits.entries()) await recordAccess(each, { requestId: `${turn}${index}` });
    // Both are read before the next turn, so that their order is certain.
    const count = turn === 'a' ? 3 : 5;
    await until(() => seen.length >= count);
    expect(seen.slice(count - 2).sort()).toEqual([`${turn}1`, `${turn}2`]);
  }
  child.kill();
  await once(child, 'close');
});
