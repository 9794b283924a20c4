import type { DataPlane, Prepared } from '../app/data-plane.ts';
import type { WorkerReport } from '../app/worker.ts';
import type { Audit } from '../audit/audit.ts';
import { replicaOf } from '../audit/replica-name.ts';
import { inTime } from '../base/clock.ts';
import { messageOf } from '../base/error-code.ts';
import type { IpcPort } from '../base/message-calls.ts';
import { PortError } from '../base/open-port.ts';
import { sharedSettings } from '../config/listen.ts';
import type { AppSetup } from '../setup/setup.ts';
import { fromTransfer } from '../setup/transfer.ts';
import { type DrainOptions, PROTOCOL, serveWorker, type WorkerLife } from './protocol.ts';

/** The longest that the last record of a worker which could not start takes, in milliseconds. */
const END_MS = 1_000;

interface WorkerDeps {
  /** The channel to the primary. */
  readonly port: IpcPort;
  /** Version of the program. */
  readonly version: string;
  /** Makes the data plane of this process. `number`: names it among the workers. */
  readonly open: (setup: AppSetup, number: number) => Promise<OpenPlane>;
}

/** The data plane of this process with its audit log. */
interface OpenPlane {
  readonly plane: DataPlane;
  readonly audit: Audit;
}

/** Serves requests on behalf of a primary, in a process of its own. */
export class WorkerProcess {
  readonly #deps: WorkerDeps;
  readonly #ended = Promise.withResolvers<void>();
  #open: OpenPlane | undefined;
  #prepared: Prepared | undefined;
  #number = 0;
  #workers = 1;

  constructor(deps: WorkerDeps) {
    this.#deps = deps;
    serveWorker(deps.port, this.#life, () => this.#opened.plane);
  }

  /** Serves until the primary ends it; resolves when everything is closed. */
  run(): Promise<void> {
    return this.#ended.promise;
  }

  get #life(): WorkerLife {
    return {
      open: async ({ protocol, number, workers, setup }) => {
        if (protocol !== PROTOCOL) {
          throw new Error(
            `version ${this.#deps.version} cannot serve for the running one: restart the gateway`,
          );
        }
        this.#number = number;
        this.#workers = workers;
        this.#open = await this.#deps.open(await this.#read(setup), number);
      },
      listen: async () => {
        const { plane, audit } = this.#opened;
        try {
          const addresses = await plane.start();
          // Says to readers that a process before it, which may have been killed, writes no more outcomes.
          audit.admin('start', { version: this.#deps.version });
          return addresses;
        } catch (error) {
          // The primary kills this process then.
          await inTime(audit.close('start-failed'), END_MS);
          // Of an error, the primary would receive the message only.
          return { message: messageOf(error), isPortError: error instanceof PortError };
        }
      },
      beat: async () => undefined,
      prepare: async (setup) => {
        this.#prepared = await this.#opened.plane.prepare(await this.#read(setup));
        return this.#prepared.changed;
      },
      abandon: async () => {
        if (this.#prepared !== undefined) this.#opened.plane.abandon(this.#prepared);
        this.#prepared = undefined;
      },
      commit: async () => {
        const prepared = this.#prepared;
        if (prepared === undefined) throw new TypeError('no configuration is prepared');
        this.#prepared = undefined;
        this.#opened.plane.commit(prepared);
        await this.#opened.plane.settle(prepared);
      },
      drain: async (options) => {
        try {
          return await this.#drain(options);
        } finally {
          // The reply is posted in this turn, and written before the process ends.
          setImmediate(() => void this.#deps.port.flushed().then(this.#ended.resolve));
        }
      },
    };
  }

  get #opened(): OpenPlane {
    if (this.#open === undefined) throw new TypeError('the worker is not open');
    return this.#open;
  }

  async #read(setup: Parameters<typeof fromTransfer>[0]): Promise<AppSetup> {
    return setupOfWorker(await fromTransfer(setup), this.#number, this.#workers);
  }

  async #drain({ withDelay, ...options }: DrainOptions): Promise<WorkerReport> {
    const { plane, audit } = this.#opened;
    await plane.drain(withDelay);
    const last = await plane.report(options);
    await audit.close('stop');
    return { ...last, refusals: plane.countedRefusals, auditHead: audit.head };
  }
}

/**
 * Returns the setup of one worker: its audit log has a folder of its own, and connections and memory of the whole
 * gateway are divided among the workers.
 */
export function setupOfWorker(setup: AppSetup, number: number, workers: number): AppSetup {
  const { config, audit } = setup;
  // Rounded up, the parts would be more than the whole.
  const part = (all: number): number => Math.max(1, Math.floor(all / workers));
  const { limits } = sharedSettings(config.listen);
  const divided = {
    ...limits,
    connections: part(limits.connections),
    bodyMemory: part(limits.bodyMemory),
  };
  const deployments = Object.fromEntries(
    Object.entries(config.deployments).map(([name, deployment]) => [
      name,
      { ...deployment, connections: part(deployment.connections) },
    ]),
  );
  return {
    ...setup,
    config: {
      ...config,
      listen: config.listen.map((listener) => ({ ...listener, limits: divided })),
      deployments,
    },
    audit: audit && { ...audit, replica: replicaOf(audit.replica, number) },
  };
}
