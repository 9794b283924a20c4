import { z } from 'zod';
import type { ActionResultView } from './action-view.ts';
import type { Caller } from './admission.ts';
import type { Operator } from './operators.ts';

/** Longest name in a request, in characters. */
const LONGEST = 256;

/** A name in a request. */
export const name = z.string().min(1).max(LONGEST);

/** The body of a request for an action. */
export const requestSchema = z.discriminatedUnion('action', [
  z.strictObject({ action: z.literal('reload') }),
  z.strictObject({ action: z.literal('drain') }),
  z.strictObject({ action: z.literal('doctor'), deployment: name.optional() }),
  z.strictObject({ action: z.literal('promote'), deployment: name, credential: name, version: name }),
  z.strictObject({
    action: z.literal('roll-back'),
    deployment: name,
    credential: name,
    version: name.optional(),
  }),
  z.strictObject({ action: z.literal('retry'), credential: name }),
  z.strictObject({ action: z.literal('withdraw'), credential: name }),
]);

/**
 * An action with its target. `files`: a hash of those that a reload is to read; left out: it reads any. A promotion
 * without deployment is one at each that has the credential; without version, of the one that waits to be tried. A
 * withdrawal without version is of the one that waits.
 */
export type ActionRequest =
  | Exclude<z.output<typeof requestSchema>, { readonly action: 'reload' | 'promote' | 'withdraw' }>
  | { readonly action: 'reload'; readonly files?: string }
  | {
      readonly action: 'promote';
      readonly credential: string;
      readonly deployment?: string | undefined;
      readonly version?: string | undefined;
    }
  | {
      readonly action: 'withdraw';
      readonly credential: string;
      readonly version?: string | undefined;
    };

/** An action that is possible now. */
export interface ActionPlan {
  /** The request with everything that was left to the gateway. */
  readonly request: ActionRequest;
  /** Sentences that describe what it will do. */
  readonly effects: readonly string[];
}

/** The sender of an action. */
export interface Sender {
  readonly by: Caller['by'];
  readonly address: string;
  /** Undefined: a token. */
  readonly operator: Operator | undefined;
}

/** The sender of a confirmed action. */
export interface Actor extends Sender {
  /** The proposal of another person that this one confirms; undefined: it needs none. */
  readonly proposal?: { readonly id: string; readonly proposer: Operator } | undefined;
  /** Aborts when the client no longer waits. */
  readonly signal: AbortSignal;
}

export interface ActionOutcome extends Omit<ActionResultView, 'action'> {
  /** Of an action on a credential. */
  readonly at?: VersionAt;
  /** Called when the response has left. */
  readonly afterwards?: () => void;
}

/** Deployments at which something holds of a credential, and the version of which it does. */
export interface VersionAt {
  readonly version?: string;
  readonly deployments: readonly string[];
}

/** The actions of a gateway. */
export interface GatewayActions {
  /** @throws ControlError if the action is not possible now */
  plan(request: ActionRequest): Promise<ActionPlan>;
  /**
   * Records an action in the audit log, then carries it out.
   * @throws ControlError if it is refused, or failed; one on a credential says what holds where
   */
  perform(request: ActionRequest, actor: Actor): Promise<ActionOutcome>;
  /**
   * Records a step before an action.
   * @throws ControlError if it cannot be recorded
   */
  note(event: ProposalEvent, proposal: ProposedAction, sender: Sender): Promise<void>;
  /** Records that an action was not confirmed in time. */
  noteExpired(proposal: ProposedAction, proposer: Operator): void;
}

/** An action that waits for a second person. */
export interface ProposedAction {
  readonly id: string;
  readonly request: ActionRequest;
}

export type ProposalEvent = 'action-proposed' | 'action-withdrawn';
