import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from '@jest/globals';
import { SourceReader } from '../../src/credentials/sources.ts';
import { ContentReading } from '../../src/setup/content.ts';
import { testCertificates } from '../support/simulator.ts';

test('a file of authorities is read once, however many deployments name it; an issue is at each of them', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'content-'));
  try {
    const reading = new ContentReading(new SourceReader({ environment: {} }, undefined), process.getuid?.());
    const ca = testCertificates()?.ca ?? '';
    const file = join(folder, 'ca.pem');
    await writeFile(file, ca);
    expect(await reading.authority(file, ['deployments', 'a', 'tls'])).toBe(ca);
    await rm(file);
    expect(await reading.authority(file, ['deployments', 'b', 'tls'])).toBe(ca);
    const missing = join(folder, 'missing.pem');
    for (const name of ['a', 'b']) await reading.authority(missing, ['deployments', name, 'tls']);
    expect(reading.issues.map(({ path }) => path.join('.'))).toEqual([
      'deployments.a.tls.caFile',
      'deployments.b.tls.caFile',
    ]);
  } finally {
    await rm(folder, { recursive: true });
  }
});
