import { createHash } from 'node:crypto';
import express, { type Request, type RequestHandler, type Response, Router } from 'express';
import { isLoopbackHost } from '../base/network.ts';
import { sendControlError, sendProblem } from './control-error.ts';
import { type Access, Guard, type TokenHashes, type Verdict } from './guard.ts';
import type { Pages } from './pages.ts';

const COOKIE = 'digest-gateway-session';

/**
 * Access to the control plane: by token or session if a token is configured, else from loopback hosts only.
 */
export interface Admission {
  /** Guards resources for programs: responds 401, 421 or 429. */
  readonly reads: RequestHandler;
  /** Guards pages: redirects to the login form. */
  readonly looks: RequestHandler;
  /**
   * Guards what changes the gateway. It requires the token itself, in `Authorization`: a page of another site
   * cannot send that, while a browser adds the session's cookie to any request. Responds 401, 403 or 429.
   */
  readonly changes: RequestHandler;
  /**
   * Guards the actions: admits the token, and a session that was opened with it, of which the browser says that a page
   * of the console's own origin sends the request. Responds 401, 403 or 429. `callerOf` tells who was admitted.
   */
  readonly acts: RequestHandler;
  /** Serves `/login` and `/logout`. */
  readonly router: Router;
}

/** The sender of a request that was admitted. */
export interface Caller {
  readonly access: Access;
  readonly by: 'session' | 'token';
  /** Names the session, or the token; it does not reveal them. */
  readonly id: string;
}

/** Creates the admission. `tokens` undefined: no token is required. */
export function admission(tokens: TokenHashes | undefined, pages: Pages): Admission {
  return tokens === undefined ? forThisMachine() : forHolders(new Guard(tokens), pages);
}

/** Returns the sender of a request that passed `reads` or `acts`; undefined: no token is required. */
export function callerOf(res: Response): Caller | undefined {
  const { caller } = res.locals as { caller?: Caller };
  return caller;
}

/** Any other host name may be DNS rebinding: a page elsewhere could read the responses. */
function forThisMachine(): Admission {
  const check: RequestHandler = (req, res, next) => {
    const host = (req.headers.host ?? '').replace(/:\d+$/, '');
    if (isLoopbackHost(host)) next();
    else {
      const advice =
        'Without control.tokenSha256 the console answers to localhost and loopback addresses only.\n';
      res.status(421).type('text/plain').send(advice);
    }
  };
  const changes: RequestHandler = (_req, res) =>
    sendProblem(res, 403, 'Without control.tokenSha256 the control plane changes nothing. Set it.');
  return { reads: check, looks: check, changes, acts: changes, router: Router() };
}

function forHolders(guard: Guard, pages: Pages): Admission {
  const router = Router();
  router.get('/login', (_req, res) => pages.sendLogin(res, 200, ''));
  router.post('/login', express.urlencoded({ extended: false, limit: '4kb' }), (req, res) => {
    const token: unknown = req.body?.token;
    const given = typeof token === 'string' ? token : '';
    const verdict = guard.tryToken(given, addressOf(req), performance.now());
    if (isAccess(verdict)) {
      const { session, lifetimeMs } = guard.openSession(verdict, Date.now());
      res.cookie(COOKIE, session, { ...cookieFor(req), maxAge: lifetimeMs });
      res.redirect(303, '/');
    } else if (verdict === 'wrong') {
      pages.sendLogin(res, 401, 'That is not the token.');
    } else {
      res.set('retry-after', String(verdict));
      pages.sendLogin(res, 429, `Too many wrong tokens from your address. Try again in ${verdict} seconds.`);
    }
  });
  router.post('/logout', (req, res) => {
    res.clearCookie(COOKIE, cookieFor(req));
    res.redirect(303, '/login');
  });
  return {
    reads: (req, res, next) => {
      const found = callerFrom(req, guard);
      if (typeof found !== 'object') return refuse(res, found);
      Object.assign(res.locals, { caller: found });
      next();
    },
    looks: (req, res, next) => {
      if (typeof callerFrom(req, guard) === 'object') next();
      else res.redirect(303, '/login');
    },
    changes: (req, res, next) => {
      if (isCrossSite(req)) return sendControlError(res, 'cross-site');
      const verdict = verdictOnToken(req, guard);
      if (verdict === 'read') return sendControlError(res, 'read-only');
      if (verdict === 'full') next();
      else refuse(res, verdict);
    },
    acts: (req, res, next) => {
      if (isCrossSite(req)) return sendControlError(res, 'cross-site');
      const found = callerFrom(req, guard);
      if (typeof found !== 'object') return refuse(res, found);
      if (found.access !== 'full') return sendControlError(res, 'read-only');
      // A browser adds the cookie to any request, so the request must say where it comes from.
      if (found.by === 'session' && !isFromOwnPage(req)) return sendControlError(res, 'cross-site');
      Object.assign(res.locals, { caller: found });
      next();
    },
    router,
  };
}

/** Returns the sender; or the verdict on its token, if it has neither a session nor a right token. */
function callerFrom(req: Request, guard: Guard): Caller | 'wrong' | number {
  // A token may allow more than the session that a browser adds.
  const verdict = verdictOnToken(req, guard);
  if (isAccess(verdict)) return { access: verdict, by: 'token', id: `token ${verdict}` };
  const session = cookieIn(req.headers.cookie ?? '');
  const access = session === undefined ? undefined : guard.accessOf(session, Date.now());
  if (session === undefined || access === undefined) return verdict;
  return { access, by: 'session', id: createHash('sha256').update(session).digest('base64url') };
}

/** The value of the session's cookie, which has no character that would be quoted or encoded. */
function cookieIn(field: string): string | undefined {
  const pairs = field.split(';').map((pair) => pair.trim());
  return pairs.find((pair) => pair.startsWith(`${COOKIE}=`))?.slice(COOKIE.length + 1);
}

function verdictOnToken(req: Request, guard: Guard): Verdict {
  const token = /^Bearer (.+)$/i.exec(req.headers.authorization ?? '')?.[1];
  return token === undefined ? 'wrong' : guard.tryToken(token, addressOf(req), performance.now());
}

function isAccess(verdict: Verdict): verdict is Access {
  return verdict === 'full' || verdict === 'read';
}

/** True if a browser says that a page of this origin sends the request; unlike without such a header at all. */
function isFromOwnPage({ headers }: Request): boolean {
  return headers['sec-fetch-site'] === 'same-origin' || headers.origin !== undefined;
}

/** True if a browser says that a page elsewhere sends the request (Fetch Metadata; RFC 6454 §7). */
function isCrossSite({ headers }: Request): boolean {
  const site = headers['sec-fetch-site'];
  if (site !== undefined && site !== 'same-origin' && site !== 'none') return true;
  const { origin, host } = headers;
  return origin !== undefined && !(URL.canParse(origin) && new URL(origin).host === host);
}

function refuse(res: Response, verdict: 'wrong' | number): void {
  if (verdict === 'wrong') {
    res.set('www-authenticate', 'Bearer realm="digest-gateway control"').sendStatus(401);
  } else {
    res.set('retry-after', String(verdict)).sendStatus(429);
  }
}

function cookieFor(req: Request) {
  return { httpOnly: true, sameSite: 'strict', secure: req.secure, path: '/' } as const;
}

function addressOf(req: Request): string {
  return req.socket.remoteAddress ?? '';
}
