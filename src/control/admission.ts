import { createHash, createHmac, randomBytes, timingSafeEqual } from 'node:crypto';
import express, { type Request, type RequestHandler, type Response, Router } from 'express';
import { isLoopbackHost } from '../base/network.ts';
import { sendControlError, sendProblem } from './control-error.ts';
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

/** Wrong tokens from one address within this time before further ones must wait for its end. */
const FAILURES = 10;
const WAIT_MS = 60_000;
/** Number of failure counters. Addresses are hashed onto them, which bounds the memory. */
const COUNTS = 4096;
const SESSION_MS = 12 * 3_600_000;

/** Access that a token or session gives: to everything, or to reading alone. */
export type Access = 'full' | 'read';

/** Result of a token check; a number means too many wrong tokens, and is the time to wait in seconds. */
export type Verdict = Access | 'wrong' | number;

/** Wrong tokens since the first of them. */
interface Failures {
  count: number;
  /** When they are forgotten, in milliseconds of a monotonic clock. */
  readonly until: number;
}

/** SHA-256 of the tokens, in hex. */
export interface TokenHashes {
  readonly full: string;
  /** Undefined: there is no token for reading alone. */
  readonly read?: string | undefined;
}

/** Checks the control plane's tokens against their hashes, and issues sessions. */
export class Guard {
  readonly #hashes: readonly (readonly [Access, Buffer])[];
  /** Random for each process, so that a restart ends every session. */
  readonly #sessionKey = randomBytes(32);
  readonly #failures = new Map<number, Failures>();

  constructor({ full, read }: TokenHashes) {
    const ofRead = read === undefined ? [] : [['read', Buffer.from(read, 'hex')] as const];
    this.#hashes = [['full', Buffer.from(full, 'hex')], ...ofRead];
  }

  /**
   * Checks a token. A right one passes in spite of earlier failures, because clients may share an
   * address. `now`: milliseconds of a monotonic clock.
   */
  tryToken(token: string, address: string, now: number): Verdict {
    const hash = createHash('sha256').update(token).digest();
    for (const [access, wanted] of this.#hashes) if (timingSafeEqual(hash, wanted)) return access;
    const place = this.#seal(address).readUInt32BE() % COUNTS;
    const failures = this.#failures.get(place);
    if (failures === undefined || now >= failures.until) {
      this.#failures.set(place, { count: 1, until: now + WAIT_MS });
      return 'wrong';
    }
    if (failures.count >= FAILURES) return Math.ceil((failures.until - now) / 1000);
    failures.count += 1;
    return 'wrong';
  }

  /** Creates a session for a client with a right token: the cookie's value and its lifetime. */
  openSession(access: Access, now: number): { readonly session: string; readonly lifetimeMs: number } {
    // Random, so that no two sessions are the same.
    const content = `${now + SESSION_MS}.${access}.${randomBytes(12).toString('base64url')}`;
    return { session: `${content}.${this.#seal(content).toString('base64url')}`, lifetimeMs: SESSION_MS };
  }

  /** Returns what a session allows; undefined: it is none, or has ended. */
  accessOf(session: string, now: number): Access | undefined {
    const end = session.lastIndexOf('.');
    const content = session.slice(0, Math.max(0, end));
    const given = Buffer.from(session.slice(end + 1), 'base64url');
    const wanted = this.#seal(content);
    if (given.length !== wanted.length || !timingSafeEqual(given, wanted)) return undefined;
    const [until, access] = content.split('.');
    if (now >= Number(until)) return undefined;
    return access === 'full' || access === 'read' ? access : undefined;
  }

  #seal(text: string): Buffer {
    return createHmac('sha256', this.#sessionKey).update(text).digest();
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
