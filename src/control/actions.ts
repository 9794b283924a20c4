import { randomBytes } from 'node:crypto';
import { type Request, type RequestHandler, type Response, Router } from 'express';
import { z } from 'zod';
import { addressOf } from '../base/client-address.ts';
import type { Clock } from '../base/clock.ts';
import { RollingCount } from '../base/rolling-count.ts';
import type { LocatedIssue } from '../config/issues.ts';
import type { FourEyes } from '../config/operators.ts';
import type {
  ActionName,
  ActionResultView,
  ActionsView,
  CredentialResultView,
  PendingActionView,
} from './action-view.ts';
import { type Admission, type Caller, callerOf, Slots } from './admission.ts';
import { clientGone } from './client-gone.ts';
import { ControlError, handler, jsonBody, sendProblem } from './control-error.ts';
import {
  type ActionOutcome,
  type ActionPlan,
  type ActionRequest,
  type Actor,
  type GatewayActions,
  name,
  requestSchema,
  type Sender,
} from './gateway-actions.ts';
import { type RoleRules, roleRequired } from './operators.ts';
import { type Proposal, Proposals } from './proposals.ts';

/** Confirmed actions in a minute. */
const PER_MINUTE = 30;
const MINUTE_MS = 60_000;

export interface ActionsOptions {
  readonly admission: Admission;
  /** Undefined: actions are off. */
  readonly actions: GatewayActions | undefined;
  /** Undefined: sign-in by name is not configured. */
  readonly roles: RoleRules | undefined;
  /** Undefined: no action needs a second person. */
  readonly fourEyes: FourEyes | undefined;
  readonly clock: Clock;
  /** Reads the configuration again for a client at this address. Never rejects. */
  readonly reload: (address: string) => Promise<ReloadResult>;
  /** Carries out commands of a program with the token about a credential. */
  readonly commands: Pick<GatewayActions, 'perform'>;
  /** Called with unexpected errors, which are reported nowhere else. */
  readonly onError: (error: unknown) => void;
}

const RELOAD = '/api/reload';
const PROPOSALS = '/api/actions/proposals';
const SECOND = 'Another operator has to confirm it; until then nothing happens.';
const PROPOSED = 'Proposed. Another operator confirms it on the page Actions.';
const WITHDRAWN = 'The proposal is withdrawn.';

const noOptions = z.strictObject({});
/** The commands about a credential, with the schemas of their bodies. */
const COMMANDS = {
  promote: z.strictObject({ version: name.optional() }),
  retry: noOptions,
  withdraw: noOptions,
} as const satisfies Partial<Record<ActionName, z.ZodType>>;

/**
 * Serves what changes the gateway: `/api/reload`, and `promote`, `retry` and `withdraw` under `/api/credentials/NAME/`,
 * which need the token itself and no confirmation, and `/api/actions`. There an action is described first, which changes
 * nothing, and carried out when the id of that response is confirmed: a page of another site can read no response, so it
 * never learns an id.
 */
export function actionsRouter(options: ActionsOptions): Router {
  const { admission, actions, clock, reload, commands, fourEyes, onError } = options;
  const confirmations = new Confirmations(clock);
  const proposals = new Proposals(fourEyes?.withinMs ?? 0, clock);
  const takeTurn = actionTurns(clock);
  const router = Router();
  const needsSecond = ({ request }: ActionPlan, caller: Caller | undefined): boolean =>
    caller?.operator !== undefined && fourEyes?.actions.has(request.action) === true;
  const turnOf = (proposal: Proposal): Disposable => {
    try {
      return takeTurn(proposal.request.action);
    } catch (error) {
      // Nothing was done: it can be confirmed later, and its end has a record.
      proposals.putBack(proposal);
      throw error;
    }
  };
  const begin = handler(onError, async (req, res) => {
    const { data } = requestSchema.safeParse(req.body);
    if (data === undefined) throw new ControlError('action-invalid');
    const caller = callerOf(res);
    const offered = given(actions);
    const { id, plan } = await confirmations.add(caller, () => offered.plan(data));
    const { action } = plan.request;
    const effects = needsSecond(plan, caller) ? [...plan.effects, SECOND] : plan.effects;
    res.json({ id, action, effects, validSeconds: VALID_MS / 1000 } satisfies PendingActionView);
  });
  const confirm = handler(onError, async (req, res) => {
    const offered = given(actions);
    const caller = callerOf(res);
    const plan = confirmations.take(caller, String(req.params['id']));
    const sender = senderOf(req, caller);
    const { operator } = sender;
    if (operator === undefined || !needsSecond(plan, caller)) {
      using _turn = takeTurn(plan.request.action);
      return await perform(offered, plan.request, sender, res, viewOf(plan));
    }
    await proposals.propose(plan, { ...sender, operator }, offered);
    res
      .status(202)
      .json({ action: plan.request.action, result: PROPOSED, notes: [] } satisfies ActionResultView);
  });
  const confirmProposal = handler(onError, async (req, res) => {
    const offered = given(actions);
    const sender = senderOf(req, callerOf(res));
    const proposal = await proposals.confirm(String(req.params['id']), sender, offered);
    using _turn = turnOf(proposal);
    return await perform(offered, proposal.request, { ...sender, proposal }, res, viewOf(proposal));
  });
  const withdrawProposal = handler(onError, async (req, res) => {
    const sender = senderOf(req, callerOf(res));
    const { request } = await proposals.withdraw(String(req.params['id']), sender, given(actions));
    res.json({ action: request.action, result: WITHDRAWN, notes: [] } satisfies ActionResultView);
  });
  router.post(RELOAD, admission.requireToken, reloadHandler(reload));
  const slots = new Slots(1);
  const readBody = jsonBody('action-invalid');
  const bodyIfAny: RequestHandler = (req, res, next) => {
    const { 'transfer-encoding': coding, 'content-length': length = 0 } = req.headers;
    return coding !== undefined || Number(length) > 0 ? readBody(req, res, next) : next();
  };
  const paths = (Object.keys(COMMANDS) as (keyof typeof COMMANDS)[]).map((command) => {
    const path = `/api/credentials/:name/${command}`;
    const handle = credentialHandler(commands, command, slots);
    router.post(path, admission.requireToken, bodyIfAny, handler(onError, handle));
    return path;
  });
  router.all([RELOAD, ...paths], (_req, res) => {
    res.set('allow', 'POST').sendStatus(405);
  });
  router.get('/api/actions', admission.requireRead, (_req, res) => {
    res.json(allowedView(options, callerOf(res)));
  });
  router.get(PROPOSALS, admission.requireRead, (_req, res) => {
    res.json(proposals.view(callerOf(res)?.operator, actions));
  });
  const guards = [admission.requireOperator, readBody];
  router.post('/api/actions', guards, begin);
  router.post('/api/actions/:id/confirm', guards, confirm);
  router.post(`${PROPOSALS}/:id/confirm`, guards, confirmProposal);
  router.post(`${PROPOSALS}/:id/withdraw`, guards, withdrawProposal);
  return router;
}

/** How long an action waits for its confirmation, in milliseconds. */
const VALID_MS = 60_000;
/** Actions of one person, or session of a token, and of all that wait at the same time. */
const OF_HOLDER = 8;
const IN_ALL = 64;

interface Pending {
  readonly session: string | undefined;
  readonly holder: string | undefined;
  readonly until: number;
  /** Undefined while it is made; nobody knows the id yet. */
  plan: ActionPlan | undefined;
}

/**
 * Actions that wait for a confirmation. Each has an unguessable id, valid once, for a minute, for the session that began
 * it.
 */
class Confirmations {
  readonly #clock: Clock;
  /** The oldest first. */
  readonly #pending = new Map<string, Pending>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /**
   * Makes a plan and keeps it until it is confirmed; returns it with its id.
   * @throws ControlError if too many wait, those that are being made among them: the plan of a reload reads all files
   */
  async add(
    caller: Caller | undefined,
    make: () => Promise<ActionPlan>,
  ): Promise<{ readonly id: string; readonly plan: ActionPlan }> {
    this.#dropExpired();
    const session = caller?.id;
    const holder = caller?.operator?.subject ?? session;
    const own = [...this.#pending.values()].filter((each) => each.holder === holder).length;
    if (own >= OF_HOLDER || this.#pending.size >= IN_ALL) throw new ControlError('confirmations-pending');
    const id = randomBytes(24).toString('base64url');
    const pending: Pending = { session, holder, until: this.#clock.now() + VALID_MS, plan: undefined };
    this.#pending.set(id, pending);
    try {
      const plan = await make();
      pending.plan = plan;
      return { id, plan };
    } catch (error) {
      this.#pending.delete(id);
      throw error;
    }
  }

  /**
   * Takes the plan of this id, which no longer waits.
   * @throws ControlError if it is unknown, expired, or of another session
   */
  take(caller: Caller | undefined, id: string): ActionPlan {
    this.#dropExpired();
    const { plan, session } = this.#pending.get(id) ?? {};
    if (plan === undefined || session !== caller?.id) throw new ControlError('confirmation-unknown');
    this.#pending.delete(id);
    return plan;
  }

  #dropExpired(): void {
    const now = this.#clock.now();
    for (const [id, { until }] of this.#pending) {
      if (until > now) return;
      this.#pending.delete(id);
    }
  }
}

/**
 * Returns a function that gives the right to carry out an action: each kind once at a time, and not too many in a minute.
 * It throws a ControlError if it is not its turn.
 */
function actionTurns(clock: Clock): (action: ActionName) => Disposable {
  const recent = new RollingCount(MINUTE_MS);
  const running = new Set<ActionName>();
  return (action) => {
    const now = clock.now();
    if (running.has(action)) throw new ControlError('action-running');
    if (recent.sum(now) >= PER_MINUTE) throw new ControlError('too-many-actions');
    recent.add(now);
    running.add(action);
    return { [Symbol.dispose]: () => void running.delete(action) };
  };
}

async function perform(
  actions: Pick<GatewayActions, 'perform'>,
  request: ActionRequest,
  sender: Omit<Actor, 'signal'>,
  res: Response,
  viewOfOutcome: (outcome: Omit<ActionOutcome, 'afterwards'>) => object,
): Promise<void> {
  const signal = clientGone(res);
  const { afterwards, ...outcome } = await actions.perform(request, { ...sender, signal });
  if (afterwards !== undefined) res.once('close', afterwards);
  // The client may have gone meanwhile.
  if (signal.aborted) afterwards?.();
  else res.json(viewOfOutcome(outcome));
}

const viewOf =
  ({ request: { action } }: ActionPlan) =>
  ({ at: _, ...outcome }: Omit<ActionOutcome, 'afterwards'>): ActionResultView => ({ action, ...outcome });

function credentialHandler(
  commands: ActionsOptions['commands'],
  command: keyof typeof COMMANDS,
  running: Slots,
): RequestHandler {
  return async (req, res) => {
    const { data } = COMMANDS[command].safeParse(req.body ?? {});
    const credential = name.safeParse(req.params['name']).data;
    if (data === undefined || credential === undefined) throw new ControlError('action-invalid');
    using slot = running.take();
    if (slot === undefined) throw new ControlError('action-running');
    const request = { action: command, credential, ...data };
    await perform(commands, request, senderOf(req, undefined), res, ({ at = { deployments: [] } }) => {
      return { result: 'success', credential, ...at } satisfies CredentialResultView;
    });
  };
}

function senderOf(req: Request, caller: Caller | undefined): Sender {
  const { by = 'token', operator } = caller ?? {};
  return { by, address: addressOf(req.socket), operator };
}

function given(actions: GatewayActions | undefined): GatewayActions {
  if (actions === undefined) throw new ControlError('actions-off');
  return actions;
}

function allowedView(
  { actions, roles }: Pick<ActionsOptions, 'actions' | 'roles'>,
  caller: Caller | undefined,
): ActionsView {
  if (actions === undefined) return { allowed: false, reason: new ControlError('actions-off').message };
  if (!caller?.roles.has('operator')) {
    return { allowed: false, reason: roleRequired('operator', caller?.operator, roles).message };
  }
  return { allowed: true, reason: '' };
}

/** The result of a reload. */
export type ReloadResult = Reloaded | ReloadRefused;

export interface Reloaded {
  readonly result: 'success';
  /** Names of the changed sections and entries. */
  readonly changed: readonly string[];
  /** Keys that differ from those at the start, and change with a restart only. */
  readonly needsRestart: readonly string[];
  /** Settings that work but should be changed, and parts of the configuration that were not applied. */
  readonly warnings: readonly string[];
}

export interface ReloadRefused {
  readonly result: 'failure';
  /** 409: no reload is possible now; 422: the configuration is invalid; 500: an unexpected error. */
  readonly status: 409 | 422 | 500;
  readonly reason: string;
  readonly issues: readonly LocatedIssue[];
}

/** Maximum number of issues in a response; the log has all. */
const MOST_ISSUES = 100;
/** Maximum number of requested reloads that are not finished. */
const MOST_PENDING = 8;

function reloadHandler(reload: ActionsOptions['reload']): RequestHandler {
  const pending = new Slots(MOST_PENDING);
  return async (req, res) => {
    using slot = pending.take();
    if (slot === undefined) {
      res.set('retry-after', '5');
      sendProblem(res, 429, 'Other reloads are not finished yet. Retry later.');
      return;
    }
    const outcome = await reload(addressOf(req.socket));
    if (outcome.result === 'success') {
      res.json(outcome);
      return;
    }
    const { status, reason, issues } = outcome;
    sendProblem(res, status, reason, status === 422 ? { issues: issues.slice(0, MOST_ISSUES) } : {});
  };
}
