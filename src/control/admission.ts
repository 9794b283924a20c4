import type { Request, RequestHandler, Response } from 'express';
import { addressOf } from '../base/client-address.ts';
import { isLoopbackHost } from '../base/network.ts';
import { sendControlError, sendProblem } from './control-error.ts';
import { type Operator, ROLES, type Role, type RoleRules, roleRequired } from './operators.ts';
import type { Cookies, Sessions } from './sessions.ts';
import { type Access, isAccess, type TokenGuard, type Verdict } from './token-guard.ts';

/**
 * Access to the control plane: by token or session if a token or a sign-in is configured, else from loopback hosts only.
 */
export interface Admission {
  /** Guards resources for programs: responds 401, 421 or 429. Every role reads them. */
  readonly requireRead: RequestHandler;
  /** Guards the records of the audit log: responds 403, too. */
  readonly requireAuditor: RequestHandler;
  /** Guards pages: redirects to the login form. */
  readonly requireLogin: RequestHandler;
  /**
   * Guards what changes the gateway. It requires the token itself, in `Authorization`: a page of another site
   * cannot send that, while a browser adds the session's cookie to any request. Responds 401, 403 or 429.
   */
  readonly requireToken: RequestHandler;
  /**
   * Guards the actions: admits the token, and a session that may act, of which the browser says that a page
   * of the console's own origin sends the request. Responds 401, 403 or 429. `callerOf` returns who was admitted.
   */
  readonly requireOperator: RequestHandler;
}

/** The sender of a request that was admitted. */
export interface Caller {
  readonly by: 'session' | 'token';
  /** Names the session, or the token; it does not reveal them. */
  readonly id: string;
  readonly roles: ReadonlySet<Role>;
  /** Undefined: a token, or a session that was opened with one. */
  readonly operator: Operator | undefined;
  /** False as soon as the session has ended; asking counts as its use. */
  readonly isAdmitted: () => boolean;
}

interface AdmissionDeps {
  /** Undefined: no token is configured. */
  readonly guard: TokenGuard | undefined;
  readonly sessions: Sessions;
  readonly cookies: Cookies;
  /** Origin of the console in browsers; undefined: the Host of a request is it. */
  readonly publicOrigin: string | undefined;
  /** Undefined: sign-in by name is not configured. */
  readonly roles: RoleRules | undefined;
}

/** Creates the admission. `isOpen`: neither a token nor a sign-in is configured. */
export function admission(isOpen: boolean, deps: AdmissionDeps): Admission {
  return isOpen ? forThisMachine() : forHolders(deps);
}

/** Returns the sender of an admitted request; undefined: no token is required. */
export function callerOf(res: Response): Caller | undefined {
  const { caller } = res.locals as { caller?: Caller };
  return caller;
}

/** The rights of a token, and of a session that it opens. */
export const ROLES_OF_TOKEN: Readonly<Record<Access, ReadonlySet<Role>>> = {
  full: new Set(ROLES),
  read: new Set(['viewer', 'auditor']),
};

/** True for a loopback host. Any other name may be DNS rebinding: a page elsewhere could read the responses. */
export function isForThisMachine({ headers: { host = '' } }: Request): boolean {
  return isLoopbackHost(host.replace(/:\d+$/, ''));
}

function forThisMachine(): Admission {
  const check: RequestHandler = (req, res, next) => {
    if (isForThisMachine(req)) next();
    else {
      const advice =
        'Without control.tokenSha256 the console answers to localhost and loopback addresses only.\n';
      res.status(421).type('text/plain').send(advice);
    }
  };
  // It could not read the response, but would stop the workers for a flight record, or take the place of an export.
  const checkData: RequestHandler = (req, res, next) => {
    if (isCrossSite(req, undefined) && !isFollowedLink(req)) {
      sendControlError(res, 'cross-site');
    } else check(req, res, next);
  };
  const refuseAll: RequestHandler = (_req, res) =>
    sendProblem(res, 403, 'Without control.tokenSha256 the control plane changes nothing. Set it.');
  return {
    requireRead: checkData,
    requireAuditor: checkData,
    requireLogin: check,
    requireToken: refuseAll,
    requireOperator: refuseAll,
  };
}

function forHolders(deps: AdmissionDeps): Admission {
  const { guard, publicOrigin, roles } = deps;
  const admit = (req: Request, res: Response): Caller | undefined => {
    const found = callerFrom(req, deps);
    if (typeof found !== 'object') {
      refuse(res, found);
      return undefined;
    }
    // It could not read the response, but an export would be recorded as that of the person.
    if (found.by === 'session' && isCrossSite(req, publicOrigin)) {
      sendControlError(res, 'cross-site');
      return undefined;
    }
    Object.assign(res.locals, { caller: found });
    return found;
  };
  const lacks = (res: Response, { operator }: Caller, role: Role): void =>
    sendControlError(res, roleRequired(role, operator, roles));
  return {
    requireRead: (req, res, next) => {
      if (admit(req, res) !== undefined) next();
    },
    requireAuditor: (req, res, next) => {
      const caller = admit(req, res);
      if (caller === undefined) return;
      if (caller.roles.has('auditor')) next();
      else lacks(res, caller, 'auditor');
    },
    requireLogin: (req, res, next) => {
      if (typeof callerFrom(req, deps) === 'object') next();
      else res.redirect(303, '/login');
    },
    requireToken: (req, res, next) => {
      if (isCrossSite(req, publicOrigin)) return sendControlError(res, 'cross-site');
      const verdict = verdictOnToken(req, guard);
      if (verdict === 'read') return sendControlError(res, 'read-only');
      if (verdict === 'full') next();
      else refuse(res, verdict);
    },
    requireOperator: (req, res, next) => {
      if (isCrossSite(req, publicOrigin)) return sendControlError(res, 'cross-site');
      const caller = admit(req, res);
      if (caller === undefined) return;
      if (!caller.roles.has('operator')) return lacks(res, caller, 'operator');
      // A browser adds the cookie to any request, so the request must say where it comes from.
      if (caller.by === 'session' && !isFromOwnPage(req)) return sendControlError(res, 'cross-site');
      next();
    },
  };
}

/** Returns the sender; or the verdict on its token, if it has neither a session nor a right token. */
function callerFrom(req: Request, { guard, sessions, cookies }: AdmissionDeps): Caller | 'wrong' | number {
  // A token may allow more than the session that a browser adds.
  const verdict = verdictOnToken(req, guard);
  if (isAccess(verdict)) {
    const roles = ROLES_OF_TOKEN[verdict];
    return { by: 'token', id: `token ${verdict}`, roles, operator: undefined, isAdmitted: () => true };
  }
  const value = cookies.read(req, 'session');
  const session = value === undefined ? undefined : sessions.find(value);
  if (session === undefined) return verdict;
  const { id, roles, operator } = session;
  return { by: 'session', id, roles, operator, isAdmitted: () => sessions.use(id) };
}

/** Checks the token of a request; without one, or without a guard, it is wrong. */
export function verdictOnToken(req: Request, guard: TokenGuard | undefined): Verdict {
  const token = /^Bearer (.+)$/i.exec(req.headers.authorization ?? '')?.[1];
  if (token === undefined || guard === undefined) return 'wrong';
  return guard.tryToken(token, addressOf(req.socket), performance.now());
}

/**
 * True if a browser says that a person followed a link, which opens a page of its own. A page can navigate its frames,
 * and itself to a download, as often as it likes.
 */
function isFollowedLink({ headers }: Request): boolean {
  return headers['sec-fetch-dest'] === 'document' && headers['sec-fetch-user'] === '?1';
}

/** True if a browser says that a page of this origin sends the request; unlike without such a header at all. */
function isFromOwnPage({ headers }: Request): boolean {
  return headers['sec-fetch-site'] === 'same-origin' || headers.origin !== undefined;
}

/**
 * True if a browser says that a page elsewhere sends the request (Fetch Metadata; RFC 6454 §7). `publicOrigin`: the
 * address of the console in browsers, if it is configured.
 */
export function isCrossSite({ headers }: Request, publicOrigin: string | undefined): boolean {
  const site = headers['sec-fetch-site'];
  if (site !== undefined && site !== 'same-origin' && site !== 'none') return true;
  const { origin, host } = headers;
  if (origin === undefined || origin === publicOrigin) return false;
  // A form of the console has no other origin, since its pages send no referrer.
  if (origin === 'null' && site === 'same-origin') return false;
  return !(URL.canParse(origin) && new URL(origin).host === host);
}

function refuse(res: Response, verdict: 'wrong' | number): void {
  if (verdict === 'wrong') {
    res.set('www-authenticate', 'Bearer realm="digest-gateway control"').sendStatus(401);
  } else {
    res.set('retry-after', String(verdict)).sendStatus(429);
  }
}

/** Admits a number of tasks at the same time. */
export class Slots {
  #free: number;

  constructor(most: number) {
    this.#free = most;
  }

  /** Undefined: all slots are taken. Disposing frees the slot. */
  take(): Disposable | undefined {
    if (this.#free === 0) return undefined;
    this.#free -= 1;
    return {
      [Symbol.dispose]: () => {
        this.#free += 1;
      },
    };
  }
}

/** Refuses a request while so many are unfinished: each holds a large text in memory. `what` they are, for the message. */
export function atOnce(most: number, what: string): RequestHandler {
  const slots = new Slots(most);
  return (_req, res, next) => {
    const slot = slots.take();
    if (slot === undefined) {
      res
        .status(503)
        .set('retry-after', '30')
        .type('text/plain')
        .send(`Too many ${what} at once. Retry later.\n`);
      return;
    }
    res.once('close', () => slot[Symbol.dispose]());
    next();
  };
}
