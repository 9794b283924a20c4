import type { Clock } from '../base/clock.ts';
import { GatewayError } from '../base/errors.ts';
import { putBounded } from '../base/maps.ts';
import { credentialRefused } from '../handshake/errors.ts';
import { splitTarget } from '../policy/path.ts';

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
/** And to all of its paths, for each that one target may have. */
const PER_CLIENT = 10;
/** Refusals of a client's requests that are under way at the same time and count once. */
const MAX_CROWD = 16;
/** One refusal says little: an upstream that forgets its nonces twice in a round trip looks the same. */
const MIN_PER_TARGET = 2;
/** Targets and paths that are remembered, and paths that serve; of a longer one its first characters. */
const MAX_KEYS = 256;
const MAX_KEY_LENGTH = 1_024;

/** The refusals of one target, path or client in the last minute. */
interface Refusals {
  readonly circuit: CredentialCircuit;
  /** `count` when the last one was counted. */
  countedAt: number;
  /** Refusals since then that were not. */
  crowd: number;
}

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
  readonly #refusals = new Map<string, Refusals>();
  /** Paths of a client that got a response while refusals are remembered. */
  readonly #serving = new Map<string, true>();
  #forgetAt = Number.NEGATIVE_INFINITY;
  /** Refusals so far. */
  count = 0;

  constructor(clock: Clock, perTarget: number) {
    this.#clock = clock;
    this.#perTarget = Math.max(MIN_PER_TARGET, perTarget);
  }

  /**
   * A request ended with this error, which counts if the upstream refused its target. `before`: `count` when it began.
   * Refusals of requests that are under way at the same time are one event for their target and, up to `MAX_CROWD`,
   * for their client: an upstream that forgets its nonces looks the same. `isShown`: false if only a known nonce was
   * refused, which may have ended; then only the path and the client count.
   */
  note(request: Targeted, error: unknown, before: number, isShown = true): void {
    if (!(error instanceof GatewayError) || error.code !== 'upstream-target-refused') return;
    this.#forgetAt = this.#clock.now() + MINUTE_MS;
    this.count += 1;
    if (this.#isFull(clientKey(request))) this.#servesNoMore(clientKey(request));
    if (isShown) this.#refused(targetKey(request), this.#perTarget, before);
    this.#refused(pathKey(request), PER_PATH, this.count);
    // Last, so that no other key takes its place.
    this.#refused(clientKey(request), PER_CLIENT * this.#perTarget, before, MAX_CROWD);
  }

  /** A body of this client that was not kept was refused with a known nonce: its target may be refused, or the nonce. */
  suspect(request: Targeted): void {
    this.#forgetAt = this.#clock.now() + MINUTE_MS;
    this.#refusalsOf(clientKey(request), PER_CLIENT * this.#perTarget);
  }

  /** True if it was in the last minute: with a nonce of its own, the next refusal shows what is refused. */
  suspects(request: Targeted): boolean {
    return this.#refusals.has(clientKey(request));
  }

  /** The upstream responded to a request with this target, so what it refused before was something else. */
  accepted(request: Targeted): void {
    if (this.#refusals.size === 0) return;
    const path = pathKey(request);
    this.#refusals.delete(targetKey(request));
    this.#refusals.delete(path);
    putBounded(this.#serving, path, true, MAX_KEYS);
  }

  /** True if no such request of this client is due. */
  bars(request: Targeted): boolean {
    if (this.#refusals.size === 0) return false;
    if (this.#clock.now() >= this.#forgetAt) {
      this.#refusals.clear();
      this.#serving.clear();
    }
    const path = pathKey(request);
    if (this.#isFull(targetKey(request)) || this.#isFull(path)) return true;
    return this.#isFull(clientKey(request)) && !this.#serving.has(path);
  }

  /** A request was sent only because its path had served: another target of a path that serves can be refused. */
  #servesNoMore(client: string): void {
    for (const path of this.#serving.keys()) if (path.startsWith(client)) this.#serving.delete(path);
  }

  #isFull(key: string): boolean {
    return this.#refusals.get(key)?.circuit.hasRoom === false;
  }

  #refused(key: string, perMinute: number, before: number, maxCrowd = Number.POSITIVE_INFINITY): void {
    const refusals = this.#refusalsOf(key, perMinute);
    refusals.crowd += 1;
    if (before < refusals.countedAt && refusals.crowd < maxCrowd) return;
    refusals.circuit.attempted();
    refusals.countedAt = this.count;
    refusals.crowd = 0;
  }

  #refusalsOf(key: string, perMinute: number): Refusals {
    const circuit = (): CredentialCircuit => new CredentialCircuit(this.#clock, perMinute);
    const refusals = this.#refusals.get(key) ?? { circuit: circuit(), countedAt: 0, crowd: 0 };
    putBounded(this.#refusals, key, refusals, MAX_KEYS);
    return refusals;
  }
}

/** The client and the method: those of others must not bar a request that the upstream would accept. */
function targetKey({ client, method, target }: Targeted): string {
  return `${client} ${method} ${target.slice(0, MAX_KEY_LENGTH)}`;
}

/** No path is empty. */
function clientKey({ client }: Targeted): string {
  return `${client}  `;
}

/** No method is empty. Methods count together: a client can invent as many as it likes. */
function pathKey({ client, target }: Targeted): string {
  return `${client}  ${splitTarget(target).path.slice(0, MAX_KEY_LENGTH)}`;
}
