import { readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from '@jest/globals';
import { Secret } from '../../src/base/secret.ts';
import { changeEntries, makeIdentity, setNext, setTo } from '../../src/credentials/sealing.ts';
import { SourceReader } from '../../src/credentials/sources.ts';
import { CLIENTS, CREDENTIALS, DEPLOYMENTS } from '../config/texts.ts';
import { AUDIT_KEY, useFolders } from '../support/audit-log.ts';
import { startGatewayProcess } from '../support/gateway-process.ts';
import { injectFault } from '../support/inject-fault.ts';
import { OF_PROGRAM, post, TOKEN_HASHES } from '../support/operator.ts';
import { parseConfig } from '../support/parsed-config.ts';
import { runCommand } from '../support/program.ts';
import { repository } from '../support/repository.ts';

const folderOf = useFolders();

/** The longest that a drain takes with the defaults, in seconds. */
function defaultDrainSeconds(): number {
  const { delay, timeout } = parseConfig(`${CREDENTIALS}\n${DEPLOYMENTS}\n${CLIENTS}`, 'c.yaml').drain;
  return (delay + timeout) / 1000;
}

test('systemd waits 30 s longer than a drain takes', async () => {
  const unit = await readFile(join(repository, 'deploy/systemd/digest-gateway.service'), 'utf8');
  expect(Number(/^TimeoutStopSec=(\d+)s$/m.exec(unit)?.[1])).toBeGreaterThanOrEqual(
    defaultDrainSeconds() + 30,
  );
});

test('systemd waits for the messages of the gateway, and takes them from systemd-notify', async () => {
  const unit = await readFile(join(repository, 'deploy/systemd/digest-gateway.service'), 'utf8');
  const lines = unit.split('\n').filter((line) => /^(Type|NotifyAccess|WatchdogSec|Restart)=/.test(line));
  expect(lines).toEqual(['Type=notify', 'NotifyAccess=all', 'WatchdogSec=30s', 'Restart=on-failure']);
});

test('systemd takes the unit, and finds little to expose', async () => {
  const unit = await readFile(join(repository, 'deploy/systemd/digest-gateway.service'), 'utf8');
  // The program is not installed here, and systemd looks whether it can be run.
  const here = unit.replace('/usr/bin/digest-gateway', process.execPath);
  expect(here).not.toBe(unit);
  const file = join(tmpdir(), `digest-gateway-${process.pid}.service`);
  await writeFile(file, here);
  try {
    expect(await runCommand('systemd-analyze', ['verify', file])).toEqual({ status: 0, printed: '' });
    const { status } = await runCommand('systemd-analyze', [
      'security',
      '--offline=true',
      '--threshold=20',
      file,
    ]);
    expect(status).toBe(0);
  } finally {
    await rm(file);
  }
});

test('the console searches and withdraws without the system calls that the unit forbids', async () => {
  const folder = await folderOf();
  const keyFile = join(folder, 'audit.key');
  await writeFile(keyFile, AUDIT_KEY, { mode: 0o600 });
  const sealed = { file: join(folder, 's.age'), identity: { file: join(folder, 'id.txt') } };
  await makeIdentity(sealed, new Date());
  for (const step of [setTo(new Secret('old'), new Date()), setNext(new Secret('new'), new Date())]) {
    await changeEntries(sealed, new SourceReader({ environment: {} }, sealed), ['journal-a'], step);
  }
  await using gateway = await startGatewayProcess(
    { submissions: { origin: 'https://127.0.0.1:1', settings: { credential: 'journal-a' } } },
    {
      control: { port: 0, ...TOKEN_HASHES },
      audit: { directory: join(folder, 'log'), keyFile, replica: 'r1' },
      sealed,
      credentials: { 'journal-a': { username: { value: 'user' }, password: { sealed: 'journal-a' } } },
    },
  );
  const calls = await forbiddenCalls();
  const end = await injectFault(gateway.pid, `${calls.map((call) => `?${call}`).join(',')}:error=EPERM`);
  try {
    const { control } = gateway;
    const found = await fetch(`${control}/api/audit/search?kind=events`, { headers: OF_PROGRAM });
    expect([found.status, await found.text()]).toEqual([200, expect.stringContaining('"event":"start"')]);
    expect(await post(`${control}/api/credentials/journal-a/withdraw`, {}, OF_PROGRAM)).toMatchObject({
      status: 200,
    });
  } finally {
    await end();
  }
});

/** The system calls that the unit forbids of those that a service may make. */
async function forbiddenCalls(): Promise<string[]> {
  const unit = await readFile(join(repository, 'deploy/systemd/digest-gateway.service'), 'utf8');
  const sets = (/^SystemCallFilter=~(.*)$/m.exec(unit)?.[1] ?? '').split(' ');
  const { printed } = await runCommand('systemd-analyze', ['syscall-filter']);
  const groups = new Map(
    printed.split(/^(?=@)/m).map((group) => {
      const [name = '', ...lines] = group.split('\n').map((line) => line.trim());
      return [name, lines.filter((line) => /^@?\w[\w-]*$/.test(line))] as const;
    }),
  );
  const expand = (name: string): string[] =>
    name.startsWith('@') ? (groups.get(name) ?? []).flatMap(expand) : [name];
  const calls = sets.flatMap(expand);
  expect(calls).toEqual(expect.arrayContaining(['setpriority', 'fchown']));
  return calls;
}
