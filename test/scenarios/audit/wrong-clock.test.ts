import { readdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterEach, expect, jest, test } from '@jest/globals';
import { AUDIT_KEY, openTestAudit, REPLICA, recordAccess, useFolders } from '../../support/audit-log.ts';
import { closedAtEnd } from '../../support/closing.ts';
import { startConfiguredGateway } from '../../support/gateway.ts';
import { gateway as runProgram } from '../../support/program.ts';
import { startScene } from '../../support/scene.ts';
import { until } from '../../support/until.ts';
import { setWallClock } from '../../support/wall-clock.ts';

const folder = useFolders();
const DAY_MS = 86_400_000;
afterEach(() => {
  jest.useRealTimers();
});

/** Writes a log of some segments, whose clock is 400 days behind this one. */
async function writeOldLog(directory: string): Promise<void> {
  setWallClock(Date.now() - 400 * DAY_MS);
  const { audit } = await openTestAudit(directory, { segment: { size: 1, age: DAY_MS, keep: 30 * DAY_MS } });
  for (let index = 0; index < 5; index += 1) await recordAccess(audit);
  await audit.close();
  jest.useRealTimers();
}

test('a start with a clock far ahead of the log removes none of it, and says so, until an operator accepts the clock', async () => {
  const place = await folder();
  const directory = join(place, 'log');
  const keyFile = join(place, 'key');
  await writeFile(keyFile, AUDIT_KEY, { mode: 0o600 });
  await writeOldLog(directory);
  const first = async (): Promise<boolean> =>
    (await readdir(join(directory, REPLICA))).includes('000000000001.jsonl.zst');
  const { simulator } = await startScene();
  const upstream = { origin: simulator.deployments.submissions.origin, ca: simulator.ca };
  const audit = { directory, keyFile, replica: REPLICA, segment: { age: '1d', keep: '30d' } };
  const start = async () => {
    return closedAtEnd(startConfiguredGateway({ upstream }, { audit }));
  };

  const held = /^the clock is 400 days ahead of the audit log, .* run audit accept-clock if it is right$/;
  for (let starts = 0; starts < 2; starts += 1) {
    const gateway = await start();
    await until(() => gateway.logged.some(({ msg }) => held.test(String(msg))));
    expect(await first()).toBe(true);
    const ready = await fetch(`${gateway.control}/readyz`);
    expect([ready.status, await ready.json()]).toMatchObject([
      200,
      {
        status: 'degraded',
        checks: expect.arrayContaining([
          expect.objectContaining({ name: 'audit', ok: false, detail: expect.stringMatching(held) }),
        ]),
      },
    ]);
    const console = await (await fetch(`${gateway.control}/api/snapshot`)).text();
    expect(console).toContain('400 days ahead of the audit log');
    if (starts === 1) {
      const accepted = await runProgram(['audit', 'accept-clock', '--config', gateway.configFile]);
      expect(accepted).toMatchObject({
        status: 0,
        stdout: `accepted for ${REPLICA}: old segments are removed within an hour\n`,
      });
    }
    await gateway.close();
  }

  const gateway = await start();
  await until(async () => !(await first()));
  const verified = await runProgram(['audit', 'verify', '--config', gateway.configFile]);
  expect(verified).toMatchObject({ status: 0, stderr: '' });
  const again = await runProgram(['audit', 'accept-clock', '--config', gateway.configFile]);
  expect(again.stdout).toBe('the clock is not in doubt\n');
});
