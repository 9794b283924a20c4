import { mkdtempSync, writeFileSync } from 'node:fs';
import { copyFile, symlink } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { buildProgram } from '../../../build/program.ts';
import { createCertificates } from '../../../src/simulator/certificates.ts';
import { builtOnce } from '../built-once.ts';
import { repository } from '../repository.ts';

export default async function setup() {
  // Certificates of the simulators, made once: each test file would load the library for them otherwise.
  process.env.TEST_CERTIFICATES = JSON.stringify(await createCertificates());
  process.env.TEST_PROGRAM = await builtProgram();
  // Every worker adds the tests that lack a package; the reporter reads them.
  process.env.TESTS_NOT_RUN = join(mkdtempSync(join(tmpdir(), 'tests-not-run-')), 'reasons');
  writeFileSync(process.env.TESTS_NOT_RUN, '');
}

/** The program as `npm run build` makes it. */
async function builtProgram() {
  const folder = await builtOnce('program', ['src/**/*.*', 'build/program.ts'], build);
  return join(folder, 'dist/cli/digest-gateway.js');
}

async function build(folder) {
  await buildProgram(repository, join(folder, 'dist/cli'));
  // The program finds its page, its demo and its version from its own folder.
  await copyFile(join(repository, 'package.json'), join(folder, 'package.json'));
  await symlink(join(repository, 'config'), join(folder, 'config'));
  await symlink(join(repository, 'dist/console'), join(folder, 'dist/console'));
}
