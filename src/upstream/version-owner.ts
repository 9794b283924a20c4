import type { CredentialVersion } from './credential-version.ts';

/** Decides which version is used. */
export interface VersionOwner {
  isInUse(version: CredentialVersion): boolean;
  /** True if another version can take the place of this one. */
  hasAlternatives(version: CredentialVersion): boolean;
  /** True if another version is in use in the place of this one, and the upstream accepts it. */
  isReplaced(version: CredentialVersion): boolean;
  /** Begins to find out whether the upstream takes it: `DigestListener.confirm`. */
  confirm(version: CredentialVersion, target: string, refused?: number): void;
  /** The upstream accepted it; with the status of the response. */
  accepted(version: CredentialVersion, status: number): void;
  /** The upstream refused it with a fresh nonce; still to be confirmed. */
  unconfirmed(): void;
  /** The upstream refused it, which is not in use. */
  refused(version: CredentialVersion): void;
}
