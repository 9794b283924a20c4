import { type BlockList, isIPv6 } from 'node:net';
import { Accounts } from './accounts.ts';
import type { Faults } from './faults.ts';
import { addressList, type Behaviour } from './settings.ts';

/** A behaviour with values that are derived once, not for each request. */
export class Rules {
  readonly behaviour: Behaviour;
  readonly accounts: Accounts;
  readonly faults: Faults;
  readonly #addresses: BlockList | undefined;

  constructor(behaviour: Behaviour, faults: Faults) {
    const { accounts, realm, allowedAddresses } = behaviour;
    this.behaviour = behaviour;
    this.accounts = new Accounts(accounts, realm);
    this.faults = faults;
    this.#addresses = allowedAddresses === null ? undefined : addressList(allowedAddresses);
  }

  /** True if the address is registered for the customer. */
  isRegistered(address: string): boolean {
    return this.#addresses?.check(address, isIPv6(address) ? 'ipv6' : 'ipv4') ?? true;
  }
}
