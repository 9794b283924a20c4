import { cp, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, test } from '@jest/globals';
import { AUDIT_KEY, useFolders } from '../../../support/audit-log.ts';
import { startScene } from '../../../support/scene.ts';
import { until } from '../../../support/until.ts';
import { verified } from '../../../support/verified-log.ts';

const folder = useFolders();

async function found(directory: string): Promise<string[]> {
  const { alterations } = await verified(directory);
  return alterations.map(({ replica, kind }) => `${replica} ${kind}`);
}

test('finds by the others that the log of the primary process or of a worker was removed or cut off', async () => {
  const place = await folder();
  const keyFile = join(place, 'key');
  const [directory, copy] = [join(place, 'log'), join(place, 'copy')];
  await writeFile(keyFile, AUDIT_KEY, { mode: 0o600 });
  const top = { audit: { directory, keyFile, replica: 'r1' } };
  {
    const scene = await startScene({ workers: 2, top });
    const [victim = 0] = await scene.gateway.workers();
    process.kill(victim, 'SIGKILL');
    await until(() => scene.gateway.logged.some(({ msg }) => String(msg).includes('worker replaced')));
    await scene.gateway.drain();
  }
  expect(await found(directory)).toEqual([]);

  for (const name of ['r1', 'r1@1', 'r1@2']) {
    await cp(directory, copy, { recursive: true });
    await rm(join(copy, name), { recursive: true });
    expect(await found(copy)).toEqual([name === 'r1' ? 'r1 primary-missing' : `${name} log-missing`]);
    await rm(copy, { recursive: true });
  }
  for (const name of ['r1@1', 'r1@2']) {
    await cp(directory, copy, { recursive: true });
    const file = join(copy, name, '000000000001.jsonl');
    const text = await readFile(file, 'utf8');
    await writeFile(file, text.slice(0, text.lastIndexOf('{"seq":')));
    expect(await found(copy)).toEqual([`${name} log-truncated`]);
    await rm(copy, { recursive: true });
  }
});
