import { parseCookie } from 'cookie';
import express, { type Request, type RequestHandler, type Response, Router } from 'express';
import { Guard } from './guard.ts';
import type { Pages } from './pages.ts';

const COOKIE = 'digest-gateway-session';
/** Names and addresses of this machine. Whoever else's name leads here was made to. */
const LOOPBACK = /^(localhost|127(\.\d{1,3}){3}|\[::1\])(:\d+)?$/i;

/** Who may read: with a token, whoever shows it or has a session; without one, whoever is on this machine. */
export interface Admission {
  /** In front of what machines read. */
  readonly reads: RequestHandler;
  /** In front of the page: leads to the form. */
  readonly looks: RequestHandler;
  /** `/login` and `/logout`. */
  readonly router: Router;
}

/** `tokenSha256` in hex; undefined: no token is asked for. */
export function admission(tokenSha256: string | undefined, pages: Pages): Admission {
  return tokenSha256 === undefined ? forThisMachine() : forHolders(new Guard(tokenSha256), pages);
}

/** A page elsewhere could otherwise have its own name resolve to loopback and read the answers. */
function forThisMachine(): Admission {
  const check: RequestHandler = (req, res, next) => {
    if (LOOPBACK.test(req.headers.host ?? '')) next();
    else {
      const advice =
        'Without control.tokenSha256 the console answers to localhost and loopback addresses only.\n';
      res.status(421).type('text/plain').send(advice);
    }
  };
  return { reads: check, looks: check, router: Router() };
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
    router,
  };
}

async function verdictOn(req: Request, guard: Guard) {
  const session = parseCookie(req.headers.cookie ?? '')[COOKIE];
  if (session !== undefined && guard.isSession(session, Date.now())) return 'right';
  const token = /^Bearer (.+)$/i.exec(req.headers.authorization ?? '')?.[1];
  return token === undefined ? 'wrong' : guard.tryToken(token, addressOf(req));
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
