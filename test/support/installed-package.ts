import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { cp, mkdir, symlink, writeFile } from 'node:fs/promises';
import { delimiter, dirname, join } from 'node:path';
import { text } from 'node:stream/consumers';
import { type LockedPackages, lockedPackages } from '../../build/shipped.ts';
import { repository } from './repository.ts';

/** The parts of a checkout that `npm pack` needs, beside its node_modules. */
const SOURCES = [
  'CHANGELOG.md',
  'CONTRIBUTING.md',
  'LICENSE',
  'README.md',
  'SECURITY.md',
  'build',
  'config',
  'deploy',
  'docs',
  'package.json',
  'package-lock.json',
  'src',
  'tsconfig.json',
];

/** Builds the package from a copy of the checkout, so that its dist/ stays as it is. Resolves to the tarball. */
export async function packPackage(folder: string): Promise<{ tarball: string; files: string[] }> {
  const source = join(folder, 'source');
  await mkdir(source);
  for (const name of SOURCES) await cp(join(repository, name), join(source, name), { recursive: true });
  await symlink(join(repository, 'node_modules'), join(source, 'node_modules'));
  const printed = await run('npm', ['pack', '--silent', '--json', '--pack-destination', folder], source);
  // The scripts of the package print before the list.
  const [{ filename, files }] = Object.values(JSON.parse(printed.slice(printed.search(/^[[{]$/m)))) as [
    { filename: string; files: { path: string }[] },
  ];
  return { tarball: join(folder, filename), files: files.map(({ path }) => path).sort() };
}

/**
 * Installs the tarball into an empty folder as for production, with the versions and hashes of the
 * repository's lock. Resolves to the program.
 */
export async function installPackage(tarball: string, folder: string): Promise<string> {
  const { '': own = {}, ...others } = lockedPackages();
  const production = Object.entries(others).filter(([, { dev }]) => dev !== true);
  const { devDependencies: _, ...gateway } = own;
  const resolved = `file:${tarball}`;
  await installLocked(
    folder,
    { 'digest-gateway': resolved },
    {
      'node_modules/digest-gateway': { ...gateway, resolved },
      ...Object.fromEntries(production),
    },
  );
  return join(folder, 'node_modules/.bin/digest-gateway');
}

/** Installs a program from one package without dependencies; resolves to the folder of its command. */
export async function installProgram(
  folder: string,
  name: string,
  entry: { version: string; integrity: string; bin: Readonly<Record<string, string>> },
): Promise<string> {
  await installLocked(folder, { [name]: entry.version }, { [`node_modules/${name}`]: entry });
  return join(folder, 'node_modules/.bin');
}

async function installLocked(
  folder: string,
  dependencies: Readonly<Record<string, string>>,
  packages: LockedPackages,
): Promise<void> {
  const own = { name: 'application', version: '1.0.0', dependencies };
  const lock = { ...own, lockfileVersion: 3, requires: true, packages: { '': own, ...packages } };
  await mkdir(folder, { recursive: true });
  await writeFile(join(folder, 'package.json'), JSON.stringify(own));
  await writeFile(join(folder, 'package-lock.json'), JSON.stringify(lock));
  await run('npm', ['ci', '--omit=dev', '--ignore-scripts', '--no-audit', '--no-fund'], folder);
}

/**
 * Runs a program to its end; resolves to its stdout. `bin` is the folder of the Node.js that runs it.
 * @throws Error with what it printed if its status is not 0
 */
export async function run(
  command: string,
  args: readonly string[],
  cwd: string,
  bin: string = dirname(process.execPath),
): Promise<string> {
  // The system's own Node.js may be too old. npm need not fetch packages that are in its cache.
  const path = [bin, process.env['PATH']].join(delimiter);
  const env = { ...process.env, PATH: path, npm_config_prefer_offline: 'true' };
  const child = spawn(command, args, { cwd, env, stdio: ['ignore', 'pipe', 'pipe'] });
  const [stdout, stderr, [status]] = await Promise.all([
    text(child.stdout),
    text(child.stderr),
    once(child, 'close') as Promise<[number | null]>,
  ]);
  if (status !== 0) throw new Error(`${command} ${args.join(' ')} ended with ${status}:\n${stdout}${stderr}`);
  return stdout;
}
