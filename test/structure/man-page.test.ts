import { execFileSync, spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { expect, test } from '@jest/globals';
import { repository } from '../support/repository.ts';
import { needPackages } from '../support/system-packages.ts';

/** As `npm pack` makes it. */
const input = execFileSync(process.execPath, [join(repository, 'docs/generate/man.ts')]);

test('mandoc finds nothing wrong with the manual page', () => {
  needPackages('mandoc');
  const { stdout } = spawnSync('mandoc', ['-T', 'lint', '-W', 'style'], { input, encoding: 'utf8' });
  const found = stdout.trim().split('\n');
  // The page has no date: it would change whenever it is made again.
  expect(found.map((line) => line.replace(/^.*<stdin>:/, ''))).toEqual([
    '2:23: WARNING: missing date, using "": TH',
  ]);
});

test('the manual page shows commands with their options', () => {
  needPackages('mandoc');
  const { stdout } = spawnSync('mandoc', ['-T', 'ascii'], { input, encoding: 'utf8' });
  const text = stdout.replaceAll(/.[\b]/g, '');
  expect(text).toContain('digest-gateway audit search --config <file> [options]');
  expect(text).toMatch(/--no-secrets\n +Check the configuration alone/);
});
