import { createHash } from 'node:crypto';
import { existsSync, globSync, mkdtempSync, readFileSync, writeFileSync } from 'node:fs';
import { copyFile, mkdir, mkdtemp, rename, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { rolldown } from 'rolldown';
import { createCertificates } from '../../../src/simulator/certificates.ts';

const REPOSITORY = join(import.meta.dirname, '../../..');
const CACHE = join(REPOSITORY, 'node_modules/.cache/program');
/** What a process or a thread begins with. */
const ENTRIES = {
  main: 'src/cli/main.ts',
  'load-worker': 'src/config/load-worker.ts',
  'sink-thread': 'src/audit/sinks/sink-thread.ts',
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
 * takes most of the processor's time of a start. Made once for each state of the sources.
 */
async function bundledProgram() {
  const sources = createHash('sha256').update(readFileSync(import.meta.filename));
  for (const name of ['package-lock.json', ...globSync('src/**/*.*', { cwd: REPOSITORY }).sort()]) {
    sources.update(name).update(readFileSync(join(REPOSITORY, name)));
  }
  const folder = join(CACHE, sources.digest('hex').slice(0, 16));
  if (!existsSync(folder)) await bundle(folder);
  return join(folder, 'src/cli/digest-gateway.js');
}

async function bundle(folder) {
  await mkdir(CACHE, { recursive: true });
  const part = await mkdtemp(join(CACHE, 'part-'));
  // All in one folder as deep as that of the sources: the program finds threads, page and package.json from there.
  const program = join(part, 'src/cli');
  const input = Object.fromEntries(
    Object.entries(ENTRIES).map(([name, file]) => [name, join(REPOSITORY, file)]),
  );
  const build = await rolldown({ input, platform: 'node', onLog() {} });
  await build.write({ dir: program, entryFileNames: '[name].js', chunkFileNames: '[name]-[hash].js' });
  const entry = readFileSync(join(REPOSITORY, 'src/cli/digest-gateway.js'), 'utf8');
  await writeFile(join(program, 'digest-gateway.js'), entry.replace('./main.ts', './main.js'), {
    mode: 0o755,
  });
  await copyFile(join(REPOSITORY, 'package.json'), join(part, 'package.json'));
  for (const name of ['config', 'dist']) await symlink(join(REPOSITORY, name), join(part, name));
  // Another run may have been quicker.
  await rename(part, folder).catch(() => rm(part, { recursive: true }));
}
