import type { CredentialSet } from '../credentials/credentials.ts';
import type { Egress } from '../transport/egress.ts';
import {
  type AddressDeps,
  type AddressOptions,
  UpstreamAddress,
  type VersionChoice,
} from './upstream-address.ts';

/** Options of all addresses; the credentials come apart, since they can change while the addresses are in use. */
export interface AddressesOptions extends Omit<AddressOptions, 'origin' | 'egress'> {
  /** `https://host:port` of each address, the preferred one first. */
  readonly origins: readonly string[];
  readonly egress: Pick<Egress, 'proxy'> & { readonly localAddresses: readonly string[] };
}

/** Every address of one deployment's upstream, and the credentials with which requests are sent there. */
export class UpstreamAddresses {
  /** All that are reached from the first local address, then those from the next one. */
  readonly all: readonly UpstreamAddress[];

  constructor(options: AddressesOptions, deps: AddressDeps, sets: readonly CredentialSet[]) {
    const { origins, egress } = options;
    const { localAddresses, proxy } = egress;
    const from = localAddresses.length === 0 ? [undefined] : localAddresses;
    this.all = from.flatMap((localAddress) =>
      origins.map(
        (origin) => new UpstreamAddress({ ...options, origin, egress: { localAddress, proxy } }, deps, sets),
      ),
    );
  }

  /** Takes over nonces that other processes share; for the start. */
  async restore(): Promise<void> {
    await Promise.all(this.all.map((address) => address.restore()));
  }

  uses(credential: string): boolean {
    return this.all.some((address) => address.credential(credential) !== undefined);
  }

  /** Takes over the versions that the sources of a credential hold now; a credential that is new here is used at once. */
  offer(set: CredentialSet): void {
    for (const address of this.all) address.offer(set);
  }

  /** Does the same if it is the credential of the proxy. */
  offerProxy(set: CredentialSet): void {
    for (const { connections } of this.all) connections.offer(set);
  }

  has({ credential, version }: VersionChoice): boolean {
    return this.all.some((address) => address.credential(credential)?.versions.named(version) !== undefined);
  }

  /** Puts a version in use, which is known to be accepted, at all addresses that have it. */
  promote({ credential, version }: VersionChoice): void {
    for (const address of this.all) address.credential(credential)?.promote(version);
  }

  /** Drops every credential but these; the caller sends no new requests with them. */
  keepOnly(names: ReadonlySet<string>): void {
    for (const address of this.all) address.keepOnly(names);
  }

  /**
   * Ends the health checks, and lets go of credentials and connections when the client requests are `over`. Resolves when
   * the connections are closed.
   */
  async close(over: Promise<void>): Promise<void> {
    for (const address of this.all) address.endChecks();
    await over;
    await Promise.all(this.all.map((address) => address.close()));
  }
}
