import { createHmac, randomBytes } from 'node:crypto';

export type NonceState = 'fresh' | 'expired' | 'unknown';

/**
 * Issues nonces and knows them again without remembering any: a nonce is the base64 form of
 * `<issued ms>:<expires ms>:<salt and keyed hash>`. A new instance has a new key, so it knows none of
 * the nonces that another one issued.
 */
export class Nonces {
  readonly #key = randomBytes(32);
  readonly #now: () => number;

  constructor(now: () => number) {
    this.#now = now;
  }

  /** A nonce that no other call gives; `binding` must be the same when it is inspected. */
  issue(lifetimeMs: number, binding: string): string {
    const issued = this.#now();
    const times = `${issued}:${issued + lifetimeMs}`;
    // Two challenges within one millisecond must differ.
    const salt = randomBytes(8).toString('hex');
    const text = `${times}:${salt}${this.#mac(`nonce ${times}:${salt} ${binding}`)}`;
    return Buffer.from(text, 'latin1').toString('base64');
  }

  inspect(nonce: string, binding: string): NonceState {
    const text = Buffer.from(nonce, 'base64').toString('latin1');
    // Base64 has more than one spelling of the same bytes; a nonce is known by its own spelling only.
    if (Buffer.from(text, 'latin1').toString('base64') !== nonce) return 'unknown';
    const [issued = '', expires = '', tail = ''] = text.split(':');
    const salt = tail.slice(0, 16);
    const right = this.#mac(`nonce ${issued}:${expires}:${salt} ${binding}`);
    if (tail.slice(16) !== right || text !== `${issued}:${expires}:${tail}`) return 'unknown';
    return this.#now() < Number(expires) ? 'fresh' : 'expired';
  }

  /** The cookie that belongs to a nonce. */
  cookieOf(nonce: string): string {
    return this.#mac(`cookie ${nonce}`);
  }

  /** One value for as long as the key lives. */
  get opaque(): string {
    return this.#mac('opaque');
  }

  #mac(text: string): string {
    return createHmac('sha256', this.#key).update(text, 'latin1').digest('hex').slice(0, 32);
  }
}
