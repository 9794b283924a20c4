import { chown, mkdir, readFile, writeFile } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { parse } from 'yaml';
import { lockedPackages } from '../../build/shipped.ts';
import { repository } from '../support/repository.ts';
import { authors } from '../support/scene.ts';
import { until } from '../support/until.ts';
import { type ContainerEngine, type NewImage, nodeImage, startContainerEngine } from './containers.ts';
import type { RequestLoopResult } from './request-loop.ts';

const MIB = 1024 * 1024;
const SIZE_LIMIT_BYTES = 200_000_000;
const MEMORY_LIMIT_BYTES = 256 * MIB;
const REQUESTS = 2000;
/** How long the upstream holds the request that is under way at SIGTERM: enough to send the signal. */
const SLOW_MS = 4000;

const { devDependencies, dependencies, version } = JSON.parse(
  await readFile(join(repository, 'package.json'), 'utf8'),
);
const base = `node:${devDependencies.node}-slim`;

/** The most memory that a container has used, in bytes: control groups version 2, or 1. */
const MEMORY_PEAK_FILES = ['/sys/fs/cgroup/memory.peak', '/sys/fs/cgroup/memory/memory.max_usage_in_bytes'];
const PASSWORD = 'demo-api-key';
const SIDE_PORT = 'http://127.0.0.1:9480';
const CONFIG_FILE = '/etc/digest-gateway/gateway.yaml';
const CONFIG = `
anonymous: true
listen: { port: 8080 }
control: { port: 8081 }
drain: { delay: 0s }
audit: { directory: /var/lib/digest-gateway/audit, keyFile: /run/secrets/audit-key }
credentials: { demo: { username: { value: demo-user }, password: { file: /run/secrets/password } } }
deployments:
  submissions:
    baseUrl: https://127.0.0.1:9443
    match: { pathPrefix: / }
    credential: demo
    tls: { caFile: /run/simulator/ca.pem, serverName: simulator }
`;

/** Arguments of Node.js that print what an expression is, as JSON. */
function evaluation(expression: string): string[] {
  const program = `import fs from 'node:fs'; import os from 'node:os'; process.stdout.write(JSON.stringify(${expression}))`;
  return ['--input-type=module', '--eval', program];
}

describe('the Dockerfile', () => {
  test('takes nothing from another image than NODE_IMAGE, which can be given by digest', async () => {
    const lines = (await readFile(join(repository, 'Dockerfile'), 'utf8')).split('\n');
    expect(lines.filter((line) => /^ARG\b/i.test(line))).toEqual([`ARG NODE_IMAGE=${base}`]);
    const bases = lines.filter((line) => /^FROM\b/i.test(line));
    const image = `$${'{NODE_IMAGE}'}`;
    expect(bases).toEqual([`FROM --platform=$BUILDPLATFORM ${image} AS build`, `FROM ${image}`]);
    for (const [, from] of lines.join('\n').matchAll(/\bfrom=([^\s,]+)/g)) expect(from).toBe('build');
    // A frontend would be one more image, by tag, that runs in the build.
    expect(lines.filter((line) => /^ADD\b|^#\s*(syntax|escape)\s*=/i.test(line))).toEqual([]);
  });
});

let engine: ContainerEngine;
beforeAll(async () => {
  engine = await startContainerEngine();
  await engine.importImage(`docker.io/library/${base}`, nodeImage);
  await engine.build(repository, '--tag=digest-gateway');
}, 900_000);
afterAll(() => engine.close());

/** The value of an expression in a running container. */
async function execute(name: string, expression: string): Promise<unknown> {
  return JSON.parse(await engine.podman('exec', name, 'node', ...evaluation(expression)));
}

describe('the image', () => {
  beforeAll(startSimulatorContainer, 300_000);

  /** The value of an expression in a new container of the image, or of another one. */
  async function evaluate(expression: string, image = 'digest-gateway'): Promise<unknown> {
    return JSON.parse(
      await engine.run('--network=none', '--entrypoint=["node"]', image, ...evaluation(expression)),
    );
  }

  test('the build sees nothing of tests, documents and history', async () => {
    const file = join(engine.folder, 'Dockerfile');
    await writeFile(file, `FROM ${base}\nCOPY . /context\n`);
    await engine.build(repository, `--file=${file}`, '--tag=context');
    const context = await evaluate('fs.readdirSync("/context")', 'context');
    expect(context).toEqual(expect.arrayContaining(['package.json', 'package-lock.json', 'src', 'config']));
    for (const name of ['.git', 'test', 'node_modules', 'docs', 'deploy', 'dist', 'secrets']) {
      expect(context).not.toContain(name);
    }
  });

  test('holds what runs, and no package of development', async () => {
    expect(await evaluate('fs.readdirSync("/app").sort()')).toEqual([
      'LICENSE',
      'config',
      'dist',
      'node_modules',
      'package.json',
    ]);
    const files = await evaluate('fs.readdirSync("/app/node_modules", { recursive: true })');
    const installed = new Set(files as string[]);
    const has = (name: string): boolean => installed.has(`${name}/package.json`);
    expect(Object.keys(dependencies).filter((name) => !has(name))).toEqual([]);
    const locked = lockedPackages();
    const ofDevelopment = Object.keys(devDependencies).filter((name) => locked[`node_modules/${name}`]?.dev);
    expect(ofDevelopment).toContain('jest');
    expect(ofDevelopment.filter(has)).toEqual([]);
  });

  test('adds less than 200 MB to its base', async () => {
    const added = (await engine.size('digest-gateway')) - (await engine.size(base));
    process.stdout.write(`The image adds ${(added / 1e6).toFixed(1)} MB to its base.\n`);
    expect(added).toBeGreaterThan(0);
    expect(added).toBeLessThan(SIZE_LIMIT_BYTES);
  });

  test('says its version, and runs the demo from its own files', async () => {
    expect(await engine.run('--network=none', 'digest-gateway', '--version')).toBe(`${version}\n`);
    await engine.start('demo', '--network=none', 'digest-gateway', 'demo');
    await until(async () => (await engine.podman('logs', 'demo')).includes('Running'));
    await engine.podman('stop', '--time=60', 'demo');
    expect(await engine.podman('wait', 'demo')).toBe('0\n');
  });

  test.each([
    ['SIGINT', 130],
    ['SIGTERM', 143],
  ])('a command that waits ends at %s', async (signal, status) => {
    const name = `waits-for-${signal}`;
    await engine.start(name, '--network=none', '--interactive', 'digest-gateway', 'check', '--config=-');
    await until(async () => {
      // One that comes before the program runs is lost.
      await engine.succeeds('kill', `--signal=${signal}`, name);
      return (await engine.podman('inspect', '--format={{.State.Running}}', name)) === 'false\n';
    });
    expect(await engine.podman('wait', name)).toBe(`${status}\n`);
  });

  test('serves with few privileges and 256 MiB, and drains at SIGTERM', async () => {
    await startGatewayContainer('gateway');
    const status = await execute('gateway', 'fs.readFileSync("/proc/1/status", "utf8")');
    expect(status).toMatch(/^Uid:\t1000\t1000\t1000\t1000$/m);
    expect(status).toMatch(/^CapBnd:\t0+$/m);
    expect(status).toMatch(/^NoNewPrivs:\t1$/m);
    for (const folder of ['/app', '/tmp']) {
      const write = `import('node:fs/promises').then((fs) => fs.writeFile('${folder}/new', ''))`;
      expect(await execute('gateway', `await ${write}.catch(({ code }) => code)`)).toBe('EROFS');
    }

    const { statuses, content, milliseconds } = await sendRequests(REQUESTS);
    expect(statuses).toEqual({ 200: REQUESTS });
    expect(content).toContain('DEMO-2026-0001');
    const peak = Number(
      await execute(
        'gateway',
        `fs.readFileSync(${JSON.stringify(MEMORY_PEAK_FILES)}.find(fs.existsSync), "utf8")`,
      ),
    );
    process.stdout.write(
      `${REQUESTS} requests in ${milliseconds.toFixed(0)} ms; ${(peak / MIB).toFixed(0)} MiB at most.\n`,
    );
    expect(await engine.podman('inspect', '--format={{.State.OOMKilled}}', 'gateway')).toBe('false\n');

    await setFault({ kind: 'delay', ms: SLOW_MS, when: 'authenticated' });
    const before = await upstreamRequests();
    const slow = sendRequests(1);
    await until(async () => (await upstreamRequests()) > before);
    await engine.podman('stop', '--time=60', 'gateway');
    expect((await slow).statuses).toEqual({ 200: 1 });
    expect(await engine.podman('wait', 'gateway')).toBe('0\n');
    expect(await engine.logs('gateway')).not.toContain(PASSWORD);
  });

  test('a new container continues the audit log of the one before', async () => {
    await startGatewayContainer('first');
    expect((await sendRequests(1)).statuses).toEqual({ 200: 1 });
    await engine.podman('stop', '--time=60', 'first');
    await startGatewayContainer('next');
    expect((await sendRequests(1)).statuses).toEqual({ 200: 1 });
    const verify = ['/app/dist/cli/digest-gateway.js', 'audit', 'verify', '--json'];
    const verified = await engine.podman('exec', 'next', 'node', ...verify, '--config', CONFIG_FILE);
    expect(JSON.parse(verified)).toMatchObject({ ok: true, replicas: 1 });
    await engine.podman('stop', '--time=60', 'next');
    const names = 'fs.readdirSync("/var/lib/digest-gateway/audit")';
    const state = ['--network=none', '--volume=state:/var/lib/digest-gateway:ro', '--entrypoint=["node"]'];
    const listed = await engine.run(
      ...state,
      'digest-gateway',
      ...evaluation(`[...${names}, os.hostname()]`),
    );
    expect(JSON.parse(listed)).toEqual(['gateway', expect.stringMatching(/^[0-9a-f]{12}$/)]);
  });

  test('the health check fails where nothing listens', async () => {
    const idle = ['--network=none', '--entrypoint=["node", "--eval", "setInterval(() => 0, 1e6)"]'];
    await engine.start('idle', ...idle, 'digest-gateway');
    expect(await engine.succeeds('healthcheck', 'run', 'idle')).toBe(false);
  });

  /** The upstream, as the Compose file has it. The others share its network, which is one loopback. */
  async function startSimulatorContainer(): Promise<void> {
    const settings = join(repository, 'deploy/compose/simulator.yaml');
    await engine.start(
      'simulator',
      '--network=none',
      `--volume=${settings}:/simulator.yaml:ro`,
      '--volume=upstream:/var/lib/digest-gateway',
      ...['digest-gateway', 'simulate', '--config=/simulator.yaml'],
    );
    await until(async () => (await engine.podman('logs', 'simulator')).includes('side port'));
  }

  /** A gateway that is ready; another one has to be stopped, as they have one loopback. */
  async function startGatewayContainer(name: string): Promise<void> {
    const secrets = join(engine.folder, 'secrets');
    await mkdir(secrets, { mode: 0o700, recursive: true });
    await writeFile(join(secrets, 'password'), PASSWORD, { mode: 0o600 });
    await writeFile(join(secrets, 'audit-key'), '5f'.repeat(32), { mode: 0o600 });
    const config = join(engine.folder, 'gateway.yaml');
    await writeFile(config, CONFIG);
    await engine.start(
      name,
      ...['--network=container:simulator', '--volume=upstream:/run/simulator:ro'],
      ...['--read-only', '--read-only-tmpfs=false', '--cap-drop=all', '--security-opt=no-new-privileges'],
      ...[`--memory=${MEMORY_LIMIT_BYTES}`, `--memory-swap=${MEMORY_LIMIT_BYTES}`],
      // U: they become files of the user of the image.
      `--volume=${secrets}:/run/secrets:ro,U`,
      `--volume=${config}:${CONFIG_FILE}:ro`,
      '--volume=state:/var/lib/digest-gateway',
      'digest-gateway',
    );
    await until(() => engine.succeeds('healthcheck', 'run', name));
  }

  /** Sends requests to the gateway from a container beside it. */
  async function sendRequests(count: number): Promise<RequestLoopResult> {
    const program = join(repository, 'test/full/request-loop.ts');
    const printed = await engine.run(
      ...['--network=container:simulator', `--volume=${program}:/client/request-loop.ts:ro`, base],
      ...['node', '/client/request-loop.ts', `http://127.0.0.1:8080${authors}`, String(count)],
    );
    return JSON.parse(printed);
  }

  async function setFault(fault: object): Promise<void> {
    const request = JSON.stringify({ method: 'PUT', body: JSON.stringify({ faults: [fault] }) });
    const ok = await execute(
      'simulator',
      `(await fetch("${SIDE_PORT}/deployments/submissions", ${request})).ok`,
    );
    expect(ok).toBe(true);
  }

  async function upstreamRequests(): Promise<number> {
    const counts = `await fetch('${SIDE_PORT}/counts').then((response) => response.json())`;
    return Number(await execute('simulator', `(${counts}).submissions.requests`));
  }
});

describe('the services of Compose that Debian has programs for', () => {
  const NAMES = ['redis', 'simulator', 'gateway', 'prometheus'] as const;
  /** Redis and Prometheus of the system in images that are named as the Compose file names theirs. */
  const images: Record<string, NewImage> = {
    redis: { programs: ['redis-server', 'redis-cli'] },
    prometheus: {
      programs: ['prometheus'],
      changes: ['ENTRYPOINT ["prometheus"]', 'USER 65534'],
      async fill(root) {
        await mkdir(join(root, 'prometheus'));
        await chown(join(root, 'prometheus'), 65_534, 65_534);
      },
    },
  };

  test('serve a request with a shared challenge, and Prometheus scrapes the gateway', async () => {
    const { services } = parse(await readFile(join(repository, 'docker-compose.yml'), 'utf8'));
    for (const [name, image] of Object.entries(images)) {
      await engine.importImage(fullName(services[name].image), image);
    }
    const hosts = join(engine.folder, 'hosts');
    await writeFile(hosts, `127.0.0.1 localhost ${NAMES.join(' ')}\n`);
    for (const [index, name] of NAMES.entries()) {
      const network = index === 0 ? '--network=none' : `--network=container:compose-${NAMES[0]}`;
      const options = [network, `--volume=${hosts}:/etc/hosts:ro`, ...(await optionsOf(services[name]))];
      const command: string[] = services[name].command ?? [];
      await engine.start(`compose-${name}`, ...options, fullName(services[name].image), ...command);
      await until(() => isHealthy(name, services[name]));
    }
    await until(async () => (await textAt('http://gateway:8081/readyz?verbose')).endsWith('\nok\n'));
    const [, asked = ''] =
      /(\/api\/\S+?)"/.exec(await readFile(join(repository, 'docker-compose.yml'), 'utf8')) ?? [];
    expect(await textAt(`http://gateway:8080${asked}`)).toContain('A-1001');
    expect(Number(await engine.podman('exec', 'compose-redis', 'redis-cli', 'dbsize'))).toBeGreaterThan(0);
    await until(async () => {
      const found = JSON.parse(await textAt('http://prometheus:9090/api/v1/query?query=up'));
      const [series] = found.data.result;
      return series?.metric.job === 'digest-gateway' && series.value[1] === '1';
    });
    await engine.podman('stop', '--time=60', ...NAMES.map((name) => `compose-${name}`));
    expect(await engine.podman('wait', 'compose-gateway')).toBe('0\n');
  });

  /** Runs the health check of the Compose file, or that of the image, if there is one. */
  async function isHealthy(name: string, { healthcheck, build }: ComposeService): Promise<boolean> {
    const container = `compose-${name}`;
    if (healthcheck !== undefined) return engine.succeeds('exec', container, ...healthcheck.test.slice(1));
    return build === undefined || engine.succeeds('healthcheck', 'run', container);
  }

  /** The content of a URL, as another service sees it. */
  async function textAt(url: string): Promise<string> {
    const text = `await fetch('${url}').then((response) => response.text())`;
    return String(await execute('compose-simulator', text));
  }

  /** The settings of a service as options of podman, but for ports, dependencies and restarts. */
  async function optionsOf(service: ComposeService): Promise<string[]> {
    const { environment = {}, volumes = [], tmpfs = [], user } = service;
    return [
      ...service.cap_drop.map((name) => `--cap-drop=${name}`),
      // Docker mounts nothing writable beside what the service lists, either.
      ...(service.read_only === true ? ['--read-only', '--read-only-tmpfs=false'] : []),
      ...service.security_opt.map((option) => `--security-opt=${option.replace(/:true$/, '')}`),
      ...Object.entries(environment).map(([name, value]) => `--env=${name}=${value}`),
      ...(await Promise.all(volumes.map(mountOf))).map((mount) => `--volume=${mount}`),
      ...tmpfs.map((folder) => `--tmpfs=${folder}`),
      ...(user === undefined ? [] : [`--user=${user}`]),
    ];
  }

  /** A mount of a file here. Clients come from the one loopback, and Prometheus scrapes more often. */
  async function mountOf(mount: string): Promise<string> {
    const [source = '', ...rest] = mount.split(':');
    if (!source.startsWith('./')) return mount;
    const text = await readFile(join(repository, source), 'utf8').catch(() => '');
    const changed = text
      .replace('identify: { addresses: [', 'identify: { addresses: [127.0.0.0/8, ')
      .replace('scrape_interval: 15s', 'scrape_interval: 1s');
    if (changed === text) return [join(repository, source), ...rest].join(':');
    const file = join(engine.folder, `compose-${basename(source)}`);
    await writeFile(file, changed);
    return [file, ...rest].join(':');
  }
});

interface ComposeService {
  readonly build?: unknown;
  readonly cap_drop: readonly string[];
  readonly security_opt: readonly string[];
  readonly read_only?: boolean;
  readonly environment?: Readonly<Record<string, string>>;
  readonly volumes?: readonly string[];
  readonly tmpfs?: readonly string[];
  readonly user?: string;
  readonly healthcheck?: { readonly test: readonly string[] };
}

/** The name of an image with the registry that Docker takes it from. */
function fullName(image: string): string {
  if (image === 'digest-gateway') return image;
  return image.includes('/') ? `docker.io/${image}` : `docker.io/library/${image}`;
}
