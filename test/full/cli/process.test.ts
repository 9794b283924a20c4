import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import { text } from 'node:stream/consumers';
import { describe, expect, test } from '@jest/globals';
import { compileCache, PROGRAM, runProgram } from '../../support/program.ts';

// Behaviour that only a process of its own shows; other tests run commands in their own process.

const manifest = JSON.parse(await readFile('package.json', 'utf8')) as {
  version: string;
  engines: { node: string };
};

describe('the program', () => {
  test('prints a result on stdout, and ends with status 0', async () => {
    expect(await runProgram(['--version'])).toEqual({
      status: 0,
      stdout: `${manifest.version}\n`,
      stderr: '',
    });
  });

  test('prints an error on stderr, and ends with status 2', async () => {
    const { status, stdout, stderr } = await runProgram(['client', 'list', '--config', '/missing.yaml']);
    expect([status, stdout, stderr]).toEqual([
      2,
      '',
      '/missing.yaml:1:1 (file): there is no such file: name an existing one with --config\n',
    ]);
  });

  test('reads stdin and its environment', async () => {
    const config = `anonymous: true
credentials: { a: { username: { env: U }, password: { env: P } } }
deployments: { d: { baseUrl: "https://a.example", match: { pathPrefix: /a/ }, credential: a } }
`;
    const check = ['check', '--config', '-'];
    expect((await runProgram(check, { U: 'me', P: 'hunter2' }, [], config)).status).toBe(0);
    expect((await runProgram(check, { U: 'me' }, [], config)).stdout).toContain('credentials.a.password: ');
  });

  test.each([
    ['has nothing to find', ['config', 'schema']],
    // With status 0, a pipeline would go on with a configuration that is refused.
    ['finds something wrong', ['check', '--config', 'config/example.yaml']],
  ])('that %s ends with status 1 and silence when its reader closes the pipe', async (_case, args) => {
    const child = spawn(process.execPath, [PROGRAM, ...args], { env: compileCache });
    child.stdout.destroy();
    const [stderr, [status]] = await Promise.all([text(child.stderr), once(child, 'close')]);
    expect([status, stderr]).toEqual([1, '']);
  });
});

test.each([
  ['SIGHUP', 'serve', ['--config', '/missing.yaml']],
  ['SIGUSR2', 'serve', ['--config', '/missing.yaml']],
  ['SIGHUP', 'witness', ['--config', '/missing.yaml']],
  ['SIGUSR2', 'worker', []],
])('%s does not end %s while it is being loaded', async (signal, command, options) => {
  // Sends the signal when the entry asks for the first module: main.ts, or main.js of a build.
  const hook = `import { registerHooks } from 'node:module';
    registerHooks({
      load(url, context, next) {
        if (/\\/cli\\/main\\.ts$|\\/main\\.js$/.test(url)) {
          process.stderr.write('${signal} is sent\\n');
          process.kill(process.pid, '${signal}');
        }
        return next(url, context);
      },
    });`;
  const args = ['--import', `data:text/javascript,${encodeURIComponent(hook)}`];
  const { status, stderr } = await runProgram([command, ...options], {}, args);
  expect([status, stderr]).toEqual([2, expect.stringMatching(`^${signal} is sent\n[^]*"level":"error"`)]);
});

describe('a Node that is too old', () => {
  const pretend = (version: string) => [
    '--import',
    `data:text/javascript,Object.defineProperty(process,'versions',{value:{...process.versions,node:'${version}'}})`,
  ];

  test.each(['20.20.2', '8.17.0', '23.11.1'])('%s gets one sentence, and what to do', async (version) => {
    expect(await runProgram(['--version'], {}, pretend(version))).toEqual({
      status: 2,
      stdout: '',
      stderr: `digest-gateway needs Node.js 24 or newer; this is v${version}. Install a newer one from https://nodejs.org/, or, in a checkout, run it as: npm run -s gateway -- COMMAND\n`,
    });
  });

  test('the oldest that package.json allows is not too old', async () => {
    const oldest = manifest.engines.node.replace('>=', '');
    expect((await runProgram(['--version'], {}, pretend(`${oldest}.0.0`))).status).toBe(0);
  });

  test('the file that says so has only syntax that it can read', async () => {
    const source = await readFile('src/cli/digest-gateway.js', 'utf8');
    expect(source).not.toMatch(/^\s*import\s+[^(]|\bawait\b|\?\?|\?\./m);
  });
});
