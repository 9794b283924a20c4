import type { Address, Network } from './network.ts';

/** Maps networks to values. A lookup costs one step per distinct prefix length, not per network. */
export class NetworkMap<T> {
  /** By address kind and prefix length, then by the bits of the prefix. */
  readonly #byLength = new Map<string, { kind: string; bits: number; byPrefix: Map<bigint, T[]> }>();

  add(network: Network, value: T): void {
    const { first, bits } = network;
    const kind = first.kind();
    const length = this.#byLength.get(`${kind}/${bits}`) ?? { kind, bits, byPrefix: new Map() };
    this.#byLength.set(`${kind}/${bits}`, length);
    const prefix = prefixOf(numberOf(first), first, bits);
    const filed = length.byPrefix.get(prefix);
    if (filed === undefined) length.byPrefix.set(prefix, [value]);
    else filed.push(value);
  }

  /**
   * Yields the values of each network that contains the address. With `bits`, a network must contain the
   * whole network of that prefix length. Values of one network come in the order of their addition.
   */
  *holding(address: Address, bits = Number.POSITIVE_INFINITY): Generator<readonly T[]> {
    const kind = address.kind();
    const number = numberOf(address);
    for (const length of this.#byLength.values()) {
      if (length.kind !== kind || length.bits > bits) continue;
      const values = length.byPrefix.get(prefixOf(number, address, length.bits));
      if (values !== undefined) yield values;
    }
  }
}

function numberOf(address: Address): bigint {
  return BigInt(`0x${Buffer.from(address.toByteArray()).toString('hex')}`);
}

function prefixOf(number: bigint, address: Address, bits: number): bigint {
  return number >> BigInt((address.kind() === 'ipv4' ? 32 : 128) - bits);
}
