import { copyFile, mkdir, readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { buildProgram } from '../../../build/program.ts';
import { repository } from '../../support/repository.ts';

/** Below node_modules, so that neither tests nor checks take its files for sources. */
const FOLDER = join(repository, 'node_modules/.cache/bench');

const builds = new Map<string, Promise<readonly string[]>>();

/**
 * Builds the package from the sources of a checkout, once a process, without the console's page. Resolves to the command
 * that runs it, with the flags of its own first line and the dependencies of this checkout.
 */
export function builtGateway(checkout = repository): Promise<readonly string[]> {
  let build = builds.get(checkout);
  if (build === undefined) {
    build = buildGateway(checkout, join(FOLDER, checkout === repository ? 'now' : 'before'));
    builds.set(checkout, build);
  }
  return build;
}

async function buildGateway(checkout: string, folder: string): Promise<readonly string[]> {
  // Files of removed sources would stay.
  await rm(folder, { recursive: true, force: true });
  await mkdir(folder, { recursive: true });
  await copyFile(join(checkout, 'package.json'), join(folder, 'package.json'));
  const cli = join(folder, 'dist/cli');
  await buildProgram(checkout, cli);
  const program = join(cli, 'digest-gateway.js');
  return [process.execPath, ...flagsOf(await readFile(program, 'utf8')), program];
}

/** The flags of Node.js in the first line of a program. */
function flagsOf(program: string): readonly string[] {
  const [, flags] = /^#!\/usr\/bin\/env -S node (--.*)$/m.exec(program) ?? [];
  if (flags === undefined) throw new Error('The first line of digest-gateway.js names no flags of Node.js.');
  return flags.split(' ');
}
