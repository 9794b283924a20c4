import type { Clock } from '../base/clock.ts';
import type { Nonce } from '../challenges/nonce.ts';
import type { Credential, CredentialSet } from '../credentials/credentials.ts';
import type { CredentialVersion, Transport } from './credential-version.ts';
import { type CredentialNews, Rotation, type RotationNews, type RotationState } from './rotation.ts';
import { SharedEvidence, type SharedEvidenceDeps } from './shared-evidence.ts';

/** State in the rotation; `refused`: rejected there, or the upstream refuses it now. */
export type VersionState = Exclude<RotationState, 'rejected'> | 'refused';

export interface VersionsDeps extends Omit<SharedEvidenceDeps, 'rotation'> {
  readonly deployment: string;
  readonly clock: Clock;
  readonly open: (credential: Credential) => CredentialVersion;
  /** Called when a candidate was promoted or refused. */
  readonly onRotation: (rotation: RotationNews) => void;
  /** Called when the upstream begins to refuse a version, and when it accepts it again. */
  readonly onHealth: (news: CredentialNews) => void;
}

type Renew = (version: CredentialVersion, nonce: Nonce) => Promise<void>;

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
  /** The latest last. */
  #transports: readonly Transport[] = [];

  constructor(set: CredentialSet, deps: VersionsDeps, renew: Renew) {
    this.name = set.name;
    this.#deps = deps;
    this.#renew = renew;
    this.rotation = new Rotation(deps.open(set.current));
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
    return this.#transports.at(-1);
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

  named(name: string): CredentialVersion | undefined {
    return this.all.find(({ version }) => version === name);
  }

  /** Takes over the versions that the sources of the credential hold now. */
  offer({ current, next, former = [] }: CredentialSet): void {
    const known = this.all;
    const versionOf = (credential: Credential): CredentialVersion =>
      known.find(({ version }) => version === credential.version) ?? this.#open(credential);
    const left = this.rotation.offer(versionOf(current), next && versionOf(next), former.map(versionOf));
    for (const { health } of this.rotation.candidates) if (health.refused) health.reset();
    for (const version of this.all) if (!known.includes(version)) void version.restore(this.inUse);
    for (const version of left) this.#close(version);
  }

  attach(transport: Transport): void {
    this.#transports = [...this.#transports, transport];
    for (const version of this.all) this.#attachTo(version, transport);
    for (const version of this.rotation.others) void version.restore(this.inUse);
  }

  /** Resolves when the nonces that nobody uses are left to other processes. */
  async detach(transport: Transport): Promise<void> {
    this.#transports = this.#transports.filter((each) => each !== transport);
    await Promise.all(this.all.map((version) => version.detach(transport)));
  }

  /** The upstream accepts this version: it takes the place of one in use that is refused. */
  accept(version: CredentialVersion): void {
    const isNews = version.isRefusalReported;
    if (isNews) this.#report(version, false);
    this.shared.noteAccepted(version, isNews);
    const { inUse } = this.rotation;
    if (version !== inUse && inUse.health.refused) this.promote(version);
  }

  /** Puts a version in use, if it is part of the rotation. */
  promote(version: CredentialVersion): void {
    const former = this.inUse;
    if (version === former || this.rotation.stateOf(version) === undefined) return;
    const left = this.rotation.promote(version, !former.health.refused);
    this.#reportRotation(former, version, 'promoted');
    if (version.health.accepted) this.shared.noteAccepted(version, true);
    if (left !== undefined) this.#close(left);
  }

  /** The attempt of this number showed that the upstream refuses it; a candidate is not tried any more. */
  refuse(version: CredentialVersion, attempt: number): void {
    const { health } = version;
    if (health.refuse(attempt)) {
      version.refusedAt = this.#deps.clock.now();
      this.#report(version, true);
    }
    if (health.refused) this.reject(version);
  }

  /** The version in use stays, and a candidate is not tried any more. */
  reject(version: CredentialVersion): void {
    const result = this.rotation.reject(version);
    if (result === undefined) return;
    if (result === 'waiting') this.shared.wait(version);
    this.#reportRotation(this.inUse, version, result === 'waiting' ? 'waiting' : 'refused');
  }

  #open(credential: Credential): CredentialVersion {
    const version = this.#deps.open(credential);
    for (const transport of this.#transports) this.#attachTo(version, transport);
    return version;
  }

  #attachTo(version: CredentialVersion, transport: Transport): void {
    version.attach(transport, (nonce) => this.#renew(version, nonce));
  }

  #close(version: CredentialVersion): void {
    for (const transport of this.#transports) void version.detach(transport);
  }

  #report(version: CredentialVersion, refused: boolean): void {
    version.isRefusalReported = refused;
    const { deployment, onHealth } = this.#deps;
    onHealth({ deployment, credential: this.name, version: version.version, refused });
  }

  #reportRotation(from: CredentialVersion, to: CredentialVersion, result: RotationNews['result']): void {
    this.#deps.onRotation({ credential: this.name, from: from.version, to: to.version, result });
  }
}
