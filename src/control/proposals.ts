import { randomBytes } from 'node:crypto';
import { isDeepStrictEqual } from 'node:util';
import type { Clock } from '../base/clock.ts';
import type { ProposalsView } from './action-view.ts';
import { ControlError } from './control-error.ts';
import type { ActionPlan, GatewayActions, Sender } from './gateway-actions.ts';
import type { Operator } from './operators.ts';

/** Proposals of one person, and of all, that wait at the same time. */
const MAX_OF_PERSON = 8;
const MAX_PROPOSALS = 32;

/** An action that waits for a second person. */
export interface Proposal extends ActionPlan {
  readonly id: string;
  readonly proposer: Operator;
  /** In Unix milliseconds. */
  readonly proposedAt: number;
  /** In milliseconds of the clock. */
  readonly until: number;
}

/** The sender of a request who signed in by name. */
type Person = Sender & { readonly operator: Operator };

/** Actions that one operator proposed and another one confirms. They are in memory: a restart ends them. */
export class Proposals {
  readonly #withinMs: number;
  readonly #clock: Clock;
  /** By id. */
  readonly #waiting = new Map<string, Proposal>();

  constructor(withinMs: number, clock: Clock) {
    this.#withinMs = withinMs;
    this.#clock = clock;
  }

  /**
   * Records a proposal, and keeps it until it is confirmed, withdrawn, or too old.
   * @throws ControlError if too many wait, or the audit log cannot be written
   */
  async propose(plan: ActionPlan, person: Person, actions: GatewayActions): Promise<Proposal> {
    this.#dropExpired(actions);
    const { subject } = person.operator;
    const own = [...this.#waiting.values()].filter(({ proposer }) => proposer.subject === subject).length;
    if (own >= MAX_OF_PERSON || this.#waiting.size >= MAX_PROPOSALS)
      throw new ControlError('proposals-pending');
    const proposal = {
      ...plan,
      id: randomBytes(12).toString('base64url'),
      proposer: person.operator,
      proposedAt: Date.now(),
      until: this.#clock.now() + this.#withinMs,
    };
    // At once, so that more than the bound cannot wait for their record.
    this.#waiting.set(proposal.id, proposal);
    try {
      await actions.note('action-proposed', proposal, person);
    } catch (error) {
      this.#waiting.delete(proposal.id);
      throw error;
    }
    return proposal;
  }

  /**
   * Takes a proposal that this sender may confirm, and that still does what it said.
   * @throws ControlError
   */
  async confirm(id: string, { operator }: Sender, actions: GatewayActions): Promise<Proposal> {
    const proposal = this.#find(id, actions);
    if (operator === undefined) throw new ControlError('second-person-required');
    if (operator.subject === proposal.proposer.subject) throw new ControlError('proposal-own');
    const { effects } = await actions.plan(proposal.request);
    if (!isDeepStrictEqual(effects, proposal.effects)) throw new ControlError('proposal-outdated');
    // Another request may have taken it meanwhile.
    if (!this.#waiting.delete(id)) throw new ControlError('proposal-unknown');
    return proposal;
  }

  /** Keeps a proposal that was confirmed and not carried out, until it is confirmed again or ends. */
  putBack(proposal: Proposal): void {
    this.#waiting.set(proposal.id, proposal);
  }

  /**
   * Withdraws a proposal: its proposer, or another operator who rejects it.
   * @throws ControlError if it does not wait, or the audit log cannot be written
   */
  async withdraw(id: string, sender: Sender, actions: GatewayActions): Promise<Proposal> {
    const proposal = this.#find(id, actions);
    // At once, so that it cannot be confirmed meanwhile.
    this.#waiting.delete(id);
    try {
      await actions.note('action-withdrawn', proposal, sender);
    } catch (error) {
      this.#waiting.set(id, proposal);
      throw error;
    }
    return proposal;
  }

  /** The proposals as the console shows them to `viewer`. */
  view(viewer: Operator | undefined, actions: GatewayActions | undefined): ProposalsView {
    this.#dropExpired(actions);
    const now = this.#clock.now();
    return {
      proposals: Array.from(
        this.#waiting.values(),
        ({ id, request, effects, proposer, proposedAt, until }) => ({
          id,
          ...request,
          effects,
          proposedBy: proposer.name,
          proposedAt,
          validSeconds: Math.ceil((until - now) / 1000),
          isOwn: proposer.subject === viewer?.subject,
        }),
      ),
    };
  }

  #find(id: string, actions: GatewayActions): Proposal {
    this.#dropExpired(actions);
    const proposal = this.#waiting.get(id);
    if (proposal === undefined) throw new ControlError('proposal-unknown');
    return proposal;
  }

  #dropExpired(actions: GatewayActions | undefined): void {
    const now = this.#clock.now();
    for (const [id, proposal] of this.#waiting) {
      if (proposal.until > now) continue;
      this.#waiting.delete(id);
      actions?.noteExpired(proposal, proposal.proposer);
    }
  }
}
