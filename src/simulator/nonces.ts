import { createHmac, randomBytes } from 'node:crypto';
import { getOrInsert } from '../base/maps.ts';
import type { Behaviour } from './settings.ts';

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

/** Uses of one nonce; `ncs` contains the first values only, in their order. */
export interface NonceUse {
  readonly uses: number;
  readonly highestNc: number;
  readonly ncs: readonly number[];
}

interface Entry {
  uses: number;
  highestNc: number;
  ncs: number[];
  accepted: number;
  highestAccepted: number;
  /** Accepted values within the window. */
  seen: Set<number>;
  dead: boolean;
}

type UseVerdict = 'accepted' | 'used-up' | 'nc' | 'dead';
type UseRules = Pick<Behaviour, 'oneTimeNonces' | 'maxNonceUses' | 'nc' | 'refusedNcKillsNonce'>;

const maxEntries = 100_000;
const maxListed = 1_000;
const windowSize = 50;

/** Uses of each nonce with a correct digest. Keeps the latest 100,000 nonces. */
export class NonceUses {
  readonly #entries = new Map<string, Entry>();
  #distinct = 0;
  #violations = 0;

  /** Number of distinct nonces that were used. */
  get distinct(): number {
    return this.#distinct;
  }

  /** Number of nc values that were not higher than every earlier one of their nonce. */
  get violations(): number {
    return this.#violations;
  }

  /** Lists the uses, ordered by first use, without the nonces themselves. */
  list(): NonceUse[] {
    return Array.from(this.#entries.values(), ({ uses, highestNc, ncs }) => ({
      uses,
      highestNc,
      ncs: [...ncs],
    }));
  }

  /** Records a correct digest with this nonce; `nc` is undefined without qop. */
  see(nonce: string, nc: number | undefined): void {
    const entry = this.#entry(nonce);
    entry.uses += 1;
    if (nc === undefined) return;
    if (nc <= entry.highestNc) this.#violations += 1;
    entry.highestNc = Math.max(entry.highestNc, nc);
    if (entry.ncs.length < maxListed) entry.ncs.push(nc);
  }

  /** Uses the nonce once more, unless the rules forbid it. */
  accept(nonce: string, nc: number | undefined, rules: UseRules): UseVerdict {
    const entry = this.#entry(nonce);
    if (entry.dead) return 'dead';
    const limit = rules.oneTimeNonces ? 1 : (rules.maxNonceUses ?? Number.POSITIVE_INFINITY);
    if (entry.accepted >= limit) return 'used-up';
    if (nc !== undefined && !fits(entry, nc, rules.nc)) {
      entry.dead = rules.refusedNcKillsNonce;
      return 'nc';
    }
    entry.accepted += 1;
    entry.highestAccepted = Math.max(entry.highestAccepted, nc ?? 0);
    if (nc !== undefined && rules.nc === 'window') {
      entry.seen.add(nc);
      entry.seen.delete(entry.accepted - windowSize);
    }
    return 'accepted';
  }

  #entry(nonce: string): Entry {
    return getOrInsert(this.#entries, nonce, () => {
      this.#distinct += 1;
      if (this.#entries.size >= maxEntries) {
        const [oldest = ''] = this.#entries.keys();
        this.#entries.delete(oldest);
      }
      return {
        uses: 0,
        highestNc: 0,
        ncs: [],
        accepted: 0,
        highestAccepted: 0,
        seen: new Set(),
        dead: false,
      };
    });
  }
}

function fits(entry: Entry, nc: number, rule: UseRules['nc']): boolean {
  if (rule === 'unchecked') return true;
  if (rule === 'rising') return nc > entry.highestAccepted;
  const near = nc > Math.max(0, entry.accepted - windowSize) && nc <= entry.accepted + windowSize;
  return near && !entry.seen.has(nc);
}
