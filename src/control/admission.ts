import { parseCookie } from 'cookie';
import express, { type Request, type RequestHandler, type Response, Router } from 'express';
import { isLoopbackHost } from '../base/network.ts';
import { Guard, type Verdict } from './guard.ts';
import type { Pages } from './pages.ts';
import { sendProblem } from './problem.ts';

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
  /** Serves `/login` and `/logout`. */
  readonly router: Router;
}

/** Creates the admission. `tokenSha256` is in hex; undefined: no token is required. */
export function admission(tokenSha256: string | undefined, pages: Pages): Admission {
  return tokenSha256 === undefined ? forThisMachine() : forHolders(new Guard(tokenSha256), pages);
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
  return { reads: check, looks: check, changes, router: Router() };
}

function forHolders(guard: Guard, pages: Pages): Admission {
  const router = Router();
  router.get('/login', (_req, res) => pages.sendLogin(res, 200, ''));
  router.post('/login', express.urlencoded({ extended: false, limit: '4kb' }), async (req, res) => {
    const token: unknown = req.body?.token;
    const verdict = await guard.tryToken(typeof token === 'string' ? token : '', addressOf(req));
    if (verdict === 'right') {
      const { session, lifetimeMs } = guard.openSession(Date.now());
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
    reads: async (req, res, next) => {
      const verdict = await verdictOn(req, guard);
      if (verdict === 'right') next();
      else refuse(res, verdict);
    },
    looks: async (req, res, next) => {
      if ((await verdictOn(req, guard)) === 'right') next();
      else res.redirect(303, '/login');
    },
    changes: async (req, res, next) => {
      if (isCrossSite(req)) {
        sendProblem(res, 403, 'A page of another site made a browser send this request.');
        return;
      }
      const verdict = await verdictOnToken(req, guard);
      if (verdict === 'right') next();
      else refuse(res, verdict);
    },
    router,
  };
}

async function verdictOn(req: Request, guard: Guard): Promise<Verdict> {
  const session = parseCookie(req.headers.cookie ?? '')[COOKIE];
  if (session !== undefined && guard.isSession(session, Date.now())) return 'right';
  return verdictOnToken(req, guard);
}

async function verdictOnToken(req: Request, guard: Guard): Promise<Verdict> {
  const token = /^Bearer (.+)$/i.exec(req.headers.authorization ?? '')?.[1];
  return token === undefined ? 'wrong' : guard.tryToken(token, addressOf(req));
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
