import { Cancellation } from '../base/cancellation.ts';
import { timerDelay } from '../base/clock.ts';
import { putBounded } from '../base/maps.ts';
import type { Nonce } from '../challenges/nonce.ts';
import { upstreamTooSlow } from '../handshake/errors.ts';
import type { UpstreamRequest } from '../handshake/exchange.ts';
import { splitTarget } from '../policy/path.ts';
import type { CredentialCircuit } from './credential-circuit.ts';
import type { CredentialVersion, InHand, Question, Reply } from './credential-version.ts';
import type { Versions } from './versions.ts';

/** Clients whose last path is remembered while none is known that asks for authentication. */
const MAX_SERVED = 4;
/** A response that takes so long, in milliseconds, is slow: requests wait for what the gateway asks. */
const SLOW_MS = 1_000;

/** Requests of the gateway's own about the versions of one credential: where they go, and for how long. */
export class Questions {
  readonly #circuit: CredentialCircuit;
  readonly #versions: Versions;
  /**
   * Target of the last GET of a client that was asked for authentication and succeeded, a slow one only while no other one
   * is known; undefined: there was none.
   */
  lastTarget: string | undefined;
  /** True if the response to it was slow. */
  #isSlow = false;
  /** While there is none: paths that served clients, with a nonce that was known. By client, the last one. */
  readonly #served = new Map<string, string>();

  constructor(circuit: CredentialCircuit, versions: Versions) {
    this.#circuit = circuit;
    this.#versions = versions;
  }

  /** A GET of a client succeeds now. */
  served({ client, target, facts }: UpstreamRequest, now: number): void {
    // One without authentication could not be told from one that was signed for nothing.
    if (facts?.challenged !== true) {
      putBounded(this.#served, client, splitTarget(target).path, MAX_SERVED);
      return;
    }
    const isSlow = now - facts.lastAttemptAt >= SLOW_MS;
    if (isSlow && this.lastTarget !== undefined && !this.#isSlow) return;
    this.lastTarget = target;
    this.#isSlow = isSlow;
  }

  /** Does something with a deadline of its own: twice what one response may take. */
  async withDeadline<T>(work: (cancellation: Cancellation) => Promise<T>): Promise<T> {
    const cancellation = new Cancellation();
    const limit = 2 * (this.#options?.timeouts.response ?? 0);
    const timer = setTimeout(() => cancellation.cancel(upstreamTooSlow(limit)), timerDelay(limit));
    try {
      return await work(cancellation);
    } finally {
      clearTimeout(timer);
    }
  }

  /** Counts the attempts that the upstream has refused. */
  count(reply: Reply): void {
    if (reply.kind === 'refused') this.#circuit.attempted(reply.attempts);
  }

  /**
   * Asks whether the upstream accepts a version, at a neutral target: whether it accepts a target of a client says
   * nothing of the credential. If that shows nothing, once more on a new connection with GET, since not every server
   * supports HEAD; if the neutral target wants no authentication, with paths that served clients, and at last with that of
   * `target`, which the upstream may refuse. `inHand`: a refusal whose challenge is answered first, if it
   * came to a request like these: another target may want no authentication, and serve whatever answers.
   */
  async probe(
    version: CredentialVersion,
    target: string,
    cancellation: Cancellation,
    inHand?: InHand,
  ): Promise<Reply> {
    const known = this.#knownPath;
    const method = this.#configured?.method;
    const head: Question = { method: method ?? 'HEAD', target: known ?? this.#neutralTarget, cancellation };
    const get = { ...head, method: method ?? 'GET', options: { freshConnection: true } };
    const isSame = inHand?.target === head.target && [head.method, get.method].includes(inHand.method);
    if (isSame) {
      const options = { challenge: inHand.response };
      const reply = await version.ask({ ...head, method: inHand.method, options });
      if (reply.kind !== 'unclear') return reply;
    }
    // The state of a connection must not speak against a version that was accepted.
    const options = { freshConnection: version.health.accepted };
    const first = await version.ask({ ...head, options });
    if (first.kind !== 'unclear') return first;
    const second = await version.ask(get);
    if (second.kind !== 'unclear' || !second.isUnprotected || known !== undefined) return second;
    return this.#askElsewhere(version, get, splitTarget(target).path);
  }

  /** Asks the question with paths that served clients, and at last with this one. */
  async #askElsewhere(version: CredentialVersion, question: Question, own: string): Promise<Reply> {
    for (const path of new Set(this.#served.values())) {
      if (path === own) continue;
      const reply = await version.ask({ ...question, target: path });
      if (reply.kind === 'accepted') this.lastTarget ??= path;
      if (reply.kind !== 'unclear') return reply;
    }
    return version.ask({ ...question, target: own });
  }

  /** Does something with requests where the version in use has succeeded, as far as is known, the preferred one first. */
  ahead<T>(work: (questions: readonly Question[]) => Promise<T>): Promise<T> {
    const configured = this.#configured;
    const target = configured?.path ?? this.lastTarget ?? this.#neutralTarget;
    const methods = configured === undefined ? ['HEAD', 'GET'] : [configured.method];
    return this.withDeadline((cancellation) =>
      work(methods.map((method) => ({ method, target, cancellation }))),
    );
  }

  /** Obtains a nonce that takes the place of this one; undefined: no path for that is known. */
  async renew(version: CredentialVersion, replaces: Nonce): Promise<Reply | undefined> {
    const target = this.#knownPath;
    if (target === undefined) return undefined;
    const method = this.#configured?.method ?? 'HEAD';
    return this.withDeadline((cancellation) => version.renew(replaces, { method, target, cancellation }));
  }

  /** Of the transport that carries them; undefined: none can be asked. */
  get #options() {
    return this.#versions.latestTransport?.options;
  }

  get #neutralTarget(): string {
    return this.#options?.neutralTarget ?? '/';
  }

  /** The configured request that renews nonces; undefined: there is none. */
  get #configured() {
    const renewAhead = this.#options?.renewAhead;
    return typeof renewAhead === 'object' ? renewAhead : undefined;
  }

  get #knownPath(): string | undefined {
    return this.#configured?.path ?? (this.lastTarget && splitTarget(this.lastTarget).path);
  }
}
