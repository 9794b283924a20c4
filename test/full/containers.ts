import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { cp, mkdir, mkdtemp, readFile, realpath, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { basename, dirname, join } from 'node:path';
import { promisify } from 'node:util';
import { repository } from '../support/repository.ts';
import { needPackages } from '../support/system-packages.ts';

const execute = promisify(execFile);

/** Without systemd and a journal, and with limits that need no more privileges than the tests have. */
const CONFIGURATION = `
[containers]
default_ulimits = ["nofile=4096:4096", "nproc=4096:4096"]
log_driver = "k8s-file"
[engine]
cgroup_manager = "cgroupfs"
events_logger = "none"
runtime = "runc"
`;

/**
 * Waits for the end of stdin, which comes even when the test's process is killed, and for commands that still run.
 * Then it removes everything.
 */
const KEEPER = `
cat >/dev/null
flock "$0/lock" true
remove() { podman "$@" rm --all --force --time 0 >/dev/null 2>&1; }
# A container whose network others share can be removed after them only.
remove "$@" || remove "$@"
# A build that fails leaves it, and the system may still hold it after the last container.
umount --recursive --lazy "$0/root/overlay" 2>/dev/null
rm -rf "$0"
`;

/** Milliseconds; a build takes a tenth of it. */
const LIMIT_MS = 900_000;
const OUTPUT_LIMIT_BYTES = 64 * 1024 * 1024;

export interface NewImage {
  /** Programs of the system, which come with the libraries that they load. */
  readonly programs: readonly string[];
  /** Instructions of a Dockerfile, as `USER 1000`. */
  readonly changes?: readonly string[];
  /** Puts more files into the root of the image. */
  fill?(root: string): Promise<void>;
}

/** podman with images, containers and volumes of its own. */
export interface ContainerEngine {
  /** A folder for files that containers mount. */
  readonly folder: string;
  /**
   * Runs podman to its end; resolves to what it printed on stdout.
   * @throws Error with what it printed when the status is not 0
   */
  podman(...args: readonly string[]): Promise<string>;
  /** Runs the program with arguments in a new container until it ends; resolves to its stdout. */
  run(...args: readonly string[]): Promise<string>;
  /** Starts a container that goes on. */
  start(name: string, ...args: readonly string[]): Promise<void>;
  /** The text that a container printed on stderr. */
  logs(name: string): Promise<string>;
  /** Whether the command ends with status 0. */
  succeeds(...args: readonly string[]): Promise<boolean>;
  /** Makes an image without a registry. */
  importImage(name: string, image: NewImage): Promise<void>;
  /** Builds the image of a Dockerfile; npm in it fetches as npm of this system does. */
  build(context: string, ...args: readonly string[]): Promise<void>;
  /** Size of an image and of all images below it, in bytes. */
  size(image: string): Promise<number>;
  /** Ends and removes everything. */
  close(): Promise<void>;
}

/** Prepares an engine; nothing runs until its first command. */
export async function startContainerEngine(): Promise<ContainerEngine> {
  needPackages('podman', 'runc', 'util-linux');
  const folder = await mkdtemp(join(tmpdir(), 'containers-'));
  await writeFile(join(folder, 'containers.conf'), CONFIGURATION);
  const env = { ...process.env, CONTAINERS_CONF: join(folder, 'containers.conf') };
  // Without systemd, podman says on every start that it cannot run health checks by itself.
  const own = [
    '--log-level=fatal',
    ...['root', 'runroot', 'tmpdir'].map((name) => `--${name}=${join(folder, name)}`),
  ];
  const keeper = spawn('sh', ['-c', KEEPER, folder, ...own], {
    env,
    detached: true,
    stdio: ['pipe', 'ignore', 'inherit'],
  });
  const removed = once(keeper, 'exit');
  // Shared by commands, and not held by the containers that they start.
  const locked = ['--shared', '--close', join(folder, 'lock')];
  const options = { env, maxBuffer: OUTPUT_LIMIT_BYTES, timeout: LIMIT_MS };
  const execution = (...args: readonly string[]) =>
    execute('flock', [...locked, 'podman', ...own, ...args], options);
  const podman = async (...args: readonly string[]): Promise<string> => (await execution(...args)).stdout;
  return {
    folder,
    podman,
    run: (...args) => podman('run', '--rm', '--pull=never', ...args),
    async start(name, ...args) {
      await podman('run', '--detach', '--pull=never', `--name=${name}`, ...args);
    },
    logs: async (name) => (await execution('logs', name)).stderr,
    succeeds: (...args) =>
      podman(...args).then(
        () => true,
        () => false,
      ),
    async importImage(name, { programs, changes = [], fill }) {
      const root = await mkdtemp(join(folder, 'image-'));
      await execute('sh', [join(repository, 'test/full/program-files.sh'), root, ...programs]);
      await fill?.(root);
      await execute('tar', ['-C', root, '-cf', `${root}.tar`, '.']);
      await podman(
        'import',
        '--quiet',
        ...changes.map((change) => `--change=${change}`),
        `${root}.tar`,
        name,
      );
    },
    async build(context, ...args) {
      const npm = await npmAccess(folder);
      const how = [
        '--isolation=chroot',
        '--network=host',
        '--layers=false',
        '--format=docker',
        '--pull-never',
      ];
      await podman('build', '--quiet', ...how, ...npm, ...args, context);
    },
    size: async (image) => Number(await podman('image', 'inspect', '--format={{.Size}}', image)),
    async close() {
      keeper.stdin.end();
      await removed;
    },
  };
}

/** An image with Node.js of the tests and npm of the system, in place of the one that the Dockerfile names. */
export const nodeImage: NewImage = {
  programs: ['sh', 'env', 'mkdir', process.execPath],
  changes: ['ENV PATH=/usr/local/bin:/usr/bin:/bin'],
  async fill(root) {
    const { stdout } = await execute('sh', ['-c', 'command -v npm']);
    const program = await realpath(stdout.trim());
    const npm = dirname(dirname(program));
    await cp(npm, join(root, 'usr/lib/npm'), { recursive: true });
    await symlink(`../lib/npm/bin/${basename(program)}`, join(root, 'usr/bin/npm'));
    await mkdir(join(root, 'root'), { mode: 0o700 });
    await writeFile(join(root, 'etc/passwd'), 'root:x:0:0::/root:/bin/sh\nnode:x:1000:1000::/:/bin/sh\n');
    await writeFile(join(root, 'etc/group'), 'root:x:0:\nnode:x:1000:\n');
  },
};

/** Mounts for a build: the configuration of npm, its cache, and the authorities that it trusts beside Node's own. */
async function npmAccess(folder: string): Promise<string[]> {
  const { stdout } = await execute('npm', ['config', 'list', '--json'], { cwd: repository });
  const { cache, globalconfig, userconfig, cafile } = JSON.parse(stdout);
  const files = [globalconfig, userconfig].map((name) => readFile(name, 'utf8').catch(() => ''));
  const lines = [...(await Promise.all(files)), 'prefer-offline=true'];
  const mounts = [`--volume=${cache}:/root/.npm`];
  const authorities: string | undefined = cafile ?? process.env['NODE_EXTRA_CA_CERTS'];
  if (authorities !== undefined) {
    lines.push('cafile=/root/authorities.pem');
    mounts.push(`--volume=${authorities}:/root/authorities.pem:ro`);
  }
  const npmrc = join(folder, 'npmrc');
  await writeFile(npmrc, `${lines.join('\n')}\n`, { mode: 0o600 });
  await mkdir(cache, { recursive: true });
  return [...mounts, `--volume=${npmrc}:/root/.npmrc:ro`];
}
