import { randomBytes } from 'node:crypto';
import { type Request, type RequestHandler, Router } from 'express';
import { z } from 'zod';
import type { Clock } from '../base/clock.ts';
import { RollingCount } from '../base/rolling-count.ts';
import type { LocatedIssue } from '../config/issues.ts';
import type {
  ActionName,
  ActionResultView,
  ActionsView,
  CredentialResultView,
  PendingActionView,
} from './action-view.ts';
import { type Admission, type Caller, callerOf, Slots } from './admission.ts';
import { ControlError, handler, jsonBody, sendProblem } from './control-error.ts';

/** Longest name in a request, in characters. */
const LONGEST = 256;
/** Confirmed actions in a minute. */
const PER_MINUTE = 30;
const MINUTE_MS = 60_000;

const name = z.string().min(1).max(LONGEST);

const requestSchema = z.discriminatedUnion('action', [
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

/** An action with its target. */
export type ActionRequest = z.output<typeof requestSchema>;

/** An action that is possible now. */
export interface ActionPlan {
  /** The request with everything that was left to the gateway. */
  readonly request: ActionRequest;
  /** Sentences that tell what it will do. */
  readonly effects: readonly string[];
}

/** The sender of a confirmed action. */
export interface Actor {
  readonly by: Caller['by'];
  readonly address: string;
  /** Aborts when the client no longer waits. */
  readonly signal: AbortSignal;
}

export interface ActionOutcome extends Omit<ActionResultView, 'action'> {
  /** Called when the response has left. */
  readonly afterwards?: () => void;
}

/** A version of a credential that is to be used by every deployment that has it. */
export interface Promotion {
  readonly credential: string;
  /** Undefined: the one that waits to be tried. */
  readonly version: string | undefined;
}

/**
 * Commands of a program with the token about a credential, everywhere in the gateway. `address`: that of the program. Each
 * throws a ControlError that says what holds where, unless it holds everywhere.
 */
export interface CredentialCommands {
  /** Puts a version in use. */
  promote(promotion: Promotion, address: string): Promise<CredentialResultView>;
  /** Asks the upstreams again that refuse the credential. */
  retry(credential: string, address: string): Promise<CredentialResultView>;
  /** Takes the next version back from the sealed file. */
  withdraw(credential: string, address: string): Promise<CredentialResultView>;
}

/** The actions of a gateway. */
export interface GatewayActions {
  /** @throws ControlError if the action is not possible now */
  plan(request: ActionRequest): Promise<ActionPlan>;
  /**
   * Records an action in the audit log, then carries it out.
   * @throws ControlError if it is refused, or failed
   */
  perform(request: ActionRequest, actor: Actor): Promise<ActionOutcome>;
}

export interface ActionsOptions {
  readonly admission: Admission;
  /** Undefined: actions are off. */
  readonly actions: GatewayActions | undefined;
  readonly clock: Clock;
  /** Reads the configuration again for a client at this address. Never rejects. */
  readonly reload: (address: string) => Promise<ReloadResult>;
  readonly credentials: CredentialCommands;
  /** Called with unexpected errors, which are reported nowhere else. */
  readonly onError: (error: unknown) => void;
}

const RELOAD = '/api/reload';
const COMMANDS = ['promote', 'retry', 'withdraw'] as const satisfies (keyof CredentialCommands)[];

/**
 * Serves what changes the gateway: `/api/reload`, and `promote`, `retry` and `withdraw` under `/api/credentials/NAME/`,
 * which need the token itself and no confirmation, and `/api/actions`. There an action is described first, which changes
 * nothing, and carried out when the id of that response is confirmed: a page of another site can read no response, so it
 * never learns an id.
 */
export function actionsRouter(options: ActionsOptions): Router {
  const { admission, actions, clock, reload, credentials, onError } = options;
  const confirmations = new Confirmations<ActionRequest>(clock);
  const recent = new RollingCount(MINUTE_MS);
  const running = new Set<ActionName>();
  const router = Router();
  const begin = handler(onError, async (req, res) => {
    const { data } = requestSchema.safeParse(req.body);
    if (data === undefined) throw new ControlError('action-invalid');
    const { request, effects } = await given(actions).plan(data);
    const id = confirmations.add(callerOf(res)?.id ?? '', request);
    if (id === undefined) throw new ControlError('confirmations-pending');
    const { action } = request;
    res.json({ id, action, effects, validSeconds: VALID_MS / 1000 } satisfies PendingActionView);
  });
  const confirm = handler(onError, async (req, res) => {
    const offered = given(actions);
    const caller = callerOf(res);
    const { id } = req.params;
    const request = confirmations.take(caller?.id ?? '', String(id));
    if (request === undefined) throw new ControlError('confirmation-unknown');
    const { action } = request;
    if (running.has(action)) throw new ControlError('action-running');
    if (recent.sum(clock.now()) >= PER_MINUTE) throw new ControlError('too-many-actions');
    recent.add(clock.now());
    running.add(action);
    const gone = new AbortController();
    res.once('close', () => gone.abort());
    const actor = { by: caller?.by ?? 'token', address: req.socket.remoteAddress ?? '', signal: gone.signal };
    const outcome = await offered.perform(request, actor).finally(() => running.delete(action));
    const { afterwards, ...result } = outcome;
    if (afterwards !== undefined) res.once('close', afterwards);
    // The client may have gone meanwhile.
    if (gone.signal.aborted) afterwards?.();
    else res.json({ action, ...result } satisfies ActionResultView);
  });
  router.post(RELOAD, admission.changes, reloadHandler(reload));
  const slots = new Slots(1);
  const paths = COMMANDS.map((command) => {
    const path = `/api/credentials/:name/${command}`;
    const handle = credentialHandler(credentials, command, slots);
    router.post(path, admission.changes, bodyIfAny(), handler(onError, handle));
    return path;
  });
  router.all([RELOAD, ...paths], (_req, res) => {
    res.set('allow', 'POST').sendStatus(405);
  });
  router.get('/api/actions', admission.reads, (_req, res) => {
    res.set('cache-control', 'no-store').json(allowedView(actions, callerOf(res)));
  });
  router.post('/api/actions', admission.acts, jsonBody('action-invalid'), begin);
  router.post('/api/actions/:id/confirm', admission.acts, jsonBody('action-invalid'), confirm);
  return router;
}

const promotionSchema = z.strictObject({ version: name.optional() });
const noOptions = z.strictObject({});

function credentialHandler(
  credentials: CredentialCommands,
  command: keyof CredentialCommands,
  running: Slots,
): RequestHandler {
  return async (req, res) => {
    const schema: z.ZodType<{ version?: string | undefined }> =
      command === 'promote' ? promotionSchema : noOptions;
    const { data } = schema.safeParse(req.body ?? {});
    const credential = name.safeParse(req.params['name']).data;
    if (data === undefined || credential === undefined) throw new ControlError('action-invalid');
    using slot = running.take();
    if (slot === undefined) throw new ControlError('action-running');
    const address = req.socket.remoteAddress ?? '';
    const done =
      command === 'promote'
        ? credentials.promote({ credential, version: data.version }, address)
        : credentials[command](credential, address);
    res.json(await done);
  };
}

function bodyIfAny(): RequestHandler {
  const read = jsonBody('action-invalid');
  return (req, res, next) => (hasBody(req) ? read(req, res, next) : next());
}

function hasBody({ headers }: Request): boolean {
  return headers['transfer-encoding'] !== undefined || Number(headers['content-length'] ?? 0) > 0;
}

function given(actions: GatewayActions | undefined): GatewayActions {
  if (actions === undefined) throw new ControlError('actions-off');
  return actions;
}

function allowedView(actions: GatewayActions | undefined, caller: Caller | undefined): ActionsView {
  if (actions === undefined) return { allowed: false, reason: new ControlError('actions-off').message };
  if (caller?.access !== 'full') return { allowed: false, reason: new ControlError('read-only').message };
  return { allowed: true, reason: '' };
}

/** How long an action waits for its confirmation, in milliseconds. */
const VALID_MS = 60_000;
/** Actions of one session, and of all sessions, that wait at the same time. */
const OF_SESSION = 8;
const IN_ALL = 64;

interface Pending<T> {
  readonly session: string;
  readonly until: number;
  readonly value: T;
}

/**
 * Actions that wait for a confirmation. Each has an unguessable id, valid once, for a minute, for the session that began
 * it.
 */
class Confirmations<T> {
  readonly #clock: Clock;
  /** The oldest first. */
  readonly #pending = new Map<string, Pending<T>>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Keeps a value until it is confirmed; returns its id. Undefined: too many wait. */
  add(session: string, value: T): string | undefined {
    this.#dropExpired();
    const own = [...this.#pending.values()].filter((each) => each.session === session).length;
    if (own >= OF_SESSION || this.#pending.size >= IN_ALL) return undefined;
    const id = randomBytes(24).toString('base64url');
    this.#pending.set(id, { session, until: this.#clock.now() + VALID_MS, value });
    return id;
  }

  /** Takes the value of this id, which no longer waits. Undefined: it is unknown, expired, or of another session. */
  take(session: string, id: string): T | undefined {
    this.#dropExpired();
    const found = this.#pending.get(id);
    if (found?.session !== session) return undefined;
    this.#pending.delete(id);
    return found.value;
  }

  #dropExpired(): void {
    const now = this.#clock.now();
    for (const [id, { until }] of this.#pending) {
      if (until > now) return;
      this.#pending.delete(id);
    }
  }
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
    const outcome = await reload(req.socket.remoteAddress ?? '');
    if (outcome.result === 'success') {
      res.set('cache-control', 'no-store').json(outcome);
      return;
    }
    const { status, reason, issues } = outcome;
    sendProblem(res, status, reason, status === 422 ? { issues: issues.slice(0, MOST_ISSUES) } : {});
  };
}
