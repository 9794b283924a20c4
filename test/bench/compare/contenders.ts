import { existsSync } from 'node:fs';
import { chmod, readFile, writeFile } from 'node:fs/promises';
import { delimiter, join } from 'node:path';
import { runCommand } from '../../support/program.ts';
import { repository } from '../../support/repository.ts';
import { type Place, startServer } from '../../support/server-process.ts';
import { type Allocations, countedNode, readAllocations } from './allocations.ts';
import { builtGateway } from './built-gateway.ts';
import { DOCUMENTS, type DocumentName, QUERY } from './documents.ts';
import { type Durability, writeGatewayConfig } from './gateway-config.ts';
import { LoadConnections, type Question } from './load.ts';
import { apacheConfig, haproxyConfig, nginxConfig } from './server-configs.ts';
import type { BenchUpstream } from './upstream.ts';

/** A program that the benchmark measures. */
export interface Contender {
  readonly name: string;
  /**
   * digest: it answers the upstream's challenge; open: it gets the same documents without one; none: it has no
   * upstream.
   */
  readonly upstream: 'digest' | 'open' | 'none';
  /** It runs on Node.js: it gets quicker while its compilers see requests, and its allocations can be counted. */
  readonly onNode?: boolean;
  /** Fields of every request to it: names and values in turn. */
  readonly headers?: readonly string[];
  /** Measured only if it is asked for by name. */
  readonly onRequest?: boolean;
  /** Which program this is; undefined: it is not installed. */
  version(): Promise<string | undefined>;
  /** Writes its files; resolves to the command that runs it. */
  prepare(place: Place, upstream: BenchUpstream): Promise<readonly string[]>;
}

export interface RunningContender {
  readonly contender: Contender;
  /** The root of its processes. */
  readonly pid: number;
  question(document: DocumentName): Question;
  /** Bytes allocated so far. Only contenders on Node.js can tell. */
  allocations(): Promise<Allocations>;
  close(): Promise<void>;
}

/** Connections of a contender to the upstream, at most. */
const CONNECTIONS = 256;
const PEERS = join(repository, 'test/bench/peers');
/** The package installs no script, so its program stays where the one for this platform brings it. */
const BUN = join(
  PEERS,
  `node_modules/@oven/bun-linux-${process.arch === 'arm64' ? 'aarch64' : 'x64'}/bin/bun`,
);

export const CONTENDERS: readonly Contender[] = [
  gateway('gateway', 'write'),
  gateway('gateway-no-audit', undefined),
  gateway('gateway-async', 'async'),
  gateway('gateway-fsync', 'fsync'),
  goProxy('go-reverse-proxy', []),
  goProxy('go-plain', ['plain']),
  nodePeer('express-http-proxy.js', 'http-proxy', repository),
  nodePeer('http-proxy-middleware.js', 'http-proxy-middleware', PEERS),
  nodePeer('fastify-http-proxy.js', '@fastify/http-proxy', PEERS),
  {
    name: 'apache',
    upstream: 'open',
    version: () => versionOf('apache2', ['-v'], /Apache\/([\d.]+)/),
    prepare: async (place, upstream) => {
      const file = await writeConfig(place, apacheConfig(place, upstream, CONNECTIONS));
      return [programFile('apache2') ?? '', '-D', 'FOREGROUND', '-f', file];
    },
  },
  {
    name: 'haproxy',
    upstream: 'open',
    version: () => versionOf('haproxy', ['-v'], /version ([\d.]+)/),
    prepare: async (place, upstream) => {
      const file = await writeConfig(place, haproxyConfig(place, upstream, CONNECTIONS));
      return [programFile('haproxy') ?? '', '-db', '-f', file];
    },
  },
  {
    name: 'nginx',
    upstream: 'open',
    version: () => versionOf('nginx', ['-v'], /nginx\/([\d.]+)/),
    prepare: async (place, upstream) => {
      const file = await writeConfig(place, nginxConfig(place, upstream, CONNECTIONS));
      return [programFile('nginx') ?? '', '-e', 'stderr', '-c', file];
    },
  },
  { ...floor('node-undici', 'node-undici.ts', []), onRequest: true },
  floor('node-undici-held', 'node-undici.ts', ['held']),
  { ...floor('node-sockets', 'node-sockets.ts', []), onRequest: true },
  {
    name: 'bun-fetch',
    upstream: 'digest',
    onRequest: true,
    async version() {
      return existsSync(BUN) ? (await runCommand(BUN, ['--version'])).printed.trim() : undefined;
    },
    prepare: async ({ port }, { origin, caFile, username, password }) => [
      ...[BUN, join(PEERS, 'bun-fetch.ts')],
      ...[`${port}`, origin, caFile, `${CONNECTIONS}`, username, password],
    ],
  },
  {
    name: 'node-hello',
    upstream: 'none',
    onNode: true,
    version: async () => process.version,
    prepare: async ({ port }) => [
      ...[process.execPath, join(PEERS, 'node-hello.js')],
      ...[`${port}`, JSON.stringify(DOCUMENTS)],
    ],
  },
];

/**
 * Starts a contender; resolves when it has answered with the small document.
 * @param cores as taskset takes them; undefined: any
 */
export async function startContender(
  contender: Contender,
  upstream: BenchUpstream,
  cores: string | undefined,
): Promise<RunningContender> {
  const question = (port: number, document: DocumentName): Question => ({
    origin: `http://127.0.0.1:${port}`,
    path: `/${contender.upstream === 'digest' ? 'digest' : 'open'}/${document}${QUERY}`,
    length: DOCUMENTS[document],
    headers: contender.headers ?? [],
  });
  const server = await startServer({
    async prepare(place) {
      // Servers that root starts work as another user.
      await chmod(place.folder, 0o755);
      const command = await contender.prepare(place, upstream);
      const pinned = cores === undefined ? [] : ['taskset', '-c', cores];
      const counted = contender.onNode === true ? countedNode(place.folder) : [];
      return [...pinned, ...counted, ...command];
    },
    answers: ({ port }) => isAnswered(question(port, '2KB')),
  });
  return {
    contender,
    pid: await server.pid(),
    question: (document) => question(server.place.port, document),
    allocations: () => readAllocations(server.place.folder),
    close: () => server.close(),
  };
}

async function isAnswered(question: Question): Promise<boolean> {
  try {
    const load = await LoadConnections.open(question, 1);
    await load.close();
    return true;
  } catch {
    return false;
  }
}

/** Names of the gateway of another checkout, such as that of the commit before a change. */
export const BEFORE = ['before', 'before-no-audit'] as const;

export function gatewaysBefore(checkout: string): readonly Contender[] {
  const [audited, unaudited] = BEFORE;
  return [gateway(audited, 'write', checkout), gateway(unaudited, undefined, checkout)];
}

function gateway(name: string, durability: Durability | undefined, checkout?: string): Contender {
  return {
    name,
    upstream: 'digest',
    onNode: true,
    onRequest: durability === 'async' || durability === 'fsync',
    version: async () => process.version,
    prepare: async (place, upstream) => [
      ...(await builtGateway(checkout)),
      ...['serve', '--config'],
      await writeGatewayConfig(place, upstream, CONNECTIONS, durability),
    ],
  };
}

/** Go's reverse proxy with a Digest transport, tuned or as the usual ones are. */
function goProxy(name: string, mode: readonly string[]): Contender {
  return {
    name,
    upstream: 'digest',
    version: () => versionOf('go', ['version'], /go(\d[\d.]*)/),
    prepare: async ({ port }, upstream) => [
      await buildGo(),
      ...[`${port}`, upstream.origin, upstream.caFile, `${CONNECTIONS}`],
      ...[upstream.username, upstream.password, ...mode],
    ],
  };
}

/** A proxy on Node.js that a package brings. */
function nodePeer(file: string, dependency: string, folder: string): Contender {
  return {
    name: file.replace(/\.\w+$/, ''),
    upstream: 'open',
    onNode: true,
    async version() {
      const manifest = join(folder, 'node_modules', dependency, 'package.json');
      return existsSync(manifest) ? JSON.parse(await readFile(manifest, 'utf8')).version : undefined;
    },
    prepare: async ({ port }, { origin, caFile }) => [
      // express is quicker then.
      ...['env', 'NODE_ENV=production', process.execPath],
      ...[join(PEERS, file), `${port}`, origin, caFile, `${CONNECTIONS}`],
    ],
  };
}

/** Floors: the least that a Digest gateway on this Node.js costs, with undici or without. */
function floor(name: string, file: string, mode: readonly string[]): Contender {
  return {
    name,
    upstream: 'digest',
    onNode: true,
    version: async () => process.version,
    prepare: async ({ port }, { origin, caFile, username, password }) => [
      ...[process.execPath, join(PEERS, file)],
      ...[`${port}`, origin, caFile, `${CONNECTIONS}`, username, password, ...mode],
    ],
  };
}

/** Go compiles what has changed since the last time. */
async function buildGo(): Promise<string> {
  const program = join(PEERS, 'build/go-reverse-proxy');
  const build = 'cd "$0" && exec go build -buildvcs=false -o "$1" .';
  const { status, printed } = await runCommand('sh', ['-c', build, join(PEERS, 'go'), program]);
  if (status !== 0) throw new Error(`Go did not compile test/bench/peers/go:\n${printed}`);
  return program;
}

async function writeConfig({ folder }: Place, text: string): Promise<string> {
  const file = join(folder, 'server.conf');
  await writeFile(file, text);
  return file;
}

async function versionOf(
  name: string,
  args: readonly string[],
  pattern: RegExp,
): Promise<string | undefined> {
  const program = programFile(name);
  if (program === undefined) return undefined;
  const { printed } = await runCommand(program, args);
  return pattern.exec(printed)?.[1];
}

/** Where a program is; servers are not on everybody's PATH. */
function programFile(name: string): string | undefined {
  const folders = [...(process.env['PATH'] ?? '').split(delimiter), '/usr/sbin', '/sbin'];
  return folders.map((folder) => join(folder, name)).find((file) => existsSync(file));
}
