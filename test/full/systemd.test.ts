import { readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from '@jest/globals';
import { parseConfig } from '../../src/config/load.ts';
import { CLIENTS, CREDENTIALS, DEPLOYMENTS } from '../config/texts.ts';
import { runCommand } from '../support/program.ts';
import { repository } from '../support/repository.ts';

/** The longest that a drain takes with the defaults, in seconds. */
function defaultDrainSeconds(): number {
  const { delay, timeout } = parseConfig(`${CREDENTIALS}\n${DEPLOYMENTS}\n${CLIENTS}`, 'c.yaml').drain;
  return (delay + timeout) / 1000;
}

test('systemd waits for longer than a drain takes', async () => {
  const unit = await readFile(join(repository, 'deploy/systemd/digest-gateway.service'), 'utf8');
  expect(Number(/^TimeoutStopSec=(\d+)s$/m.exec(unit)?.[1])).toBeGreaterThan(defaultDrainSeconds());
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
