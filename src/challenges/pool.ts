import type { Cancellation } from '../base/cancellation.ts';
import type { Credential } from '../digest/authorization.ts';
import { withNonce } from '../digest/challenge.ts';
import { type Lane, Nonce } from './nonce.ts';
import type { ChallengeStore, HeldChallenge } from './store.ts';

/** How long a request waits for another's handshake before it makes its own, in milliseconds. */
const WAIT_MS = 2_000;

export interface PoolOptions {
  /** From `serializeKey`. */
  readonly key: string;
  readonly store: ChallengeStore;
  /** The credential that the key names. */
  readonly credential: Credential;
  /** A new random cnonce. */
  readonly newCnonce: () => string;
  /** Told of a store that failed; the pool goes on with what it has. */
  readonly onStoreError: (error: unknown) => void;
}

/**
 * One handshake, held by the request that pays for it: `offer` the challenge, then `accept` or not,
 * and in the end always `close`.
 */
export class Opening {
  nonce: Nonce | undefined;
}

type Waiter = (entry: Nonce | Opening) => void;

/**
 * The nonces of one key in this process. `reserve` answers at once; a request that finds no nonce
 * waits for another's handshake, never for the store.
 */
export class NoncePool {
  readonly #options: PoolOptions;
  readonly #waiters = new Set<Waiter>();
  #known: Nonce | undefined;
  /** The handshake that others wait for. */
  #opening: Opening | undefined;
  /** The nonce that the store held when this process last looked. */
  #stored: string | undefined;

  constructor(options: PoolOptions) {
    this.#options = options;
  }

  /** Takes over what other processes share. For the start: no request waits for it. */
  async restore(): Promise<void> {
    try {
      const held = await this.#options.store.load(this.#options.key);
      if (held === undefined) return;
      this.#stored = held.challenge.nonce;
      this.#known ??= this.#create(held);
    } catch (error) {
      this.#options.onStoreError(error);
    }
  }

  /** The nonce in use; undefined: none is known, so `enter`. */
  reserve(): Nonce | undefined {
    if (this.#known?.exhausted === true) this.#known = undefined;
    return this.#known;
  }

  /**
   * A nonce from the handshake under way, or the opening of one's own: when none is under way, when
   * it takes too long, when it ended without a challenge, or when the request is given up.
   */
  enter(cancellation: Cancellation): Promise<Nonce | Opening> {
    if (this.#opening === undefined) return Promise.resolve(this.open());
    return new Promise((resolve) => {
      const waiter: Waiter = (entry) => {
        clearTimeout(timer);
        cancellation.onCancel(undefined);
        this.#waiters.delete(waiter);
        resolve(entry);
      };
      const goAlone = (): void => waiter(new Opening());
      const timer = setTimeout(goAlone, WAIT_MS);
      this.#waiters.add(waiter);
      cancellation.onCancel(goAlone);
    });
  }

  /** Begins a handshake. Others wait for it unless a nonce is known or another is under way. */
  open(): Opening {
    const opening = new Opening();
    if (this.#known === undefined) this.#opening ??= opening;
    return opening;
  }

  /** The upstream refused this nonce. A newer one, learned meanwhile, stays. */
  refuse(nonce: Nonce): void {
    if (this.#known === nonce) this.#known = undefined;
  }

  /** Whether others have requests under way in this nonce's lane, or are about to. */
  isContested({ lane }: Nonce): boolean {
    return lane.underWay > 0 || this.#known?.lane === lane;
  }

  /**
   * The upstream's challenge came: the nonce with which this request answers. It is this request's own
   * until the upstream has accepted it: somebody else's answer could be there first, and the server
   * refuse a brand-new nonce (nc out of order, or a nonce that serves once), which would look like a
   * refused credential.
   */
  offer(opening: Opening, held: HeldChallenge): Nonce {
    opening.nonce = this.#create(held);
    return opening.nonce;
  }

  /** The upstream accepted the answer: the nonce serves everyone, unless a newer one does. */
  accept(opening: Opening): void {
    if (opening.nonce !== undefined) this.#publish(opening.nonce);
  }

  /** The upstream asked for no authentication: nobody waits for a challenge that does not come. */
  unchallenged(opening: Opening): void {
    if (this.#opening !== opening) return;
    this.#opening = undefined;
    for (const waiter of [...this.#waiters]) waiter(new Opening());
  }

  /** Ends a handshake. If it brought no nonce, the first who waits begins the next one. */
  close(opening: Opening): void {
    if (this.#opening !== opening) return;
    this.#opening = undefined;
    const [first] = this.#waiters;
    first?.(this.open());
  }

  /** The upstream named the nonce to use after this one (nextnonce, RFC 7616 §3.5). */
  succeed(nonce: Nonce, nextnonce: string): void {
    if (this.#known !== nonce || nextnonce === nonce.challenge.nonce) return;
    this.#known = undefined;
    const challenge = withNonce(nonce.challenge, nextnonce);
    this.#publish(this.#create({ challenge, cookies: nonce.cookies }, nonce.lane));
  }

  #create(held: HeldChallenge, lane?: Lane): Nonce {
    return new Nonce(held, this.#options.credential, this.#options.newCnonce(), lane);
  }

  #publish(nonce: Nonce): void {
    if (this.#known !== undefined) return;
    this.#known = nonce;
    this.#opening = undefined;
    if (nonce.shareable) void this.#share(nonce);
    for (const waiter of [...this.#waiters]) waiter(nonce);
  }

  async #share(nonce: Nonce): Promise<void> {
    const { challenge, cookies } = nonce;
    try {
      const held = await this.#options.store.replace(this.#options.key, this.#stored, { challenge, cookies });
      this.#stored = held.challenge.nonce;
    } catch (error) {
      this.#options.onStoreError(error);
    }
  }
}
