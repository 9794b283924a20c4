import { mkdir, readFile, rename, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { parse, stringify } from 'yaml';
import { asRoot } from '../../test/support/as-root.ts';
import { type TestDeployment, type TopLevel, writeConfig } from '../../test/support/gateway.ts';
import { type GatewayProcess, startGatewayProcess } from '../../test/support/gateway-process.ts';
import { gateway as runProgram } from '../../test/support/program.ts';
import { freePort } from '../../test/support/server-process.ts';

/** The library of the Debian package libfaketime. */
const FAKETIME = '/usr/$LIB/faketime/libfaketime.so.1';
/** Size of a replica's disk for its audit log. */
const DISK = '1g';
const TRIES = 20;
/** A worker that hangs is replaced by then. */
const FLIGHT_LIMIT_MS = 15_000;

export interface ReplicaSetup {
  readonly name: string;
  /** The replica keeps its files here. */
  readonly folder: string;
  readonly workers: number;
  readonly deployments: Record<string, TestDeployment>;
  readonly top: TopLevel;
  /** Contents of the file of the audit key. */
  readonly auditKey: string;
}

/** The part of `/readyz` that tells how a replica is. */
export interface Readiness {
  readonly status: string;
  readonly checks: readonly { readonly name: string; readonly ok: boolean; readonly detail: string }[];
}

/** One gateway on fixed ports, with an audit log on a disk of its own and a clock of its own; it can be started again. */
export class Replica {
  readonly name: string;
  /** Ports of the data plane and the control plane. */
  readonly port: number;
  readonly controlPort: number;
  /** Counts its starts. */
  starts = 0;
  /** Process ids of all that ran. */
  readonly pids = new Set<number>();
  readonly #setup: ReplicaSetup;
  readonly #past: GatewayProcess[] = [];
  #process: GatewayProcess | undefined;

  private constructor(setup: ReplicaSetup, port: number, controlPort: number) {
    this.name = setup.name;
    this.#setup = setup;
    this.port = port;
    this.controlPort = controlPort;
  }

  static async create(setup: ReplicaSetup): Promise<Replica> {
    const { folder, auditKey } = setup;
    const replica = new Replica(setup, await freePort(), await freePort());
    await mkdir(replica.#disk, { recursive: true });
    await asRoot('mount', '-t', 'tmpfs', '-o', `size=${DISK},mode=0777`, 'tmpfs', replica.#disk);
    await writeFile(join(folder, 'audit-key'), auditKey, { mode: 0o600 });
    await replica.setClock(0);
    return replica;
  }

  get #disk(): string {
    return join(this.#setup.folder, 'disk');
  }

  /** The directory of the audit log. */
  get audit(): string {
    return join(this.#disk, 'log');
  }

  get process(): GatewayProcess {
    if (this.#process === undefined) throw new Error(`${this.name} does not run`);
    return this.#process;
  }

  get origin(): string {
    return `http://127.0.0.1:${this.port}`;
  }

  /** Heads of the audit log that its processes logged. */
  get heads(): string[] {
    return this.#logged().flatMap(({ head }) => (typeof head === 'string' ? [head] : []));
  }

  /** The last lines on stderr of its present process. */
  get lastLines(): string {
    return (this.#process?.printed ?? []).slice(-30).join('\n');
  }

  /** Errors that its processes logged. */
  get errors(): string[] {
    return this.#logged().flatMap(({ level, msg, reason }) =>
      level === 'error' ? [[msg, reason].filter(Boolean).join(': ')] : [],
    );
  }

  /** How often the present process took over a change of its credentials. */
  get credentialChanges(): number {
    return (this.#process?.logged ?? []).filter(
      ({ changed }) => Array.isArray(changed) && changed.includes('credentials.upstream'),
    ).length;
  }

  async start(): Promise<void> {
    const { deployments, folder } = this.#setup;
    const clock = [
      `LD_PRELOAD=${FAKETIME}`,
      `FAKETIME_TIMESTAMP_FILE=${join(folder, 'clock')}`,
      'FAKETIME_CACHE_DURATION=1',
      'FAKETIME_DONT_FAKE_MONOTONIC=1',
    ];
    this.starts += 1;
    this.#process = await startGatewayProcess(deployments, this.#top(), { runner: ['env', ...clock] });
    for (const pid of await this.processes()) this.pids.add(pid);
  }

  /** The primary process and its workers. */
  async processes(): Promise<number[]> {
    const { pid } = this.process;
    return [pid, ...(await this.workers())];
  }

  async workers(): Promise<number[]> {
    const workers = await this.process.workers();
    for (const pid of workers) this.pids.add(pid);
    return workers;
  }

  /** Ends the process in this way; it does not run then. */
  async end(how: 'kill' | 'drain' | 'close'): Promise<void> {
    const ended = this.#process;
    if (ended === undefined) return;
    this.#past.push(ended);
    await ended[how]();
    this.#process = undefined;
  }

  /** Rewrites the configuration, and sends SIGHUP. */
  async reload(change: (config: Record<string, unknown>) => void): Promise<void> {
    const { configFile, pid } = this.process;
    const config = parse(await readFile(configFile, 'utf8'));
    change(config);
    await writeFile(configFile, stringify(config));
    process.kill(pid, 'SIGHUP');
  }

  /** The response of `/readyz`; its `status` is empty if there is none. */
  async readiness(): Promise<Readiness> {
    try {
      const response = await fetch(`http://127.0.0.1:${this.controlPort}/readyz`);
      return (await response.json()) as Readiness;
    } catch {
      return { status: '', checks: [] };
    }
  }

  /** Flight records of its workers, as lines of JSON. @throws Error if there are none, as of a gateway that is down */
  async flightRecord(): Promise<string> {
    const response = await fetch(`http://127.0.0.1:${this.controlPort}/api/flight-record`, {
      signal: AbortSignal.timeout(FLIGHT_LIMIT_MS),
    });
    if (!response.ok) throw new Error(`${this.name} responds with ${response.status}`);
    return response.text();
  }

  /** True if so many workers serve; false while it does not run. */
  async isWhole(workers: number): Promise<boolean> {
    return (await this.#process?.metric('digest_gateway_workers').catch(() => 0)) === workers;
  }

  /** Seconds by which its clock is ahead. */
  async clock(): Promise<number> {
    const { headers } = await fetch(`http://127.0.0.1:${this.controlPort}/livez`);
    return (Date.parse(headers.get('date') ?? '') - Date.now()) / 1_000;
  }

  /** Sets its clock so many seconds ahead; within a second it is so. */
  async setClock(seconds: number): Promise<void> {
    const file = join(this.#setup.folder, 'clock');
    await writeFile(`${file}.new`, `${seconds < 0 ? '' : '+'}${seconds}\n`);
    await rename(`${file}.new`, file);
  }

  /** Leaves no room on its disk. */
  async fillDisk(): Promise<void> {
    for (let tries = 1; ; tries += 1) {
      try {
        await this.#resizeDisk(`${await this.#usedKib()}k`);
        return;
      } catch (error) {
        // The log has grown since then, and the disk cannot be smaller than what is on it.
        if (tries === TRIES) throw error;
      }
    }
  }

  /** Gives the room back. */
  emptyDisk(): Promise<unknown> {
    return this.#resizeDisk(DISK);
  }

  #resizeDisk(size: string): Promise<unknown> {
    return asRoot('mount', '-o', `remount,size=${size}`, this.#disk);
  }

  async #usedKib(): Promise<number> {
    const [, used = '0'] = (await asRoot('df', '-k', '--output=used', this.#disk)).split('\n');
    return Number(used.trim());
  }

  /** Runs `audit verify` with all heads; resolves to what it printed if it is not content. */
  async verify(): Promise<string | undefined> {
    const { deployments, folder } = this.#setup;
    const place = join(folder, 'verify');
    await mkdir(place, { recursive: true });
    const config = await writeConfig(place, deployments, this.#top());
    const heads = this.heads.flatMap((head) => ['--head', head]);
    const { status, stdout, stderr } = await runProgram(['audit', 'verify', '--config', config, ...heads]);
    return status === 0 ? undefined : `${stdout}${stderr}`;
  }

  async close(): Promise<void> {
    await this.end('close').catch(() => undefined);
    await asRoot('umount', this.#disk);
  }

  #top(): TopLevel {
    const { top, workers, name, folder } = this.#setup;
    return {
      workers,
      listen: { port: this.port },
      control: { port: this.controlPort },
      drain: { delay: '1s', timeout: '10s' },
      // A synchronous disk, so that the call which a read-only file system refuses is made.
      audit: {
        directory: this.audit,
        keyFile: join(folder, 'audit-key'),
        replica: name,
        durability: 'fsync',
      },
      ...top,
    };
  }

  #logged(): Record<string, unknown>[] {
    const all = this.#process === undefined ? this.#past : [...this.#past, this.#process];
    return all.flatMap(({ logged }) => logged);
  }
}
