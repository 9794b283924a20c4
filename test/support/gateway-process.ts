import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { metricOf, type TestDeployment, type TopLevel, writeConfig } from './gateway.ts';
import { compileCache, PROGRAM } from './program.ts';

/** `digest-gateway serve` in a process of its own. Disposal ends the process, then removes its folder. */
export interface GatewayProcess extends AsyncDisposable {
  /** `http://127.0.0.1:PORT` of the data plane, of its first listener. */
  readonly origin: string;
  /** The same of each listener; `unix:` and the path of a UNIX socket. */
  readonly listening: readonly string[];
  /** `http://127.0.0.1:PORT` of the control plane. */
  readonly control: string;
  readonly pid: number;
  /** The configuration that it reads. */
  readonly configFile: string;
  /** Every line on stderr so far. */
  readonly printed: readonly string[];
  /** The log lines among them, parsed. */
  readonly logged: Record<string, unknown>[];
  /** Reads no more of stderr until `readLog`. */
  pauseLog(): void;
  readLog(): void;
  /** Resolves to the exit status when the process has ended; undefined: a signal ended it. */
  readonly ended: Promise<number | undefined>;
  /** The sum of a metric over all series that have these labels. */
  metric(name: string, labels?: Record<string, string>): Promise<number>;
  /** Resident memory of the process in bytes: now, and its peak. Linux only. */
  memory(): Promise<{ now: number; peak: number }>;
  /** Process ids of the workers that are there now. Linux only. */
  workers(): Promise<number[]>;
  /** Ends the process without a chance to leave anything behind (SIGKILL). */
  kill(): Promise<void>;
  /** Ends it as an orchestrator does (SIGTERM). Can be called again. */
  drain(): Promise<void>;
  /** Ends it as Ctrl-C does (SIGINT): requests under way are finished, no drain delay. Can be called again. */
  close(): Promise<void>;
}

export interface ProcessOptions {
  /** A command that executes the program, in the process that it is given. */
  readonly runner?: readonly string[];
  /** The program, where it is not that of the checkout. */
  readonly program?: string;
  /** Further arguments of `serve`. */
  readonly args?: readonly string[];
  /** Replaces the environment of the tests. */
  readonly environment?: Readonly<Record<string, string>>;
}

/**
 * Starts `digest-gateway serve` as an installed program, configured as `startGateway` does it; resolves when it listens.
 * @throws Error with what it printed if it ends before
 */
export async function startGatewayProcess(
  deployments: Record<string, TestDeployment>,
  top: TopLevel = {},
  { runner = [], program = PROGRAM, args: further = [], environment }: ProcessOptions = {},
): Promise<GatewayProcess> {
  const folder = await mkdtemp(join(tmpdir(), 'gateway-'));
  const configFile = await writeConfig(folder, deployments, top);
  const [command = program, ...args] = [...runner, program, 'serve', '--config', configFile, ...further];
  const env = environment && { ...compileCache, ...environment };
  const child = spawn(command, args, { env, stdio: ['ignore', 'ignore', 'pipe'] });
  const ended = once(child, 'close').then(([status]) => (status as number | null) ?? undefined);
  const printed: string[] = [];
  const logged: Record<string, unknown>[] = [];
  const end = async (signal: NodeJS.Signals): Promise<void> => {
    child.kill(signal);
    await ended;
    await rm(folder, { recursive: true, force: true });
  };
  const close = (): Promise<void> => end('SIGINT');
  const lines = createInterface(child.stderr);
  const { listen, control } = await new Promise<{
    listen: string | string[];
    control: string;
  }>((resolve, reject) => {
    lines
      .on('line', (line) => {
        printed.push(line);
        // Node.js itself prints lines that are no JSON.
        if (!line.startsWith('{')) return;
        const entry = JSON.parse(line);
        logged.push(entry);
        if ('listen' in entry) resolve(entry);
      })
      .on('close', () => reject(new Error(`The gateway did not start:\n${printed.join('\n')}`)));
  }).catch(async (error) => {
    await close();
    throw error;
  });
  const listening = [listen].flat();
  return {
    origin: listening[0] ?? '',
    listening,
    control,
    pid: child.pid ?? 0,
    configFile,
    printed,
    logged,
    pauseLog: () => void lines.pause(),
    readLog: () => void lines.resume(),
    ended,
    metric: (name, labels = {}) => metricOf(control, name, labels),
    memory: async () => {
      const status = await readFile(`/proc/${child.pid}/status`, 'utf8');
      const bytes = (name: string) =>
        Number(new RegExp(`^${name}:\\s+(\\d+) kB$`, 'm').exec(status)?.[1]) * 1024;
      return { now: bytes('VmRSS'), peak: bytes('VmHWM') };
    },
    workers: () => childrenOf(child.pid ?? 0),
    kill: () => end('SIGKILL'),
    drain: () => end('SIGTERM'),
    close,
    [Symbol.asyncDispose]: close,
  };
}

/** Process ids of a process's children. */
async function childrenOf(pid: number): Promise<number[]> {
  const folder = `/proc/${pid}/task`;
  const threads = await readdir(folder);
  const lists = await Promise.all(
    // A thread may have ended in the meantime.
    threads.map((thread) => readFile(join(folder, thread, 'children'), 'utf8').catch(() => '')),
  );
  return lists.join(' ').split(/\s+/).filter(Boolean).map(Number);
}
