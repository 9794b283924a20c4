import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { open, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { createInterface, type Interface } from 'node:readline';
import { afterEach, expect, test } from '@jest/globals';
import { stringify } from 'yaml';
import { useFolders } from '../support/audit-log.ts';
import { authors, startScene } from '../support/scene.ts';

const children: ChildProcess[] = [];

afterEach(async () => {
  for (const child of children.splice(0)) {
    if (child.exitCode !== null || child.signalCode !== null) continue;
    child.kill('SIGKILL');
    await once(child, 'exit');
  }
});
const makeFolder = useFolders();

interface Running {
  readonly child: ChildProcess;
  readonly stdout: Interface;
  readonly stderr: Interface;
}

/** The program as a user runs it, with the name in the arguments for this test alone. */
function run(...args: string[]): Running {
  const child = spawn(process.execPath, ['src/cli/digest-gateway.js', ...args], { stdio: 'pipe' });
  children.push(child);
  return { child, stdout: createInterface(child.stdout), stderr: createInterface(child.stderr) };
}

/** The first line from now on that the pattern matches; what its group holds. */
async function told(lines: Interface, pattern: RegExp): Promise<string> {
  const { promise, resolve, reject } = Promise.withResolvers<string>();
  const seen: string[] = [];
  lines.on('line', (line) => {
    seen.push(line);
    const match = pattern.exec(line);
    if (match !== null) resolve(match[1] ?? '');
  });
  lines.on('close', () => reject(new Error(`ended without ${pattern}:\n${seen.join('\n')}`)));
  return promise;
}

async function exitOf({ child }: Running): Promise<unknown> {
  return child.exitCode ?? (await once(child, 'exit'))[0];
}

test('demo shows restricted content for a plain request of each operation, and goes on serving', async () => {
  const demo = run('demo', '--free-ports');
  const seen: string[] = [];
  demo.stdout.on('line', (line) => seen.push(line));
  const origin = told(demo.stdout, /clients +(http:\S+)/);
  const control = told(demo.stdout, /control +(http:\S+)/);
  await told(demo.stdout, /^(Running)/);
  expect(seen.filter((line) => line.startsWith('200 '))).toEqual([
    '200 application/xml',
    '200 application/xml;charset=UTF-8',
  ]);
  expect(seen.filter((line) => line.startsWith('<response><status>SUCCESS'))).toHaveLength(2);
  expect((await fetch(`${await origin}${authors}`)).status).toBe(200);
  expect((await fetch(`${await control}/livez`)).status).toBe(200);
  demo.child.kill('SIGINT');
  expect(await exitOf(demo)).toBe(0);
});

test('simulate runs alone, tells where, and writes its authority beside its settings', async () => {
  const folder = await makeFolder();
  const file = join(folder, 'simulator.yaml');
  const deployments = 'deployments:\n  a: { kind: abstracts, family: abstracts, plaintext: true }\n';
  await writeFile(file, `caFile: ca.pem\n${deployments}`);
  const simulate = run('simulate', '--config', file);
  const origin = await told(simulate.stdout, /a +(http:\S+)/);
  expect((await fetch(origin)).status).toBe(401);
  expect(await readFile(join(folder, 'ca.pem'), 'utf8')).toContain('BEGIN CERTIFICATE');
  simulate.child.kill('SIGTERM');
  expect(await exitOf(simulate)).toBe(0);

  await writeFile(file, 'deployments:\n  a: { kind: abstracts, family: abstracts, nonceLifetime: 3 }\n');
  const wrong = run('simulate', '--config', file);
  expect(await told(wrong.stderr, /(the nearest key is nonceLifetimeMs)/)).toBeTruthy();
  expect(await exitOf(wrong)).toBe(2);
});

test('serve answers, reloads on SIGHUP, keeps the old configuration when the new one is wrong, and drains on SIGTERM', async () => {
  const { simulator } = await startScene();
  const folder = await makeFolder();
  const file = join(folder, 'gateway.yaml');
  await writeFile(join(folder, 'ca.pem'), simulator.ca);
  await writeFile(join(folder, 'password'), 'demo-api-key\n', { mode: 0o600 });
  const configuration = (pathPrefix: string): string =>
    stringify({
      listen: { port: 0 },
      control: { port: 0 },
      anonymous: true,
      drain: { delay: '0s' },
      log: { access: 'stdout' },
      credentials: { demo: { username: { value: 'demo-user' }, password: { file: 'password' } } },
      deployments: {
        submissions: {
          baseUrl: simulator.deployments.submissions.origin,
          match: { pathPrefix },
          credential: 'demo',
          tls: { caFile: 'ca.pem' },
        },
      },
    });
  await writeFile(file, configuration('/nowhere/'));

  const serve = run('serve', '--config', file);
  const origin = await told(serve.stderr, /"listen":"(http:[^"]+)"/);
  expect((await fetch(`${origin}${authors}`)).status).toBe(404);

  await writeFile(file, configuration('/api/'));
  serve.child.kill('SIGHUP');
  expect(await told(serve.stderr, /"level":"(\w+)",[^\n]*configuration reloaded/)).toBe('info');
  expect((await fetch(`${origin}${authors}`)).status).toBe(200);

  expect(await told(serve.stdout, /"GET (\S+) HTTP\/1\.1" 200 /)).toBe(authors.split('?')[0]);

  await writeFile(file, 'listen: 3\n');
  serve.child.kill('SIGHUP');
  expect(await told(serve.stderr, /(gateway\.yaml:1:9 .*keeping the current one)/)).toBeTruthy();
  expect((await fetch(`${origin}${authors}`)).status).toBe(200);

  serve.child.kill('SIGTERM');
  await told(serve.stderr, /("stopped")/);
  expect(await exitOf(serve)).toBe(0);
});

test.each(['SIGHUP', 'SIGUSR2'] as const)(
  'a start that reads its configuration outlives %s',
  async (signal) => {
    const folder = await makeFolder();
    const pipe = join(folder, 'gateway.yaml');
    execFileSync('mkfifo', [pipe]);
    const serve = run('serve', '--config', pipe);
    const issue = told(serve.stderr, /(deployments: is missing)/);
    // Opened when the program has opened the other end.
    const configuration = await open(pipe, 'w');
    serve.child.kill(signal);
    await configuration.writeFile('listen: { port: 0 }\n');
    await configuration.close();
    await issue;
    expect(await exitOf(serve)).toBe(2);
  },
);
