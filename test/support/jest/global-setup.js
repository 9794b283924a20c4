import { mkdtempSync, readFileSync, writeFileSync } from 'node:fs';
import { copyFile, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { rolldown } from 'rolldown';
import { createCertificates } from '../../../src/simulator/certificates.ts';
import { builtOnce } from '../built-once.ts';
import { repository } from '../repository.ts';

/** Entries of the processes and threads of the program, by the names that it loads them by. */
const ENTRIES = {
  main: 'src/cli/main.ts',
  'load-worker': 'src/config/load-worker.ts',
  'sink-thread': 'src/audit/shipping/sink-thread.ts',
  'search-worker': 'src/audit/reader/search-worker.ts',
};

export default async function setup() {
  // Certificates of the simulators, made once: each test file would load the library for them otherwise.
  process.env.TEST_CERTIFICATES = JSON.stringify(await createCertificates());
  process.env.TEST_PROGRAM = await bundledProgram();
  // Every worker adds the tests that lack a package; the reporter reads them.
  process.env.TESTS_NOT_RUN = join(mkdtempSync(join(tmpdir(), 'tests-not-run-')), 'reasons');
  writeFileSync(process.env.TESTS_NOT_RUN, '');
}

/**
 * The program in few files, for tests that start it some hundred times: a process loads a thousand modules otherwise, which
 * takes most of the processor's time of a start.
 */
async function bundledProgram() {
  const folder = await builtOnce('program', ['src/**/*.*', 'test/support/jest/global-setup.js'], bundle);
  return join(folder, 'src/cli/digest-gateway.js');
}

async function bundle(folder) {
  // All in one folder as deep as that of the sources: the program finds threads, page and package.json from there.
  const program = join(folder, 'src/cli');
  const input = Object.fromEntries(
    Object.entries(ENTRIES).map(([name, file]) => [name, join(repository, file)]),
  );
  const build = await rolldown({ input, platform: 'node', onLog() {} });
  await build.write({ dir: program, entryFileNames: '[name].js', chunkFileNames: '[name]-[hash].js' });
  const entry = readFileSync(join(repository, 'src/cli/digest-gateway.js'), 'utf8');
  await writeFile(join(program, 'digest-gateway.js'), entry.replace('./main.ts', './main.js'), {
    mode: 0o755,
  });
  await copyFile(join(repository, 'package.json'), join(folder, 'package.json'));
  for (const name of ['config', 'dist']) await symlink(join(repository, name), join(folder, name));
}
