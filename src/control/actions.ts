import { type Request, type RequestHandler, Router } from 'express';
import { z } from 'zod';
import type { Clock } from '../base/clock.ts';
import { RollingCount } from '../base/rolling-count.ts';
import type {
  ActionName,
  ActionResultView,
  ActionsView,
  PendingActionView,
  PromotedView,
} from './action-view.ts';
import { type Admission, type Caller, callerOf } from './admission.ts';
import { Confirmations, VALID_MS } from './confirmations.ts';
import { ControlError, sendControlError } from './control-error.ts';
import { jsonBody } from './json-body.ts';
import { Slots } from './slots.ts';

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
  /** Undefined: they are off. */
  readonly actions: GatewayActions | undefined;
  readonly clock: Clock;
  readonly onError: (error: unknown) => void;
}

/**
 * Serves `/api/actions`. An action is described first, which changes nothing, and carried out when the id of that
 * response is confirmed: a page of another site can read no response, so it never learns an id.
 */
export function actionsRouter(options: ActionsOptions): Router {
  const { admission, actions, clock, onError } = options;
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
  router.get('/api/actions', admission.reads, (_req, res) => {
    res.set('cache-control', 'no-store').json(allowedView(actions, callerOf(res)));
  });
  router.post('/api/actions', admission.acts, jsonBody('action-invalid'), begin);
  router.post('/api/actions/:id/confirm', admission.acts, jsonBody('action-invalid'), confirm);
  return router;
}

const promotionSchema = z.strictObject({ version: name.optional() });

/** Serves `POST /api/credentials/NAME/promote`, which needs no confirmation, as it needs the token itself. */
export function promotionRouter(
  admission: Admission,
  promote: (promotion: Promotion, address: string) => Promise<PromotedView>,
  onError: (error: unknown) => void,
): Router {
  const router = Router();
  const path = '/api/credentials/:name/promote';
  const read = jsonBody('action-invalid');
  const running = new Slots(1);
  router.post(
    path,
    admission.changes,
    (req, res, next) => (hasBody(req) ? read(req, res, next) : next()),
    handler(onError, async (req, res) => {
      const { data } = promotionSchema.safeParse(req.body ?? {});
      const credential = name.safeParse(req.params['name']).data;
      if (data === undefined || credential === undefined) throw new ControlError('action-invalid');
      using slot = running.take();
      if (slot === undefined) throw new ControlError('action-running');
      res.json(await promote({ credential, version: data.version }, req.socket.remoteAddress ?? ''));
    }),
  );
  router.all(path, (_req, res) => {
    res.set('allow', 'POST').sendStatus(405);
  });
  return router;
}

function hasBody({ headers }: Request): boolean {
  return headers['transfer-encoding'] !== undefined || Number(headers['content-length'] ?? 0) > 0;
}

/** Passes refusals on as problem documents, and other errors as one that says nothing of their cause. */
export function handler(onError: (error: unknown) => void, handle: RequestHandler): RequestHandler {
  return async (req, res, next) => {
    res.set('cache-control', 'no-store');
    try {
      await handle(req, res, next);
    } catch (error) {
      if (!(error instanceof ControlError)) onError(error);
      if (!res.headersSent) sendControlError(res, error instanceof ControlError ? error : 'action-failed');
    }
  };
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
