import type { Clock } from '../base/clock.ts';
import { unlessFailed } from '../base/expected-errors.ts';
import { InFlight } from '../base/in-flight.ts';
import type { ChallengeStore } from '../challenges/store/store.ts';
import type { Credential, CredentialSet } from '../credentials/credentials.ts';
import type { CredentialEvent } from '../handshake/flight-events.ts';
import type { FlightRecorder, RecordedCredential } from '../handshake/flight-recorder.ts';
import {
  CredentialVersion,
  type Renew,
  type Reply,
  type Transport,
  type VersionDeps,
  type VersionIdentity,
} from './credential-version.ts';
import { type CredentialNews, Rotation, type RotationNews, type RotationState } from './rotation.ts';

/** The evidence that the upstream refuses a version. */
type RefusedBy = 'verdict' | 'reply' | 'trial' | 'test';

/** Why a version is put in use. */
type PromotedBy = 'verdict' | 'accepted' | 'trial' | 'operator';

/** Why nothing is known of a version from now on. */
type ResetBy = 'verdict' | 'reply' | 'failure' | 'operator' | 'offer' | 'other-process' | 'due' | 'age';

/** State in the rotation; `refused`: rejected there, or the upstream refuses it now. */
export type VersionState = Exclude<RotationState, 'rejected'> | 'refused';

export interface VersionsDeps extends Omit<SharedEvidenceDeps, 'rotation'>, VersionDeps {
  /** Of the upstream. */
  readonly identity: VersionIdentity;
  /** Called when a candidate was promoted or refused. */
  readonly onRotation: (rotation: RotationNews) => void;
  /** Called when the upstream begins to refuse a version, and when it accepts it again. */
  readonly onHealth: (news: CredentialNews) => void;
}

/**
 * The events of the flight recorder for the ends of trials: a version that is only refused as a candidate is rejected.
 */
const TRIALS = { promoted: 'promoted', refused: 'rejected', waiting: 'waiting' } as const;

/**
 * The versions of one credential: which one is in use, whether the upstream accepts them, and what is reported of that.
 */
export class Versions {
  readonly rotation: Rotation<CredentialVersion>;
  /** Of the credential. */
  readonly name: string;
  /** The evidence of other processes. */
  readonly shared: SharedEvidence;
  readonly #deps: VersionsDeps;
  readonly #renew: Renew;
  /** Those that requests are sent over, the latest last, with the requests under way over each. */
  readonly transports = new Map<Transport, InFlight>();
  /** Those that are detached when their last request is over. */
  readonly #draining = new Set<Transport>();

  constructor(set: CredentialSet, deps: VersionsDeps, renew: Renew) {
    this.name = set.name;
    this.#deps = deps;
    this.#renew = renew;
    this.rotation = new Rotation(new CredentialVersion(set.current, deps.identity, deps, renew));
    this.shared = new SharedEvidence({ ...deps, rotation: this.rotation });
    this.offer(set);
  }

  get inUse(): CredentialVersion {
    return this.rotation.inUse;
  }

  get all(): readonly CredentialVersion[] {
    return this.rotation.versions;
  }

  /** True if the upstream refuses every version, so that requests fail. */
  get areRefused(): boolean {
    return this.all.every(({ health }) => health.refused);
  }

  get latestTransport(): Transport | undefined {
    return [...this.transports.keys()].at(-1);
  }

  stateOf(version: CredentialVersion): VersionState {
    const state = this.rotation.stateOf(version) ?? 'fallback';
    // Of a version that another one has replaced, or that waits for its day, a refusal is nothing to act on.
    return state === 'rejected' || (state === 'in-use' && version.health.refused) ? 'refused' : state;
  }

  /** True if another version has replaced this one, and the upstream accepts it. */
  isReplaced(version: CredentialVersion): boolean {
    return version !== this.inUse && this.inUse.health.accepted;
  }

  /** True if it is no longer part of the rotation, so that no request goes out with it. */
  hasLeft(version: CredentialVersion): boolean {
    return this.rotation.stateOf(version) === undefined;
  }

  named(name: string): CredentialVersion | undefined {
    return this.all.find(({ version }) => version === name);
  }

  /** Takes over the versions that the sources of the credential hold now. */
  offer({ current, next, former = [] }: CredentialSet): void {
    const known = this.all;
    const versionOf = (credential: Credential): CredentialVersion =>
      known.find(({ version }) => version === credential.version) ?? this.#open(credential);
    const left = this.rotation.offer(versionOf(current), next && versionOf(next), former.map(versionOf));
    for (const version of this.rotation.candidates) if (version.health.refused) this.reset(version, 'offer');
    for (const version of this.all) if (!known.includes(version)) void version.restore(this.inUse);
    for (const version of left) this.#close(version);
  }

  /** Goes on with the states of versions at the upstream that is replaced by the one of this credential. */
  takeOver({ all, rotation, shared }: Versions): void {
    const before = this.inUse;
    const states = new Map(all.map((each) => [each.version, rotation.stateOf(each)]));
    if (!this.rotation.takeOver(({ version }) => states.get(version))) return;
    this.shared.retryAt = shared.retryAt;
    if (this.inUse !== before) this.note('promoted', this.all, { by: 'operator' });
  }

  /** An upstream uses the credential from now on. */
  attach(transport: Transport): void {
    this.#draining.delete(transport);
    if (this.transports.has(transport)) return;
    this.transports.set(transport, new InFlight());
    for (const version of this.all) version.attach(transport);
    for (const version of this.rotation.others) void version.restore(this.inUse);
  }

  /**
   * Resolves when the last request over this transport is over: with true if the caller detaches it now; with false if it
   * was attached again meanwhile, or another caller detaches it.
   */
  async drain(transport: Transport): Promise<boolean> {
    const requests = this.transports.get(transport);
    if (requests === undefined) return false;
    this.#draining.add(transport);
    while (requests.count > 0) await requests.idle();
    return this.#draining.delete(transport);
  }

  /** An upstream uses it no more. Resolves when the nonces that nobody uses are left to other processes. */
  async detach(transport: Transport): Promise<void> {
    this.transports.delete(transport);
    await Promise.all(this.all.map((version) => version.detach(transport)));
  }

  /** The upstream accepts this version: it takes the place of one in use that is refused. */
  accept(version: CredentialVersion): void {
    const isNews = version.isRefusalReported;
    if (isNews) this.#report(version, false);
    this.shared.noteAccepted(version, isNews);
    const { inUse } = this.rotation;
    if (version !== inUse && inUse.health.refused) this.promote(version, 'accepted');
  }

  /** Puts a version in use, if it is part of the rotation. */
  promote(version: CredentialVersion, by: PromotedBy): void {
    const former = this.inUse;
    if (version === former || this.hasLeft(version)) return;
    const left = this.rotation.promote(version, !former.health.refused);
    this.#reportRotation(former, version, { result: 'promoted', by });
    if (version.health.accepted) this.shared.noteAccepted(version, true);
    if (left !== undefined) this.#close(left);
  }

  /** The attempt of this number showed that the upstream refuses it; a candidate is not tried any more. */
  refuse(version: CredentialVersion, attempt: number, by: RefusedBy): void {
    const { health } = version;
    if (health.refuse(attempt)) {
      version.refusedAt = this.#deps.clock.now();
      this.note('refused', [version], { by });
      // A refused version is tried again and again.
      if (!version.isRefusalReported) this.#report(version, true);
    }
    if (health.refused) this.reject(version);
  }

  /** The version in use stays, and a candidate is not tried any more. */
  reject(version: CredentialVersion): void {
    const result = this.rotation.reject(version);
    if (result === undefined) return;
    if (result === 'waiting') this.shared.wait(version);
    this.#reportRotation(this.inUse, version, { result: result === 'waiting' ? 'waiting' : 'refused' });
  }

  /** Nothing is known of the version, so that one request tests it again. */
  reset(version: CredentialVersion, by: ResetBy): void {
    reset(this.#deps, version, by);
  }

  /** Records the reply to a question of the gateway's own. */
  noteReply(version: CredentialVersion, reply: Reply, by: 'verification' | 'test'): void {
    const count = reply.kind === 'refused' ? reply.attempts : 0;
    this.note('reply', [version], { by, result: reply.kind, count });
  }

  /** Records a change, or what it follows from. */
  note(
    kind: CredentialEvent['kind'],
    versions: readonly CredentialVersion[],
    details?: Partial<CredentialEvent>,
  ): void {
    const { recorder, recorded } = this.#deps;
    recorder.note(
      recorded,
      kind,
      versions.map(({ version }) => version),
      details,
    );
  }

  #open(credential: Credential): CredentialVersion {
    const version = new CredentialVersion(credential, this.#deps.identity, this.#deps, this.#renew);
    for (const transport of this.transports.keys()) version.attach(transport);
    return version;
  }

  #close(version: CredentialVersion): void {
    for (const transport of this.transports.keys()) void version.detach(transport);
  }

  #report(version: CredentialVersion, refused: boolean): void {
    version.isRefusalReported = refused;
    const { identity, onHealth } = this.#deps;
    onHealth({ deployment: identity.deployment, credential: this.name, version: version.version, refused });
  }

  #reportRotation(
    from: CredentialVersion,
    to: CredentialVersion,
    { result, by = '' }: { readonly result: RotationNews['result']; readonly by?: PromotedBy | '' },
  ): void {
    const { identity, onRotation } = this.#deps;
    const { deployment } = identity;
    this.note(TRIALS[result], result === 'promoted' ? this.all : [to], { by });
    onRotation({ deployment, credential: this.name, from: from.version, to: to.version, result });
  }
}

/** Makes a version unknown, and records why. */
function reset(
  { recorder, recorded }: Pick<SharedEvidenceDeps, 'recorder' | 'recorded'>,
  { health, version }: CredentialVersion,
  by: ResetBy,
): void {
  health.reset();
  recorder.note(recorded, 'reset', [version], { by });
}

/** How long it is known that the upstream accepted a credential, in milliseconds. */
const ACCEPTED_MS = 10 * 60_000;
/** Between two notes for other processes that the upstream accepts a version, in milliseconds. */
const NOTE_EVERY_MS = 3_000;
/** In this time, one process at most tries a next version, in milliseconds. */
const TURN_MS = 60_000;
/** Between two attempts with a next version that the upstream does not accept yet, of all processes, in milliseconds. */
export const WAITING_MS = 6 * 60 * 60_000;
/**
 * While every version is refused: time after a refusal in which notes of other processes do not count, in milliseconds.
 */
const MISLED_MS = 60_000;

export interface SharedEvidenceDeps {
  readonly store: ChallengeStore;
  readonly clock: Clock;
  readonly rotation: Rotation<CredentialVersion>;
  readonly recorder: FlightRecorder;
  /** How the recorder names this credential. */
  readonly recorded: RecordedCredential;
  /** Of notes of any version: each gateway numbers them by itself. From `keyOf`. */
  readonly key: string;
}

/**
 * Shares evidence of one credential among processes: that the upstream accepts it, and which of them tries the next
 * version, so that a wrong one costs all of them one attempt. No method rejects, whatever the store does.
 */
export class SharedEvidence {
  readonly #deps: SharedEvidenceDeps;
  readonly #rotation: Rotation<CredentialVersion>;
  /** When it was noted that the upstream accepts a version. */
  #notedAt = Number.NEGATIVE_INFINITY;
  /** The version that this process may try, and until when, on the clock; then another one may. */
  #claimed: { readonly version: CredentialVersion; readonly until: number } | undefined;
  #isClaiming = false;
  /** When a version that waits is to be tried again. */
  retryAt = 0;
  /** When notes of other processes count again against refusals here. */
  #nextNote = 0;
  /** When they count again for a version that waits. */
  #nextWaitingNote = 0;

  constructor(deps: SharedEvidenceDeps) {
    this.#deps = deps;
    this.#rotation = deps.rotation;
  }

  /** The upstream accepts this version. `isNews`: others may think that it is refused. */
  noteAccepted(version: CredentialVersion, isNews: boolean): void {
    const now = this.#deps.clock.now();
    if (!isNews && now - this.#notedAt < NOTE_EVERY_MS) return;
    this.#notedAt = now;
    const { store, key } = this.#deps;
    void unlessFailed(() => store.noteAccepted(key, ACCEPTED_MS));
    if (this.#rotation.others.length > 0)
      void unlessFailed(() => store.noteAccepted(version.key, ACCEPTED_MS));
  }

  /** True if other processes may know more of this credential than this one: `catchUp`. */
  get mayLearn(): boolean {
    return this.#rotation.waiting !== undefined || this.#isRefused;
  }

  /**
   * Takes over what other processes have seen. When every version is refused, one of them is unknown, that in use
   * first, if the credential was accepted since. A next version that waits is a candidate again if it was, or is due.
   */
  async catchUp(): Promise<void> {
    const now = this.#deps.clock.now();
    const { waiting, versions } = this.#rotation;
    for (const version of this.#isRefused && now >= this.#nextNote ? versions : []) {
      if (!(await this.#isAcceptedSince(this.#deps.key, version)) || !version.health.isKeptBack) continue;
      this.#release(version);
      this.#nextNote = now + MISLED_MS;
      return;
    }
    if (waiting === undefined) return;
    if (now >= this.#nextWaitingNote && (await this.#isAcceptedSince(waiting.key, waiting))) {
      // Gateways number versions by themselves, so the note may be of another one.
      this.#nextWaitingNote = now + WAITING_MS;
      this.#retry(waiting, now + TURN_MS);
      return;
    }
    if (now >= this.retryAt) await this.claim(waiting);
  }

  /** True if this process is the one to try the next version; if it is not, the version waits. */
  async claim(next: CredentialVersion): Promise<boolean> {
    const asked = this.#deps.clock.now();
    if (next === this.#claimed?.version && asked < this.#claimed.until) return true;
    if (this.#isClaiming) return false;
    this.#isClaiming = true;
    const isOurs = await this.#lead(next, TURN_MS);
    this.#isClaiming = false;
    if (isOurs) {
      this.#retry(next, asked + TURN_MS);
      return true;
    }
    this.#claimed = undefined;
    this.retryAt = this.#deps.clock.now() + TURN_MS;
    this.#rotation.postpone(next);
    return false;
  }

  /** The upstream did not accept it: no process tries it for a while. */
  wait(next: CredentialVersion): void {
    this.#claimed = undefined;
    this.retryAt = this.#deps.clock.now() + WAITING_MS;
    void this.#lead(next, WAITING_MS);
  }

  /** The version is a candidate that this process may try until then, on the clock. */
  #retry(next: CredentialVersion, until: number): void {
    this.#claimed = { version: next, until };
    if (this.#rotation.retry(next)) reset(this.#deps, next, 'due');
  }

  /** The version is no longer kept back: one request tests it. */
  #release(version: CredentialVersion): void {
    // One that is held is unknown already.
    if (version.health.refused) reset(this.#deps, version, 'other-process');
    else version.health.reset();
  }

  get #isRefused(): boolean {
    return this.#rotation.versions.every(({ health }) => health.isKeptBack);
  }

  /** True if another process has seen the upstream accept it since it was refused here. */
  async #isAcceptedSince(key: string, { refusedAt }: CredentialVersion): Promise<boolean> {
    const { store, clock } = this.#deps;
    const asked = clock.now();
    const ago = await unlessFailed(() => store.acceptedAgo(key));
    // The reply may come late, so it counts from the question on.
    return ago !== undefined && asked - ago > refusedAt;
  }

  async #lead({ key }: CredentialVersion, ms: number): Promise<boolean> {
    return (await unlessFailed(() => this.#deps.store.lead(`${key} next`, ms))) ?? false;
  }
}
