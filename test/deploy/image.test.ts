import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmod, cp, mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { basename, delimiter, dirname, join } from 'node:path';
import { text } from 'node:stream/consumers';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { repository } from '../support/repository.ts';

/** The first line that passes, of those that a process prints from now on. Rejects when it ends without one. */
async function firstLine(
  child: ChildProcess,
  passes: (line: string) => boolean,
  of: 'stdout' | 'stderr' = 'stderr',
): Promise<string> {
  let printed = '';
  const { promise, resolve, reject } = Promise.withResolvers<string>();
  child[of]?.setEncoding('utf8').on('data', (piece: string) => {
    printed += piece;
    const line = printed.split('\n').slice(0, -1).find(passes);
    if (line !== undefined) resolve(line);
  });
  child.once('exit', () => reject(new Error(`It ended:\n${printed}`)));
  return promise;
}

/** One instruction, as `COPY --from=build /a ./b`. */
interface Instruction {
  readonly name: string;
  /** `from`, `chown` and the like. */
  readonly flags: Readonly<Record<string, string>>;
  /** The arguments behind the flags; the JSON form is parsed. */
  readonly words: readonly string[];
  readonly text: string;
}

/** The instructions between one FROM and the next. */
interface Stage {
  readonly name: string;
  readonly base: string;
  readonly instructions: readonly Instruction[];
}

/** Reads a Dockerfile without heredocs and escapes; ARGs before the first FROM are filled in where FROM names them. */
function readDockerfile(text: string): Stage[] {
  const lines = text.replace(/^\s*#.*\n/gm, '').replace(/\\\n\s*/g, ' ');
  const stages: (Stage & { instructions: Instruction[] })[] = [];
  const values = new Map<string, string>();
  for (const instruction of lines.split('\n').filter(Boolean).map(readInstruction)) {
    const stage = stages.at(-1);
    if (instruction.name === 'FROM') {
      const [base = '', , name = ''] = instruction.words;
      stages.push({
        name,
        base: base.replace(/\$\{(\w+)\}/, (_, key) => values.get(key) ?? ''),
        instructions: [],
      });
    } else if (stage !== undefined) {
      stage.instructions.push(instruction);
    } else {
      const [key = '', value = ''] = instruction.text.split('=');
      values.set(key, value);
    }
  }
  return stages;
}

function readInstruction(line: string): Instruction {
  const [, name = '', rest = ''] = /^(\S+)\s+(.*)$/.exec(line) ?? [];
  const flags = Object.fromEntries(
    Array.from(rest.matchAll(/(?<=^|\s)--([a-z-]+)=(\S+)/g), ([, key = '', value = '']) => [key, value]),
  );
  const text = rest.replace(/(?<=^|\s)--[a-z-]+=\S+\s*/g, (flag) => (name === 'RUN' ? flag : ''));
  const words: string[] = text.startsWith('[') ? JSON.parse(text) : text.split(/\s+/);
  return { name, flags, words, text };
}

/** A user that runs nothing else, if root may choose one. */
const NOBODY = process.geteuid?.() === 0 ? { uid: 65_534, gid: 65_534 } : {};

const stages = readDockerfile(await readFile(join(repository, 'Dockerfile'), 'utf8'));
const image = stages.at(-1) as Stage;

/** The value of the last instruction with this name in the image itself. */
const said = (name: string): Instruction | undefined =>
  image.instructions.findLast((instruction) => instruction.name === name);

describe('the Dockerfile', () => {
  test('has two stages on the version of Node.js that the project is tested with', async () => {
    const { devDependencies } = JSON.parse(await readFile(join(repository, 'package.json'), 'utf8'));
    expect(stages.map(({ base }) => base)).toEqual(Array(2).fill(`node:${devDependencies.node}-slim`));
  });

  test('takes nothing from another image than NODE_IMAGE, which can be given by digest', async () => {
    const lines = (await readFile(join(repository, 'Dockerfile'), 'utf8')).split('\n');
    expect(lines.filter((line) => /^ARG\b/i.test(line))).toEqual([
      expect.stringMatching(/^ARG NODE_IMAGE=node:\S+$/),
    ]);
    const bases = lines.filter((line) => /^FROM\b/i.test(line));
    expect(bases).toHaveLength(stages.length);
    for (const base of bases) expect(base).toMatch(/^FROM \$\{NODE_IMAGE\}( AS \w+)?$/);
    const names = stages.map(({ name }) => name);
    for (const { flags, name, text: rest } of stages.flatMap(({ instructions }) => instructions)) {
      if (flags['from'] !== undefined) expect(names).toContain(flags['from']);
      expect(name).not.toBe('ADD');
      expect(rest).not.toMatch(/--mount=\S*from=/);
    }
    // A frontend would be one more image, by tag, that runs in the build.
    expect(lines.filter((line) => /^#\s*(syntax|escape)\s*=/i.test(line))).toEqual([]);
  });

  test('runs as a user that is not root, by number', () => {
    expect(said('USER')?.text).toBe('1000:1000');
    expect(image.instructions.slice(-1)[0]?.name).toBe('CMD');
    expect(image.instructions.filter(({ name }) => name === 'RUN' || name === 'ADD')).toEqual([]);
  });

  test('checks the health of the port that it exposes', () => {
    expect(said('EXPOSE')?.words).toEqual(['8080', '8081']);
    expect(said('HEALTHCHECK')?.text).toContain('http://127.0.0.1:8081/livez');
  });
});

describe('the steps of the image, one by one', () => {
  let root: string;
  const running: ChildProcess[] = [];

  beforeAll(async () => {
    root = await mkdtemp(join(tmpdir(), 'image-'));
    await chmod(root, 0o755);
    await copyContext(join(root, 'context'));
    for (const stage of stages) await carryOut(stage, root);
    await writeProtect(folderOf(image, root));
  }, 280_000);

  afterAll(async () => {
    for (const child of running) child.kill('SIGKILL');
    await makeRemovable(root);
    await rm(root, { recursive: true, force: true });
  });

  test('the build sees nothing of tests, documents and history', async () => {
    const context = await readdir(join(root, 'context'));
    expect(context).toEqual(expect.arrayContaining(['package.json', 'package-lock.json', 'src', 'config']));
    for (const name of ['.git', 'test', 'node_modules', 'docs', 'deploy', 'dist', 'secrets']) {
      expect(context).not.toContain(name);
    }
  });

  test('the image holds what runs, and no package of development', async () => {
    const app = join(folderOf(image, root), 'app');
    expect((await readdir(app)).sort()).toEqual([
      'LICENSE',
      'config',
      'dist',
      'node_modules',
      'package.json',
    ]);
    const { dependencies, devDependencies } = JSON.parse(await readFile(join(app, 'package.json'), 'utf8'));
    const installed = await readdir(join(app, 'node_modules'), { recursive: true });
    const packages = new Set(installed.filter((path) => path.endsWith('/package.json')).map(dirname));
    expect(Object.keys(dependencies).filter((name) => !packages.has(name))).toEqual([]);
    const ofDevelopment = Object.keys(devDependencies).filter((name) => !(name in dependencies));
    expect(ofDevelopment.filter((name) => packages.has(name))).toEqual([]);
  });

  test('it serves as another user who may write nothing', async () => {
    const config = join(root, 'gateway.yaml');
    await writeFile(
      config,
      `listen: { port: 0 }
control: { port: 0 }
anonymous: true
credentials: { a: { username: { value: u }, password: { value: p } } }
deployments: { a: { baseUrl: 'https://upstream.invalid', match: { pathPrefix: / }, credential: a } }
`,
    );
    const gateway = start('serve', '--config', config);
    const up = await firstLine(gateway, (line) => line.includes('"control":'));
    const control: string = JSON.parse(up).control;
    expect((await fetch(`${control}/livez`)).status).toBe(200);
    expect((await runHealthcheck(control)).status).toBe(0);
    gateway.kill('SIGTERM');
    expect(await once(gateway, 'exit')).toEqual([0, null]);
    expect((await runHealthcheck(control)).status).toBe(1);
  }, 30_000);

  test('it finds its own configuration files and says its version', async () => {
    const version = start('--version');
    const printed = firstLine(version, () => true, 'stdout');
    const { version: wanted } = JSON.parse(await readFile(join(repository, 'package.json'), 'utf8'));
    expect(await printed).toBe(wanted);
    const demo = start('demo', '--free-ports');
    await firstLine(demo, (line) => line.startsWith('Running'), 'stdout');
    demo.kill('SIGTERM');
    expect(await once(demo, 'exit')).toEqual([0, null]);
  }, 30_000);

  /** The program as ENTRYPOINT has it, with Node.js of the tests in place of the image's. */
  function start(...args: string[]): ChildProcess {
    const folder = folderOf(image, root);
    const [, ...entry] = said('ENTRYPOINT')?.words ?? [];
    const command = entry.map((word) => (word.startsWith('/') ? join(folder, word) : word));
    const child = spawn(process.execPath, [...command, ...args], {
      ...NOBODY,
      cwd: join(folder, said('WORKDIR')?.text ?? ''),
      env: { NODE_ENV: 'production', HOME: '/nonexistent' },
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    running.push(child);
    return child;
  }
});

/** Files that `docker build .` would send: all that .dockerignore does not exclude. */
async function copyContext(target: string): Promise<void> {
  const ignored = new Set((await readFile(join(repository, '.dockerignore'), 'utf8')).split('\n'));
  await mkdir(target);
  for (const name of await readdir(repository)) {
    if (!ignored.has(name)) await cp(join(repository, name), join(target, name), { recursive: true });
  }
}

/** Where a stage's file system starts. */
function folderOf(stage: Stage, root: string): string {
  return join(root, stage.name === '' ? 'image' : stage.name);
}

async function carryOut(stage: Stage, root: string): Promise<void> {
  const folder = folderOf(stage, root);
  let workdir = folder;
  for (const { name, flags, words, text: command } of stage.instructions) {
    if (name === 'WORKDIR') {
      workdir = join(folder, command);
      await mkdir(workdir, { recursive: true });
    } else if (name === 'COPY') {
      const from = stages.find((other) => other.name === flags['from']);
      const source = from === undefined ? join(root, 'context') : folderOf(from, root);
      await copy(source, words, command.includes(' /') ? folder : workdir);
    } else if (name === 'RUN') {
      await run(command, workdir);
    }
  }
}

/** As COPY: what a folder holds, or a file into a folder or under another name. */
async function copy(source: string, words: readonly string[], target: string): Promise<void> {
  const destination = join(target, words.at(-1) ?? '');
  for (const word of words.slice(0, -1)) {
    const into = words.at(-1)?.endsWith('./') && word !== '.';
    await cp(join(source, word), into ? join(destination, basename(word)) : destination, { recursive: true });
  }
}

async function run(command: string, cwd: string): Promise<void> {
  // The system's own Node.js may be too old for the build.
  const path = [dirname(process.execPath), process.env['PATH']].join(delimiter);
  // npm need not fetch packages that are in its cache.
  const env = { ...process.env, PATH: path, npm_config_prefer_offline: 'true' };
  const child = spawn('sh', ['-c', command], { cwd, env, stdio: 'pipe' });
  const printed = Promise.all([text(child.stdout), text(child.stderr)]);
  const [status] = await once(child, 'exit');
  if (status !== 0) throw new Error(`RUN ${command} ended with ${status}:\n${(await printed).join('\n')}`);
}

async function runHealthcheck(control: string): Promise<{ status: number }> {
  const [, script = ''] = /CMD \["node", "-e", "(.*)"\]$/.exec(said('HEALTHCHECK')?.text ?? '') ?? [];
  const child = spawn(process.execPath, ['-e', script.replace('http://127.0.0.1:8081', control)], NOBODY);
  const [status] = await once(child, 'exit');
  return { status };
}

async function writeProtect(folder: string): Promise<void> {
  await run('chmod -R a-w,a+rX .', folder);
}

async function makeRemovable(folder: string): Promise<void> {
  await run('chmod -R u+w .', folder);
}
