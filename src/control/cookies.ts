import type { Request, Response } from 'express';
import { SIGN_IN_MS } from './oidc.ts';

const SESSION = 'digest-gateway-session';
const TRANSACTION = 'digest-gateway-sign-in';
/** Longest value that is read, in characters. */
const MAX_VALUE = 2_048;

/** The cookies of the console. */
export class Cookies {
  readonly #isSecure: boolean;

  /** `publicOrigin`: the address of the console in browsers, if it is configured. */
  constructor(publicOrigin: string | undefined) {
    this.#isSecure = publicOrigin?.startsWith('https:') === true;
  }

  /** The session of a request; undefined: it has none. */
  session(req: Request): string | undefined {
    return this.#read(req, SESSION);
  }

  setSession(req: Request, res: Response, value: string, lifeMs: number): void {
    res.cookie(this.#name(SESSION), value, { ...this.#options(req, 'strict'), maxAge: lifeMs });
  }

  clearSession(req: Request, res: Response): void {
    res.clearCookie(this.#name(SESSION), this.#options(req, 'strict'));
  }

  /** The sign-in that this browser began. */
  signIn(req: Request): string | undefined {
    return this.#read(req, TRANSACTION);
  }

  /** A browser sends a strict cookie not with a navigation from the page of the provider, so this one is lax. */
  setSignIn(req: Request, res: Response, value: string): void {
    res.cookie(this.#name(TRANSACTION), value, { ...this.#options(req, 'lax'), maxAge: SIGN_IN_MS });
  }

  clearSignIn(req: Request, res: Response): void {
    res.clearCookie(this.#name(TRANSACTION), this.#options(req, 'lax'));
  }

  /** The prefix keeps other hosts of the domain from setting the cookie. */
  #name(name: string): string {
    return this.#isSecure ? `__Host-${name}` : name;
  }

  #options(req: Request, sameSite: 'strict' | 'lax') {
    return { httpOnly: true, sameSite, secure: this.#isSecure || req.secure, path: '/' } as const;
  }

  /** No value has a character that would be quoted or encoded. */
  #read(req: Request, name: string): string | undefined {
    const start = `${this.#name(name)}=`;
    const pairs = (req.headers.cookie ?? '').split(';').map((pair) => pair.trim());
    const value = pairs.find((pair) => pair.startsWith(start))?.slice(start.length);
    return value !== undefined && value.length <= MAX_VALUE ? value : undefined;
  }
}
