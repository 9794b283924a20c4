import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, test } from '@jest/globals';
import { gateway } from '../../cli/gateway-process.ts';
import { REPLICA, recordAccess } from '../../support/audit-log.ts';
import { numbersIn, untilSent, useStreams } from '../../support/stream-scene.ts';
import { until } from '../../support/until.ts';

const setScene = useStreams();
const RECORDS = 'test:v2:{audit}:records';
const POSITIONS = 'test:v2:{audit}:positions';
const LONG = 60_000;

test('a forged entry of the stream is left out, and silences nothing', async () => {
  const scene = await setScene();
  const { audit } = await scene.open();
  await recordAccess(audit);
  await untilSent(scene.stream(), 1);
  const time = '2999-01-01T00:00:00.000Z';
  const line = `{"seq":900000000,"time":"${time}","kind":"admin","replica":"${REPLICA}","event":"forged"}`;
  const seal = `{"seal":[900000000,900000000],"sha256":"${'x'.repeat(43)}","hmac":"${'x'.repeat(43)}"}`;
  for (const fields of [
    ['seq', '900000000', 'record', line],
    ['lines', `${line}\n`, 'seal', seal, 'previous', '', 'anchor', '1'],
    ['later', '1'],
  ]) {
    await scene.redis.command('XADD', RECORDS, '*', 'replica', REPLICA, ...fields);
  }
  const file = join(scene.directory, 'all.jsonl');
  const collector = scene.collector('--output', file);
  const collected = async (): Promise<string> => await readFile(file, 'utf8').catch(() => '');
  await until(async () => numbersIn(await collected()).length === 1, LONG);
  for (let index = 0; index < 5; index += 1) await recordAccess(audit);
  await until(async () => numbersIn(await collected()).length === 6, LONG);
  const { stderr, status } = await collector.end('SIGTERM');
  expect(numbersIn(await collected())).toEqual([1, 2, 3, 4, 5, 6]);
  expect(stderr).toContain('1 entries of the stream were left out');
  expect([status, (await collected()).includes('forged')]).toEqual([1, false]);
});

test('a forged position in Redis makes the gateway leave nothing out, and verify alarm nobody', async () => {
  const scene = await setScene();
  const first = await scene.open();
  for (let index = 0; index < 3; index += 1) await recordAccess(first.audit);
  await first.close();
  await scene.redis.command('HSET', POSITIONS, REPLICA, `900000000 ${'x'.repeat(43)} ${'x'.repeat(43)}`);
  const verified = await gateway(['audit', 'verify', '--config', join(scene.directory, 'gateway.yaml')]);
  expect(verified.status).toBe(0);
  expect(verified.stderr).toContain(
    `the position of ${REPLICA} in Redis has no valid signature: it is ignored`,
  );

  const second = await scene.open();
  await recordAccess(second.audit);
  await untilSent(scene.stream(), 4);
  expect(second.logged).toEqual([{ replica: REPLICA }]);
  const entries = (await scene.redis.command('XRANGE', RECORDS, '-', '+')) as [string, string[]][];
  const sent = entries.flatMap(([, fields]) => numbersIn(fields[3] ?? ''));
  expect(new Set(sent)).toEqual(new Set([1, 2, 3, 4]));
});
