import { chmod, copyFile, mkdir, readdir, rm, symlink, writeFile } from 'node:fs/promises';
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
  process.env.TMPDIR = await folderOfRun();
  // Every worker adds the tests that lack a package; the reporter reads them.
  process.env.TESTS_NOT_RUN = join(process.env.TMPDIR, 'tests-not-run');
  await writeFile(process.env.TESTS_NOT_RUN, '');
}

/** Makes the folder of all temporary files of this run. Those of runs that were killed go now. */
async function folderOfRun() {
  const place = tmpdir();
  for (const name of await readdir(place)) {
    const [, pid] = /^dg-tests-(\d+)$/.exec(name) ?? [];
    if (pid === undefined || (isRunning(Number(pid)) && Number(pid) !== process.pid)) continue;
    // A folder of another user cannot be removed: that is not this run's concern.
    await rm(join(place, name), { recursive: true, force: true }).catch(() => undefined);
  }
  // The path is short: those of sockets in it may have about a hundred bytes.
  const folder = join(place, `dg-tests-${process.pid}`);
  await mkdir(folder, { recursive: true });
  // A server that root starts serves as somebody else.
  await chmod(folder, 0o755);
  return folder;
}

function isRunning(pid) {
  try {
    return process.kill(pid, 0);
  } catch ({ code }) {
    return code === 'EPERM';
  }
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
