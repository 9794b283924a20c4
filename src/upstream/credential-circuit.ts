import { putBounded } from '../base/bounded-map.ts';
import type { Clock } from '../base/clock.ts';
import { GatewayError } from '../base/errors.ts';
import { credentialRefused } from '../handshake/errors.ts';

const MINUTE_MS = 60_000;

/**
 * Keeps a refused credential away from the upstream: the gateway's address carries every client, and
 * some servers ignore an address after a few failures. Attempts are spread over the minute, and no
 * minute has more of them than allowed.
 */
export class CredentialCircuit {
  readonly #clock: Clock;
  #perMinute: number;
  /** When the last attempts were made, the oldest first; as many as a minute may have. */
  #attempts: readonly number[] = [];

  constructor(clock: Clock, perMinute: number) {
    this.#clock = clock;
    this.#perMinute = perMinute;
  }

  /**
   * Lets one attempt with a refused credential through. Returns when it is counted.
   * @throws GatewayError `upstream-credential-refused` while none is due
   */
  admit(): number {
    const last = this.#attempts.at(-1) ?? Number.NEGATIVE_INFINITY;
    const [first = last] = this.#attempts;
    const full = this.#attempts.length >= this.#perMinute;
    const due = Math.max(last + MINUTE_MS / this.#perMinute, full ? first + MINUTE_MS : last);
    const now = this.#clock.now();
    if (now < due) throw credentialRefused();
    this.#attempts = [...this.#attempts, now].slice(-this.#perMinute);
    return now;
  }

  /** How many attempts a minute may have, those made so far included. */
  get perMinute(): number {
    return this.#perMinute;
  }

  set perMinute(perMinute: number) {
    this.#perMinute = perMinute;
    this.#attempts = this.#attempts.slice(-perMinute);
  }

  /** True if this minute may have another attempt. */
  get hasRoom(): boolean {
    const [first = Number.NEGATIVE_INFINITY] = this.#attempts;
    return this.#attempts.length < this.#perMinute || this.#clock.now() - first >= MINUTE_MS;
  }

  /** Attempts were refused that needed no permission, since the credential was not known to be refused. */
  attempted(count = 1): void {
    const attempts: number[] = Array(count).fill(this.#clock.now());
    this.#attempts = [...this.#attempts, ...attempts].slice(-this.#perMinute);
  }
}

/** Such requests of a client to one path in a minute: a client can write a target that is refused in many ways. */
const PER_PATH = 5;
/** One refusal says little: an upstream that forgets its nonces twice in a round trip looks the same. */
const MIN_PER_TARGET = 2;
/** Targets and paths that are remembered; of a longer one its first characters. */
const MAX_KEYS = 256;
const MAX_KEY_LENGTH = 1_024;

interface Targeted {
  readonly client: string;
  readonly method: string;
  readonly target: string;
}

/**
 * Bounds the failed log-ins with targets that the upstream refuses although it accepts the credential: some servers lock
 * an account or an address out after a few.
 */
export class RefusedTargets {
  readonly #clock: Clock;
  readonly #perTarget: number;
  readonly #circuits = new Map<string, CredentialCircuit>();
  #forgetAt = Number.NEGATIVE_INFINITY;
  /** Refusals so far. */
  count = 0;

  constructor(clock: Clock, perTarget: number) {
    this.#clock = clock;
    this.#perTarget = Math.max(MIN_PER_TARGET, perTarget);
  }

  /**
   * A request ended with this error, which counts if the upstream refused its target. `before`: `count` when it began.
   * Refusals of requests that are under way at the same time are one event for their target.
   */
  note(request: Targeted, error: unknown, before: number): void {
    if (!(error instanceof GatewayError) || error.code !== 'upstream-target-refused') return;
    this.#forgetAt = this.#clock.now() + MINUTE_MS;
    if (before === this.count) this.#circuit(targetKey(request), this.#perTarget).attempted();
    this.count += 1;
    this.#circuit(pathKey(request), PER_PATH).attempted();
  }

  /** The upstream responded to a request with this target, so what it refused before was something else. */
  accepted(request: Targeted): void {
    if (this.#circuits.size === 0) return;
    this.#circuits.delete(targetKey(request));
    this.#circuits.delete(pathKey(request));
  }

  /** True if no such request of this client is due. */
  bars(request: Targeted): boolean {
    if (this.#circuits.size === 0) return false;
    if (this.#clock.now() >= this.#forgetAt) this.#circuits.clear();
    return this.#isFull(targetKey(request)) || this.#isFull(pathKey(request));
  }

  #isFull(key: string): boolean {
    return this.#circuits.get(key)?.hasRoom === false;
  }

  #circuit(key: string, perMinute: number): CredentialCircuit {
    const circuit = this.#circuits.get(key) ?? new CredentialCircuit(this.#clock, perMinute);
    putBounded(this.#circuits, key, circuit, MAX_KEYS);
    return circuit;
  }
}

/** The client and the method: those of others must not bar a request that the upstream would accept. */
function targetKey({ client, method, target }: Targeted): string {
  return `${client} ${method} ${target.slice(0, MAX_KEY_LENGTH)}`;
}

/** No method is empty. Methods count together: a client can invent as many as it likes. */
function pathKey({ client, target }: Targeted): string {
  const [path = ''] = target.split('?', 1);
  return `${client}  ${path.slice(0, MAX_KEY_LENGTH)}`;
}
