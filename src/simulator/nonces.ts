import { createHmac, randomBytes } from 'node:crypto';

export type NonceState = 'fresh' | 'expired' | 'unknown';

/**
 * Issues and recognizes nonces without storing them: a nonce is the base64 form of `<issued ms>:<expires
 * ms>:<salt and keyed hash>`. A new instance has a new key, so it does not recognize nonces of another one.
 */
export class Nonces {
  readonly #key = randomBytes(32);
  readonly #now: () => number;

  constructor(now: () => number) {
    this.#now = now;
  }

  /** Creates a unique nonce; `binding` must be the same in `inspect`. */
  issue(lifetimeMs: number, binding: string): string {
    const issued = this.#now();
    const times = `${issued}:${issued + lifetimeMs}`;
    // Two challenges within one millisecond must have different nonces.
    const salt = randomBytes(8).toString('hex');
    const text = `${times}:${salt}${this.#mac(`nonce ${times}:${salt} ${binding}`)}`;
    return Buffer.from(text, 'latin1').toString('base64');
  }

  inspect(nonce: string, binding: string): NonceState {
    const text = Buffer.from(nonce, 'base64').toString('latin1');
    // Base64 allows several encodings of the same bytes; only the issued one is valid.
    if (Buffer.from(text, 'latin1').toString('base64') !== nonce) return 'unknown';
    const [issued = '', expires = '', tail = ''] = text.split(':');
    const salt = tail.slice(0, 16);
    const right = this.#mac(`nonce ${issued}:${expires}:${salt} ${binding}`);
    if (tail.slice(16) !== right || text !== `${issued}:${expires}:${tail}`) return 'unknown';
    return this.#now() < Number(expires) ? 'fresh' : 'expired';
  }

  /** Returns the cookie for a nonce. */
  cookieOf(nonce: string): string {
    return this.#mac(`cookie ${nonce}`);
  }

  /** One value for each key. */
  get opaque(): string {
    return this.#mac('opaque');
  }

  #mac(text: string): string {
    return createHmac('sha256', this.#key).update(text, 'latin1').digest('hex').slice(0, 32);
  }
}
