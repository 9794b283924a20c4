import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { stringify } from 'yaml';
import { metricOf } from './metric.ts';

const PROGRAM = fileURLToPath(new URL('../../src/cli/digest-gateway.js', import.meta.url));

export interface ServedGateway {
  /** `http://127.0.0.1:PORT` of the data plane. */
  readonly origin: string;
  /** `http://127.0.0.1:PORT` of the control plane. */
  readonly control: string;
  /** The sum of a metric over all series that have these labels. */
  metric(name: string, labels?: Record<string, string>): Promise<number>;
  /** Resident memory of the process in bytes: now, and at its highest so far. Linux only. */
  memory(): Promise<{ now: number; peak: number }>;
  readonly pid: number;
  /** The configuration that it reads. */
  readonly configFile: string;
  /** Every line on stderr so far. */
  readonly printed: readonly string[];
  /** Those of them that are the gateway's, parsed. */
  readonly logged: Record<string, unknown>[];
  /** Ends the process without a chance to leave anything behind (SIGKILL). */
  kill(): Promise<void>;
  /** Ends it as an orchestrator does (SIGTERM). Can be called again. */
  drain(): Promise<void>;
  /** Ends it as Ctrl-C does (SIGINT): requests under way are finished, nothing is waited for. Can be called again. */
  close(): Promise<void>;
}

export interface ServedUpstream {
  readonly origin: string;
  /** PEM. */
  readonly ca: string;
  readonly settings?: Record<string, unknown>;
}

/** `digest-gateway serve` in a process of its own, with one deployment for every path. */
export async function serveGateway(
  { origin, ca, settings = {} }: ServedUpstream,
  top: Record<string, unknown> = {},
  /** A command that runs the program, itself in the process that it is given. */
  runner: readonly string[] = [],
): Promise<ServedGateway> {
  const folder = await mkdtemp(join(tmpdir(), 'gateway-'));
  const config = {
    listen: { port: 0 },
    control: { port: 0 },
    anonymous: true,
    credentials: { demo: { username: { value: 'demo-user' }, password: { value: 'demo-api-key' } } },
    deployments: {
      upstream: {
        baseUrl: origin,
        match: { pathPrefix: '/' },
        credential: 'demo',
        tls: { caFile: 'ca.pem' },
        ...settings,
      },
    },
    ...top,
  };
  await writeFile(join(folder, 'ca.pem'), ca);
  await writeFile(join(folder, 'gateway.yaml'), stringify(config));
  // As an installed program, with the flags of its first line.
  const [command = PROGRAM, ...args] = [
    ...runner,
    PROGRAM,
    'serve',
    '--config',
    join(folder, 'gateway.yaml'),
  ];
  const child = spawn(command, args, {
    stdio: ['ignore', 'ignore', 'pipe'],
  });
  const ended = once(child, 'close');
  const printed: string[] = [];
  const logged: Record<string, unknown>[] = [];
  const end = async (signal: NodeJS.Signals): Promise<void> => {
    child.kill(signal);
    await ended;
    await rm(folder, { recursive: true, force: true });
  };
  const close = (): Promise<void> => end('SIGINT');
  const up = await new Promise<{ listen: string; control: string }>((resolve, reject) => {
    createInterface(child.stderr)
      .on('line', (line) => {
        printed.push(line);
        // Node.js itself says things, too.
        if (!line.startsWith('{')) return;
        const entry = JSON.parse(line);
        logged.push(entry);
        const { listen, control } = entry;
        if (typeof listen === 'string') resolve({ listen, control });
      })
      .on('close', () => reject(new Error(`The gateway did not start:\n${printed.join('\n')}`)));
  }).catch(async (error) => {
    await close();
    throw error;
  });
  return {
    origin: up.listen,
    control: up.control,
    metric: (name, labels = {}) => metricOf(up.control, name, labels),
    memory: async () => {
      const status = await readFile(`/proc/${child.pid}/status`, 'utf8');
      const bytes = (name: string) =>
        Number(new RegExp(`^${name}:\\s+(\\d+) kB$`, 'm').exec(status)?.[1]) * 1024;
      return { now: bytes('VmRSS'), peak: bytes('VmHWM') };
    },
    pid: child.pid ?? 0,
    configFile: join(folder, 'gateway.yaml'),
    printed,
    logged,
    kill: () => end('SIGKILL'),
    drain: () => end('SIGTERM'),
    close,
  };
}
