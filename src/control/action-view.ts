/*
 * The JSON of `/api/actions` and of commands about credentials. The page in `console/` shares these types, so this file
 * imports nothing.
 */

export type ActionName = 'reload' | 'promote' | 'roll-back' | 'retry' | 'withdraw' | 'drain' | 'doctor';

/** Answers whether this token or session may act. */
export interface ActionsView {
  readonly allowed: boolean;
  /** Why not; empty if it is allowed. */
  readonly reason: string;
}

/** An action that waits for its confirmation. */
export interface PendingActionView {
  readonly id: string;
  readonly action: ActionName;
  /** Sentences that tell what the action will do. */
  readonly effects: readonly string[];
  /** How long it may be confirmed, in seconds. */
  readonly validSeconds: number;
}

/** An action that was carried out. */
export interface ActionResultView {
  readonly action: ActionName;
  /** One sentence. */
  readonly result: string;
  readonly notes: readonly string[];
  /** Only of `doctor`. */
  readonly findings?: readonly FindingView[];
}

/** The response to `POST /api/credentials/NAME/promote`, `…/retry` and `…/withdraw`. */
export interface CredentialResultView {
  readonly result: 'success';
  readonly credential: string;
  /** The version that was promoted or withdrawn. */
  readonly version?: string;
  /**
   * The deployments that use this version from now on, and did not before; or whose upstreams accept the credential again;
   * or at which the version that was withdrawn has become the one in use meanwhile, and stays.
   */
  readonly deployments: readonly string[];
}

/** A finding of doctor. */
export interface FindingView {
  /** Name of the deployment; empty: it is about the gateway itself. */
  readonly deployment: string;
  readonly origin: string;
  readonly mark: 'ok' | 'warn' | 'fail';
  readonly check: string;
  /** The credential or site that it is about; empty: none. */
  readonly subject: string;
  readonly saw: string;
  /** Empty if nothing is to be done. */
  readonly advice: string;
}
