import type { Clock } from '../base/clock.ts';
import type { GatewayError } from '../base/errors.ts';
import { reportError } from '../base/report-error.ts';
import type { Credential, CredentialSet } from '../credentials/credentials.ts';
import type { ProbeResult } from '../handshake/credential-probe.ts';
import { cannotRepeat, credentialRefused, refusedAgain, targetRefused } from '../handshake/errors.ts';
import { IDEMPOTENT } from '../handshake/request.ts';
import type { UpstreamResponse } from '../handshake/response.ts';
import { AFTER_TRIAL, IN_USE, TRIAL, type Turn } from '../handshake/send-authenticated.ts';
import type { CredentialCircuit } from './credential-circuit.ts';
import type { ClientCall, CredentialVersion, Transport } from './credential-version.ts';
import { NextTrial } from './next-trial.ts';
import type { RefusedTargets } from './refused-targets.ts';
import { Rotation, type RotationNews, type RotationState } from './rotation.ts';
import type { VersionOwner } from './version-owner.ts';

/** Between two trials of a candidate whose result was unclear, in milliseconds. */
const TRIAL_INTERVAL_MS = 1_000;
/** The response to a candidate is a failure from this status on. */
const FAILURE = 400;

/** State in the rotation; `refused`: rejected there, or the upstream refuses it now. */
export type VersionState = Exclude<RotationState, 'rejected'> | 'refused';

/**
 * Result of a test that an operator asked for. `unknown`: there is no such version; `spent`: the upstream has seen as many
 * refused attempts in this minute as it may.
 */
export type VersionTest = ProbeResult['kind'] | 'unknown' | 'in-use' | 'spent';

export interface SelectorOptions {
  /** Bounds the attempts with a credential of which every version is refused. */
  readonly circuit: CredentialCircuit;
  readonly refusedTargets: RefusedTargets;
  readonly clock: Clock;
  readonly open: (credential: Credential, owner: VersionOwner) => CredentialVersion;
  readonly onRotation: (rotation: RotationNews) => void;
}

/**
 * One credential at one upstream. A version is in use; others are tried with a client's request, which the
 * version in use serves if they are refused, and take its place when it is refused.
 */
export class CredentialSelector implements VersionOwner {
  readonly #name: string;
  readonly #options: SelectorOptions;
  readonly #circuit: CredentialCircuit;
  readonly #rotation: Rotation<CredentialVersion>;
  /** The next version, and what other processes know of all of them. */
  readonly trialOfNext: NextTrial;
  /** Transports of the upstreams that use this selector, the latest last. */
  #transports: readonly Transport[] = [];
  #nextTrial = 0;
  /** Number of trials that the circuit admitted; they take the versions in turn. */
  #trials = 0;

  constructor(set: CredentialSet, options: SelectorOptions) {
    this.#name = set.name;
    this.#options = options;
    this.#circuit = options.circuit;
    this.#rotation = new Rotation(options.open(set.current, this));
    this.trialOfNext = new NextTrial(this.#rotation, options.clock);
    this.offer(set);
  }

  /** The version in use. */
  get current(): CredentialVersion {
    return this.#rotation.inUse;
  }

  /** Every version, the one in use first. */
  get versions(): readonly CredentialVersion[] {
    return this.#rotation.versions;
  }

  stateOf(version: CredentialVersion): VersionState {
    const state = this.#rotation.stateOf(version) ?? 'fallback';
    // Of a version that another one has replaced, or that waits for its day, a refusal is nothing to act on.
    return state === 'rejected' || (state === 'in-use' && version.health.refused) ? 'refused' : state;
  }

  isRejected(version: CredentialVersion): boolean {
    return this.#rotation.stateOf(version) === 'rejected';
  }

  /** Takes over the versions that the sources of the credential hold now. A new one is tried before it is used. */
  offer({ current, next, former = [] }: CredentialSet): void {
    const known = this.versions;
    const versionOf = (credential: Credential): CredentialVersion =>
      known.find(({ version }) => version === credential.version) ?? this.#open(credential);
    const left = this.#rotation.offer(versionOf(current), next && versionOf(next), former.map(versionOf));
    for (const { health } of this.#rotation.candidates) if (health.refused) health.reset();
    for (const version of this.versions) if (!known.includes(version)) void version.restore(this.current);
    for (const version of left) this.#close(version);
  }

  /** An upstream uses this selector from now on. */
  attach(transport: Transport): void {
    this.#transports = [...this.#transports, transport];
    for (const version of this.versions) version.attach(transport);
    for (const version of this.#rotation.others) void version.restore(this.current);
  }

  /** An upstream uses it no more. Resolves when the nonces that nobody uses are left to other processes. */
  async detach(transport: Transport): Promise<void> {
    this.#transports = this.#transports.toSpliced(this.#transports.indexOf(transport), 1);
    await Promise.all(this.versions.map((version) => version.detach(transport)));
  }

  /** True if the upstream refuses every version, so that requests fail. */
  get isRefused(): boolean {
    return this.versions.every(({ health }) => health.refused);
  }

  /**
   * Sends a client's request with the version in use; or first with a candidate, of which the client notices
   * nothing.
   * @throws GatewayError when there is no response
   */
  send(call: ClientCall): Promise<UpstreamResponse> {
    if (this.#options.refusedTargets.bars(call.request)) return Promise.reject(targetRefused());
    const candidate = this.#rotation.hasCandidates ? this.#dueCandidate(call) : undefined;
    return candidate === undefined ? this.#sendUsable(call, IN_USE) : this.#tryOut(candidate, call);
  }

  /**
   * Tests a version with a request of the gateway's own, which does not reach the clients. `target`: of that request,
   * unless a better one is known.
   */
  async test(name: string, target: string): Promise<VersionTest> {
    const version = this.#named(name);
    if (version === undefined) return 'unknown';
    if (version === this.current) return 'in-use';
    if (!this.#circuit.hasRoom) return 'spent';
    const result = await this.#probe(version, target);
    if (result.kind !== 'refused') return result.kind;
    version.refuse(result.attempt);
    this.#reject(version);
    return 'refused';
  }

  has(name: string): boolean {
    return this.#named(name) !== undefined;
  }

  /** Puts a version in use that is known to be accepted, if it is there. */
  promote(name: string): void {
    const version = this.#named(name);
    if (version === undefined || version === this.current) return;
    if (version.health.refused) version.health.reset();
    this.#promote(version);
  }

  isInUse(version: CredentialVersion): boolean {
    return version === this.current;
  }

  hasAlternatives(version: CredentialVersion): boolean {
    return version === this.current && this.#rotation.hasOthers;
  }

  isReplaced(version: CredentialVersion): boolean {
    const state = this.#rotation.stateOf(version);
    return state !== 'in-use' && state !== 'candidate' && this.current.health.accepted;
  }

  accepted(version: CredentialVersion, status: number): void {
    const state = this.#rotation.stateOf(version);
    if (state === 'in-use' || state === undefined) return;
    const better = state === 'candidate' && status < FAILURE;
    if (better || this.current.health.refused) this.#promote(version);
  }

  unconfirmed(): void {
    this.#circuit.attempted();
  }

  refused(version: CredentialVersion): void {
    this.#circuit.attempted();
    this.#reject(version);
  }

  confirm(version: CredentialVersion, target: string, refused?: number): void {
    const flight = version.flights.lead();
    void this.#findOut(version, target, refused)
      .catch((error: unknown) => {
        reportError(error);
        // Nothing is known now, so that no request waits for more.
        version.health.reset();
      })
      .finally(() => flight.land('check'));
  }

  /**
   * Settles with requests of the gateway's own whether the upstream takes a version; if it does not, whether it takes
   * another one. Requests are held meanwhile, and what is found holds at once for all. `refused`:
   * an attempt that takes the place of the first probe.
   */
  async #findOut(version: CredentialVersion, target: string, refused: number | undefined): Promise<void> {
    const first: ProbeResult =
      refused === undefined
        ? await this.#probe(version, target)
        : { kind: 'refused', attempt: refused, attempts: 1 };
    if (first.kind === 'accepted') return version.dropIdle();
    if (first.kind === 'unclear') return version.health.reset();
    const others = version === this.current ? this.#rotation.others : [];
    const successor = await this.#firstAccepted(others, target);
    if (successor === undefined && (await this.#isInDoubt(version, target, refused !== undefined))) return;
    version.refuse(first.attempt);
    this.#trials = 0;
    if (successor !== undefined) this.#promote(successor);
    else if (version !== this.current) this.#reject(version);
  }

  /** Asks once more. `isUnproven`: only a client's request was refused so far, perhaps for its target. */
  async #isInDoubt(version: CredentialVersion, target: string, isUnproven: boolean): Promise<boolean> {
    // A nonce that the upstream drops within this round trip is refused, too.
    if (!isUnproven && !this.#circuit.hasRoom) return false;
    const { kind } = await this.#probe(version, target);
    if (kind !== 'unclear' || !isUnproven || !this.#circuit.hasRoom) return kind === 'accepted';
    version.health.reset();
    return true;
  }

  /** Asks the upstream with a request of the gateway's own, and counts the attempts that it refuses. */
  async #probe(version: CredentialVersion, target: string): Promise<ProbeResult> {
    const result = await version.probe(target);
    if (result.kind === 'refused') this.#circuit.attempted(result.attempts);
    return result;
  }

  /** Probes these versions in order; returns the first that the upstream accepts. */
  async #firstAccepted(
    others: readonly CredentialVersion[],
    target: string,
  ): Promise<CredentialVersion | undefined> {
    for (const other of others) {
      const result = await this.#probe(other, target);
      if (result.kind === 'accepted' && this.#rotation.stateOf(other) !== undefined) return other;
      // An earlier refusal says nothing of now: the upstream may have changed over to this version.
      this.#settle(other, result);
    }
    return undefined;
  }

  async #sendUsable(call: ClientCall, turn: Turn): Promise<UpstreamResponse> {
    for (;;) {
      const version = this.current.health.refused ? await this.#standIn(call) : this.current;
      const response = await version.send(call, turn).catch((error) => {
        this.#options.refusedTargets.note(call.request, error);
        throw error;
      });
      if (response !== 'refused') {
        this.#options.refusedTargets.accepted(call.request);
        return response;
      }
      await this.#probeUntried(call);
      // The attempts that are added go out with another version, which the upstream has accepted.
      if (this.isReplaced(version)) call.budget.extendForRotation();
      if (call.budget.spent) throw this.#refusalOf(call);
    }
  }

  /** The error of a request that cannot go on: unless all versions are refused, the next request may succeed. */
  #refusalOf({ budget }: ClientCall): GatewayError {
    if (this.isRefused) return credentialRefused();
    return budget.bodySent ? cannotRepeat() : refusedAgain();
  }

  /**
   * For a request that used up its attempts with a version that is refused: finds out whether the upstream accepts one
   * that nobody has tried since. One request at a time does so, and the others wait for the result.
   */
  async #probeUntried({ request, cancellation, budget }: ClientCall): Promise<void> {
    const { health, flights } = this.current;
    const untried = this.#rotation.others.filter((other) => !other.health.refused);
    if (!budget.noneLeft || !health.refused || untried.length === 0) return;
    if (flights.busy) {
      await flights.follow(cancellation);
    } else {
      const flight = flights.lead();
      // The first that is accepted takes the place of the one in use.
      await this.#firstAccepted(untried, request.target).finally(() => flight.land('check'));
    }
    if (cancellation.reason !== undefined) throw cancellation.reason;
  }

  /**
   * The version to go on with when the one in use is refused. When all are and a trial is due, the gateway asks with a
   * request of its own: that of a client may be refused for its target.
   * @throws GatewayError `upstream-credential-refused` when all are
   */
  async #standIn(call: ClientCall): Promise<CredentialVersion> {
    const found = this.#rotation.others.find(({ health }) => !health.refused);
    if (found !== undefined) return found;
    this.#circuit.admit();
    const { versions } = this;
    const version = versions[this.#trials % versions.length] ?? this.current;
    this.#trials += 1;
    const { flights, health } = version;
    if (!flights.busy) {
      const flight = flights.lead();
      void version
        .probe(call.request.target)
        .then((result) => this.#settle(version, result))
        .catch(reportError)
        .finally(() => flight.land('check'));
    }
    await flights.follow(call.cancellation);
    if (call.cancellation.reason !== undefined) throw call.cancellation.reason;
    if (health.refused) throw credentialRefused();
    return version;
  }

  #settle(version: CredentialVersion, result: ProbeResult): void {
    // If nothing is known then, the next request shows it.
    if (result.kind === 'unclear') version.health.reset();
    if (result.kind !== 'refused') return;
    version.refuse(result.attempt);
    this.#reject(version);
  }

  /** A candidate for this request to try: one request at a time, and one that can be sent again. */
  #dueCandidate({ request }: ClientCall): CredentialVersion | undefined {
    const { clock } = this.#options;
    const { health, flights } = this.current;
    if (request.body.kind === 'streamed' || !health.accepted || flights.busy) return undefined;
    if (clock.now() < this.#nextTrial) return undefined;
    const candidate = this.#rotation.candidates.find((each) => !each.health.refused);
    if (candidate === undefined || !this.#rotation.isNext(candidate)) return candidate;
    if (this.trialOfNext.isClaimed(candidate)) return candidate;
    void this.trialOfNext.claim(candidate).catch(reportError);
    return undefined;
  }

  /** A failure is kept from the client if the request can be sent again, since the version in use may do better. */
  async #tryOut(candidate: CredentialVersion, call: ClientCall): Promise<UpstreamResponse> {
    const { request, cancellation, budget } = call;
    const isIdempotent = IDEMPOTENT.has(request.method);
    this.#nextTrial = Number.POSITIVE_INFINITY;
    let hasFailed = false;
    try {
      const response = await candidate.send(call, TRIAL);
      if (response !== 'refused') {
        if (!isIdempotent || response.status < FAILURE) return response;
        hasFailed = true;
        await candidate.discard(response);
      }
      // The trial is for the gateway's own sake, so it costs the client no attempt.
      budget.oweAttempt();
    } catch (error) {
      if (cancellation.reason !== undefined || !isIdempotent) throw error;
      // The upstream may have seen the attempt, so only one is left.
      budget.answered = Math.max(budget.answered, TRIAL.attempts);
    } finally {
      this.#nextTrial = this.#options.clock.now() + TRIAL_INTERVAL_MS;
    }
    const response = await this.#sendUsable(call, AFTER_TRIAL);
    if (hasFailed && response.status < FAILURE && !this.isInUse(candidate)) this.#reject(candidate);
    return response;
  }

  #promote(version: CredentialVersion): void {
    const former = this.current;
    const left = this.#rotation.promote(version, !former.health.refused);
    this.#tell(former, version, 'promoted');
    if (left !== undefined) this.#close(left);
  }

  #named(name: string): CredentialVersion | undefined {
    return this.versions.find(({ version }) => version === name);
  }

  #open(credential: Credential): CredentialVersion {
    const version = this.#options.open(credential, this);
    for (const transport of this.#transports) version.attach(transport);
    return version;
  }

  #close(version: CredentialVersion): void {
    for (const transport of this.#transports) void version.detach(transport);
  }

  /** The version in use stays, and no further request tries this one. */
  #reject(version: CredentialVersion): void {
    const result = this.#rotation.reject(version);
    if (result === undefined) return;
    if (result === 'waiting') this.trialOfNext.wait(version);
    this.#tell(this.current, version, result === 'waiting' ? 'waiting' : 'refused');
  }

  #tell(from: CredentialVersion, to: CredentialVersion, result: RotationNews['result']): void {
    this.#options.onRotation({ credential: this.#name, from: from.version, to: to.version, result });
  }
}
