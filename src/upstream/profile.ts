import type { Cancellation } from '../base/cancellation.ts';
import type { Clock } from '../base/clock.ts';
import type { Credential, CredentialSet } from '../credentials/credentials.ts';
import { CredentialCircuit } from './credential-circuit.ts';
import type { CredentialVersion, VersionOwner } from './credential-version.ts';
import { isCredentialRefused } from './refusals.ts';
import { IDEMPOTENT, type UpstreamRequest } from './signing.ts';
import type { AnswerSink } from './sink.ts';
import { FAILURE, TrialAnswer } from './trial-answer.ts';

/** Between two trials of a candidate that told nothing, in milliseconds. */
const TRIAL_INTERVAL_MS = 1_000;
/** How often one request is sent anew because the version that it went out with was refused. */
const MAX_ROUNDS = 4;

/** `in-use`; `candidate`: waits for its trial; `kept`: was in use, or could be again; `refused`. */
export type VersionState = 'refused' | 'in-use' | 'candidate' | 'kept';

/** A candidate was tried. */
export interface Rotation {
  readonly credential: string;
  /** The version in use so far. */
  readonly from: string;
  /** The candidate. */
  readonly to: string;
  /** `refused`: by its Digest, or since it got a failure where the version in use does not. */
  readonly result: 'promoted' | 'refused';
}

export interface ProfileOptions {
  /** Attempts in a minute with a credential of which every version is refused. */
  readonly attemptsWhenRefused: number;
  readonly clock: Clock;
  readonly open: (credential: Credential, owner: VersionOwner) => CredentialVersion;
  readonly onRotation: (rotation: Rotation) => void;
}

/**
 * One credential at one upstream. A version is in use; others are tried with a client's request, which the
 * version in use serves if they are refused, and stand in when the version in use is refused.
 */
export class Profile implements VersionOwner {
  readonly #name: string;
  readonly #options: ProfileOptions;
  readonly #circuit: CredentialCircuit;
  #current: CredentialVersion;
  /** What else its sources hold, in the order in which it stands in. */
  #others: readonly CredentialVersion[] = [];
  /** Those of `#others` that no request has tried yet. */
  #candidates: readonly CredentialVersion[] = [];
  /** Those of `#others` that were tried in vain. */
  #rejected: readonly CredentialVersion[] = [];
  /** What the sources hold. */
  #wanted: readonly CredentialVersion[] = [];
  #nextTrial = 0;
  /** Of the circuit's trials, which go through all versions. */
  #trials = 0;

  constructor(set: CredentialSet, options: ProfileOptions) {
    this.#name = set.name;
    this.#options = options;
    this.#circuit = new CredentialCircuit(options.clock, options.attemptsWhenRefused);
    this.#current = options.open(set.current, this);
    this.offer(set);
  }

  /** The version in use. */
  get current(): CredentialVersion {
    return this.#current;
  }

  /** Every version, the one in use first. */
  get versions(): readonly CredentialVersion[] {
    return [this.#current, ...this.#others];
  }

  stateOf(version: CredentialVersion): VersionState {
    if (version.standing.refused || this.isRejected(version)) return 'refused';
    if (version === this.#current) return 'in-use';
    return this.#candidates.includes(version) ? 'candidate' : 'kept';
  }

  isRejected(version: CredentialVersion): boolean {
    return this.#rejected.includes(version);
  }

  /** What the sources of the credential hold now. What is new is tried, unless `next` is in use already. */
  offer(set: CredentialSet): void {
    const wanted = set.next === undefined ? [set.current] : [set.current, set.next];
    const known = this.versions;
    this.#wanted = wanted.map(
      (credential) =>
        known.find(({ version }) => version === credential.version) ?? this.#options.open(credential, this),
    );
    this.#others = this.#wanted.filter((version) => version !== this.#current);
    const isNew = (version: CredentialVersion) => !known.includes(version);
    this.#candidates = this.#others.filter((each) => isNew(each) || this.#candidates.includes(each));
    this.#rejected = this.#rejected.filter((each) => this.#others.includes(each));
    for (const version of this.#candidates) if (isNew(version)) void version.restore(this.#current);
    for (const version of known) if (!this.versions.includes(version)) void version.close();
  }

  /**
   * Sends a client's request with the version in use; or first with a candidate, of which the client notices
   * nothing.
   * @throws GatewayError when no answer reached the sink, or when it broke off
   */
  send(request: UpstreamRequest, sink: AnswerSink, cancellation: Cancellation): Promise<void> {
    const candidate = this.#candidates.length === 0 ? undefined : this.#dueCandidate(request);
    return candidate === undefined
      ? this.#sendUsable(request, sink, cancellation)
      : this.#tryOut(candidate, request, sink, cancellation);
  }

  /** The caller sends no new requests. Resolves when the nonces that nobody uses are left to other processes. */
  async close(): Promise<void> {
    await Promise.all(this.versions.map((version) => version.close()));
  }

  isInUse(version: CredentialVersion): boolean {
    return version === this.#current;
  }

  accepted(version: CredentialVersion, status: number): void {
    if (version === this.#current || !this.#others.includes(version)) return;
    const better = this.#candidates.includes(version) && status < FAILURE;
    if (better || this.#current.standing.refused) this.#promote(version);
  }

  refused(version: CredentialVersion): void {
    this.#circuit.attempted();
    if (version !== this.#current) {
      this.#reject(version);
      return;
    }
    // The upstream may have changed over: what it refused before may be what it wants now.
    for (const other of this.#others) other.standing.pardon();
    this.#trials = 0;
  }

  async #sendUsable(request: UpstreamRequest, sink: AnswerSink, cancellation: Cancellation): Promise<void> {
    for (let round = 1; ; round += 1) {
      const version = this.#current.standing.refused ? this.#standIn() : this.#current;
      const handshake = version.handshake(request, sink, cancellation, version.standing.refused);
      try {
        await handshake.run();
        return;
      } catch (error) {
        if (round === MAX_ROUNDS || !isCredentialRefused(error) || !handshake.repeatable) throw error;
      }
    }
  }

  /**
   * The version to go on with when the one in use is refused.
   * @throws GatewayError `upstream-credential-refused` when all are, and no trial is due
   */
  #standIn(): CredentialVersion {
    const found = this.#others.find(({ standing }) => !standing.refused);
    if (found !== undefined) return found;
    this.#circuit.admit();
    const { versions } = this;
    const version = versions[this.#trials % versions.length] ?? this.#current;
    this.#trials += 1;
    return version;
  }

  /** A candidate for this request to try: one request at a time, and one that can be sent again. */
  #dueCandidate({ body }: UpstreamRequest): CredentialVersion | undefined {
    const { clock } = this.#options;
    if (body.kind === 'streamed' || !this.#current.standing.proven) return undefined;
    if (clock.now() < this.#nextTrial) return undefined;
    return this.#candidates.find(({ standing }) => !standing.refused);
  }

  async #tryOut(
    candidate: CredentialVersion,
    request: UpstreamRequest,
    sink: AnswerSink,
    cancellation: Cancellation,
  ): Promise<void> {
    const { clock } = this.#options;
    this.#nextTrial = Number.POSITIVE_INFINITY;
    const tried = new TrialAnswer(sink, IDEMPOTENT.has(request.method));
    try {
      await candidate.handshake(request, tried, cancellation).run();
    } catch (error) {
      const repeatable = isCredentialRefused(error) || IDEMPOTENT.has(request.method);
      if (tried.passed || cancellation.reason !== undefined || !repeatable) throw error;
    } finally {
      this.#nextTrial = clock.now() + TRIAL_INTERVAL_MS;
    }
    if (tried.passed) return;
    const answer = new TrialAnswer(sink, false);
    await this.#sendUsable(request, answer, cancellation);
    const worse = tried.status !== undefined && (answer.status ?? FAILURE) < FAILURE;
    if (worse && !this.isInUse(candidate)) this.#reject(candidate);
  }

  #promote(version: CredentialVersion): void {
    const former = this.#current;
    const isOther = (other: CredentialVersion): boolean => other !== version;
    const keepsFormer = this.#wanted.includes(former) || !former.standing.refused;
    this.#current = version;
    this.#others = [...(keepsFormer ? [former] : []), ...this.#others.filter(isOther)];
    this.#candidates = this.#candidates.filter(isOther);
    this.#rejected = this.#rejected.filter(isOther);
    this.#tell(former, version, 'promoted');
    if (!keepsFormer) void former.close();
  }

  /** The version in use stays, and no further request tries this one. */
  #reject(version: CredentialVersion): void {
    if (!this.#candidates.includes(version)) return;
    this.#candidates = this.#candidates.filter((other) => other !== version);
    this.#rejected = [...this.#rejected, version];
    this.#tell(this.#current, version, 'refused');
  }

  #tell(from: CredentialVersion, to: CredentialVersion, result: Rotation['result']): void {
    this.#options.onRotation({ credential: this.#name, from: from.version, to: to.version, result });
  }
}
