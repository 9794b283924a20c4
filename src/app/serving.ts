import type { AddressInfo } from 'node:net';
import type { ClientUse } from '../control/client-view.ts';
import type { PlaneReport } from '../control/merge.ts';
import type { AuditLines } from '../control/snapshot.ts';
import type { ListenTls } from '../gateway/listener.ts';
import type { AppSetup } from '../setup/setup.ts';
import type { VersionTest } from '../upstream/credential.ts';
import type { VersionChoice } from '../upstream/upstream-address.ts';

/** A configuration that was activated. */
export interface Activation {
  /** Names of the changed sections and entries. */
  readonly changed: readonly string[];
  /** Resolves when credentials and limits are applied; rejects if some are not. */
  readonly settled: Promise<void>;
}

/** A version of a credential at a deployment, by their names. */
export interface DeploymentVersion extends VersionChoice {
  readonly deployment: string;
}

/** The part of the gateway that serves requests: a data plane in this process, or one in each worker. */
export interface Serving {
  /** True from the opening of the port to the end of the drain. */
  readonly live: boolean;
  /** Returns the audit lines of all processes after a position. */
  auditLines(position: number): AuditLines;
  /**
   * Opens the port of the data plane.
   * @throws Error if it cannot be opened; nothing stays open then
   */
  start(): Promise<AddressInfo>;
  /** @throws Error if the setup cannot be activated; the active one stays then */
  activate(setup: AppSetup): Promise<Activation>;
  /** Uses another certificate for new connections. */
  renewTls(tls: ListenTls): void;
  /**
   * Updates the metrics that are read, not counted. `names`: only these are wanted, counters or what requests change;
   * undefined: all.
   */
  observe(names?: readonly string[]): Promise<void>;
  report(): Promise<PlaneReport>;
  /** Tests a version at its upstream: `UpstreamCredential.test`. */
  testVersion(choice: DeploymentVersion): Promise<VersionTest>;
  /**
   * Puts versions that are known to be accepted in use in every process: all of them, or none.
   * @throws Error if a process has not all of them; the message says where they are in use, if they are anywhere
   */
  promote(choices: readonly DeploymentVersion[]): Promise<void>;
  /** Returns what the processes know of a client. */
  clientUse(client: string): Promise<ClientUse>;
  /** Opens the file of the access log again, which may have been renamed. */
  reopenAccessLog(): void;
  /** Drains as `DataPlane.drain`. */
  drain(): Promise<void>;
  hurry(): void;
}
