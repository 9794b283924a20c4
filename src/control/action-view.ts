/*
 * The JSON of `/api/actions`, of proposals, and of commands about credentials. The page in `console/` shares these types,
 * so this file imports nothing.
 */

export type ActionName = 'reload' | 'promote' | 'roll-back' | 'retry' | 'withdraw' | 'drain' | 'doctor';

/** Answers whether this token or session may act. */
export interface ActionsView {
  readonly allowed: boolean;
  /** Why not; empty if it is allowed. */
  readonly reason: string;
}

/** The person who looks at the console. */
export interface OperatorView {
  /** Null: a token opened the session, or none is required. */
  readonly name: string | null;
  readonly roles: readonly string[];
}

/** An action that waits for its confirmation. */
export interface PendingActionView {
  readonly id: string;
  readonly action: ActionName;
  /** Sentences that describe what the action will do. */
  readonly effects: readonly string[];
  /** How long it may be confirmed, in seconds. */
  readonly validSeconds: number;
}

/** An action that waits for a second person, with its target. */
export interface ProposalView {
  readonly id: string;
  readonly action: ActionName;
  readonly deployment?: string | undefined;
  readonly credential?: string | undefined;
  readonly version?: string | undefined;
  /** Sentences that describe what the action will do. */
  readonly effects: readonly string[];
  readonly proposedBy: string;
  /** In Unix milliseconds. */
  readonly proposedAt: number;
  /** How long it may still be confirmed, in seconds. */
  readonly validSeconds: number;
  /** True: who looks has proposed it. */
  readonly isOwn: boolean;
}

/** The response of `/api/actions/proposals`, the oldest first. */
export interface ProposalsView {
  readonly proposals: readonly ProposalView[];
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
   * The deployments that use this version from now on, and did not before; or whose upstreams accept the credential
   * again; or at which the version that was withdrawn has become the one in use meanwhile, and stays.
   */
  readonly deployments: readonly string[];
}

/** A finding of doctor; left out: it is about the gateway itself, about no credential or site, nothing is to be done. */
export interface FindingView {
  readonly deployment?: string;
  readonly mark: 'ok' | 'warn' | 'fail';
  readonly check: string;
  readonly subject?: string;
  readonly saw: string;
  readonly advice?: string;
}
