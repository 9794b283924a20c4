import express, { type Request, type Response, Router } from 'express';
import type { AdminDetails } from '../audit/record.ts';
import { addressOf } from '../base/client-address.ts';
import { senderNetwork } from '../base/network.ts';
import type { Metrics } from '../metrics/metrics.ts';
import { FairQueue, type Queued } from '../transport/fair-queue.ts';
import { isCrossSite, ROLES_OF_TOKEN } from './admission.ts';
import { clientGone } from './client-gone.ts';
import { ControlError, type ControlErrorCode, sendControlError } from './control-error.ts';
import { CALLBACK, type OidcClient, SIGN_IN_MS, SignInError } from './oidc.ts';
import { operatorDetails, RoleMissingError, type SignedIn } from './operators.ts';
import type { Pages } from './pages.ts';
import type { Cookies, Holder, Session, Sessions } from './sessions.ts';
import { isAccess, type TokenGuard } from './token-guard.ts';

/** Sign-ins that wait for the provider at the same time. */
const MAX_SIGN_INS = 16;
/** How long a sign-in may wait for its turn, in milliseconds. */
export const MAX_WAIT_MS = 30_000;

type SignInEvent = 'sign-in' | 'sign-in-refused' | 'sign-out';

export interface LoginDeps {
  /** Undefined: no token is configured. */
  readonly guard: TokenGuard | undefined;
  /** Undefined: sign-in by name is not configured. */
  readonly oidc: OidcClient | undefined;
  readonly sessions: Sessions;
  readonly cookies: Cookies;
  readonly publicOrigin: string | undefined;
  readonly pages: Pages;
  readonly lifeMs: number;
  readonly metrics: Pick<Metrics, 'signIns'>;
  /** Records who signed in and out, and which person was refused. */
  readonly record: (event: SignInEvent, details: AdminDetails) => void;
  /** Logs why a sign-in failed. */
  readonly onFailure: (code: ControlErrorCode, reason: string) => void;
}

/** Serves `/login` and `/logout`: with a token, and with the provider of names. */
export function loginRouter(deps: LoginDeps): Router {
  const { guard, oidc } = deps;
  const router = Router();
  router.get('/login', (_req, res) => deps.pages.sendLogin(res, 200));
  if (guard !== undefined) {
    const form = express.urlencoded({ extended: false, limit: '4kb' });
    router.post('/login', form, (req, res) => signInByToken(req, res, guard, deps));
  }
  if (oidc !== undefined) {
    const turns = new SignInTurns(MAX_SIGN_INS);
    // A link, not a form: the content security policy lets no form lead to another site.
    router.get('/login/start', (req, res) =>
      withErrorPage(res, deps, async () => {
        const { url, transaction } = await oidc.begin();
        deps.cookies.set(req, res, 'signIn', transaction, SIGN_IN_MS);
        res.redirect(303, url);
      }),
    );
    router.get(CALLBACK, (req, res) =>
      withErrorPage(res, deps, async () => {
        const sealed = deps.cookies.read(req, 'signIn');
        deps.cookies.clear(req, res, 'signIn');
        const [path = ''] = req.originalUrl.split('?', 1);
        const search = req.originalUrl.slice(path.length);
        const transaction = await oidc.resume(search, sealed);
        const signal = AbortSignal.any([clientGone(res), AbortSignal.timeout(MAX_WAIT_MS)]);
        using place = await turns.take(addressOf(req.socket), signal);
        if (place === undefined) throw new ControlError('sign-ins-pending');
        openFor(req, res, await signedIn(req, deps, oidc.complete(search, transaction)), deps);
        // A redirect would still count as one of the provider's page, without the strict cookie.
        deps.pages.sendForward(res, 'Signed in', '/');
      }),
    );
  }
  router.post('/logout', (req, res) => signOut(req, res, deps));
  return router;
}

function signInByToken(
  req: Request,
  res: Response,
  guard: TokenGuard,
  deps: LoginDeps,
): void | Promise<void> {
  if (isForeignForm(req, deps.publicOrigin)) {
    const { status, message, code } = new ControlError('cross-site');
    deps.metrics.signIns.inc({ result: code });
    return deps.pages.sendLogin(res, status, message, code);
  }
  const token: unknown = req.body?.token;
  const given = typeof token === 'string' ? token : '';
  const address = addressOf(req.socket);
  const verdict = guard.tryToken(given, address, performance.now());
  if (isAccess(verdict)) {
    openFor(req, res, { roles: ROLES_OF_TOKEN[verdict], operator: undefined }, deps);
    res.redirect(303, '/');
    return;
  }
  deps.metrics.signIns.inc({ result: verdict === 'wrong' ? 'token-wrong' : 'token-delayed' });
  if (verdict === 'wrong') return deps.pages.sendLogin(res, 401, 'That is not the token.');
  res.set('retry-after', String(verdict));
  const message = `Too many wrong tokens from your address. Try again in ${verdict} seconds.`;
  return deps.pages.sendLogin(res, 429, message);
}

/** Records who signed in, or which person the provider knows and the gateway refuses. */
async function signedIn(req: Request, deps: LoginDeps, completing: Promise<SignedIn>): Promise<SignedIn> {
  const address = addressOf(req.socket);
  try {
    return await completing;
  } catch (error) {
    // A code that the provider did not issue must not fill the audit log.
    if (error instanceof ControlError && !(error instanceof SignInError)) {
      const person = error instanceof RoleMissingError ? error.operator : undefined;
      deps.record('sign-in-refused', { by: 'oidc', address, code: error.code, ...operatorDetails(person) });
    }
    throw error;
  }
}

/** @throws ControlError if too many sessions are open */
function openFor(req: Request, res: Response, holder: Holder, deps: LoginDeps): void {
  const value = deps.sessions.open(holder);
  if (value === undefined) throw new ControlError('sessions-full');
  deps.cookies.set(req, res, 'session', value, deps.lifeMs);
  deps.metrics.signIns.inc({ result: 'ok' });
  deps.record('sign-in', { ...senderOf(req, holder), roles: [...holder.roles] });
}

/** Runs a step of a sign-in; what goes wrong is a page with its sentence and code. */
async function withErrorPage(
  res: Response,
  { pages, metrics, onFailure }: LoginDeps,
  step: () => Promise<void>,
): Promise<void> {
  try {
    await step();
  } catch (error) {
    if (!(error instanceof ControlError)) throw error;
    const { status, message, code, headers } = error;
    metrics.signIns.inc({ result: code });
    onFailure(code, error instanceof SignInError ? error.reason : message);
    await pages.sendLogin(res.set(headers), status, message, code);
  }
}

async function signOut(req: Request, res: Response, deps: LoginDeps): Promise<void> {
  const { sessions, cookies, pages } = deps;
  if (isForeignForm(req, deps.publicOrigin)) return sendControlError(res, 'cross-site');
  const value = cookies.read(req, 'session');
  const session = value === undefined ? undefined : sessions.find(value);
  cookies.clear(req, res, 'session');
  if (session !== undefined) {
    sessions.end(session.id);
    deps.record('sign-out', senderOf(req, session));
  }
  const url = await signOutUrl(session, deps);
  if (url === undefined) res.redirect(303, '/login');
  else pages.sendForward(res, 'Signed out', url);
}

/** Where the session at the provider ends, too; undefined: there is no such place, or the provider is down. */
async function signOutUrl(
  session: Session | undefined,
  { oidc, onFailure }: LoginDeps,
): Promise<string | undefined> {
  if (session?.idToken === undefined) return undefined;
  try {
    return await oidc?.signOutUrl(session.idToken);
  } catch (error) {
    if (!(error instanceof SignInError)) throw error;
    onFailure(error.code, error.reason);
    return undefined;
  }
}

/**
 * True if a browser says that a page elsewhere sends the form: it could sign somebody in with a token of its own. Over
 * plain HTTP to another machine a browser says nothing else than the origin `null`, since the pages send no referrer.
 */
function isForeignForm(req: Request, publicOrigin: string | undefined): boolean {
  const { origin, 'sec-fetch-site': site } = req.headers;
  return !(origin === 'null' && site === undefined) && isCrossSite(req, publicOrigin);
}

function senderOf(req: Request, { operator }: Holder): AdminDetails {
  const by = operator === undefined ? 'token' : 'oidc';
  return { by, address: addressOf(req.socket), ...operatorDetails(operator) };
}

interface Turn extends Queued<Turn> {
  readonly begin: () => void;
}

/**
 * Places of sign-ins that wait for the provider. The next ones wait instead of being refused, and the networks that they
 * come from take turns: otherwise a stranger who starts sign-ins without end would keep everybody else out.
 */
export class SignInTurns {
  #free: number;
  readonly #waiting = new FairQueue<Turn>();

  constructor(places: number) {
    this.#free = places;
  }

  /** Resolves to a place, which disposing frees; undefined: the signal was aborted before. */
  async take(address: string, signal: AbortSignal): Promise<Disposable | undefined> {
    if (this.#free > 0) {
      this.#free -= 1;
      return this.#place();
    }
    if (signal.aborted) return undefined;
    const { promise, resolve } = Promise.withResolvers<Disposable | undefined>();
    const leave = (): void => {
      this.#waiting.remove(turn);
      resolve(undefined);
    };
    const begin = (): void => {
      signal.removeEventListener('abort', leave);
      resolve(this.#place());
    };
    const turn: Turn = { client: senderNetwork(address), previous: undefined, next: undefined, begin };
    signal.addEventListener('abort', leave, { once: true });
    this.#waiting.add(turn);
    return promise;
  }

  #place(): Disposable {
    return {
      [Symbol.dispose]: () => {
        const next = this.#waiting.take();
        if (next === undefined) this.#free += 1;
        else next.begin();
      },
    };
  }
}
