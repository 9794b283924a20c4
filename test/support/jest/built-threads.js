import { existsSync } from 'node:fs';
import { syncBuiltinESMExports } from 'node:module';
import { basename, dirname, join } from 'node:path';
import { pathToFileURL } from 'node:url';
import threads from 'node:worker_threads';
import { repository } from '../repository.ts';

const SOURCES = pathToFileURL(join(repository, 'src/')).href;
const { Worker } = threads;

/** The file of a thread of the program as the build has it, in which it starts in half the time; else the given one. */
function builtFile(file) {
  const { TEST_PROGRAM } = process.env;
  if (TEST_PROGRAM === undefined || !String(file).startsWith(SOURCES)) return file;
  const built = join(dirname(TEST_PROGRAM), `${basename(String(file), '.ts')}.js`);
  return existsSync(built) ? built : file;
}

threads.Worker = class extends Worker {
  constructor(file, options) {
    super(builtFile(file), options);
  }
};
syncBuiltinESMExports();
