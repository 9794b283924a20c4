import { isIP } from 'node:net';
import ipaddr from 'ipaddr.js';
import { getOrInsert } from './maps.ts';

/** An IPv4 or IPv6 address; `toString()` returns its canonical form (RFC 5952). */
export type Address = ipaddr.IPv4 | ipaddr.IPv6;

/**
 * Parses an address. An IPv4-mapped address becomes an IPv4 address, and a zone is removed, so that a
 * machine has one address in every socket. Undefined if the text is not an address.
 */
export function parseAddress(text: string): Address | undefined {
  if (isIP(text) === 0) return undefined;
  const [plain = ''] = text.split('%');
  const address = parse(plain);
  return address instanceof ipaddr.IPv6 && address.isIPv4MappedAddress() ? address.toIPv4Address() : address;
}

/** One form for all spellings of an address; another text stays as it is. */
export function canonicalAddress(text: string): string {
  // Addresses of a link are the same ones on each.
  const zone = text.includes('%') ? text.slice(text.indexOf('%')) : '';
  const address = parseAddress(text);
  return address === undefined ? text : `${address.toString()}${zone}`;
}

/** Bytes of the network that a household or a server has with IPv6. */
const SENDER_BYTES = 8;

/** Returns the network of one sender, who has many addresses with IPv6; '' if the text is not an address. */
export function senderNetwork(address: string): string {
  const parsed = parseAddress(address);
  if (parsed === undefined) return '';
  const bytes = parsed.toByteArray();
  return (parsed.kind() === 'ipv6' ? bytes.slice(0, SENDER_BYTES) : bytes).join('.');
}

/** True if a host, without port, is this machine: localhost or a loopback address. */
export function isLoopbackHost(host: string): boolean {
  if (host.toLowerCase() === 'localhost') return true;
  const [, inBrackets] = /^\[(.*)\]$/.exec(host) ?? [];
  return parseAddress(inBrackets ?? host)?.range() === 'loopback';
}

/** True for an https URL, or http on a loopback host: nobody on the network can read or change what is sent there. */
export function isGuardedUrl(text: string): boolean {
  return URL.canParse(text) && /^https?:$/.test(new URL(text).protocol) && !isExposed(new URL(text));
}

/** True if others on the network can read what is sent to this URL: it is not encrypted and leaves this machine. */
export function isExposed({ protocol, hostname }: URL): boolean {
  return protocol !== 'https:' && !isLoopbackHost(hostname);
}

/** ipaddr.js parses ::10.0.0.1 as ::ffff:10.0.0.1, so an IPv4 tail is converted to hex first. */
function parse(text: string): Address {
  const [tail, ...bytes] = /(?<=:)(\d+)\.(\d+)\.(\d+)\.(\d+)$/.exec(text) ?? [];
  if (tail === undefined) return ipaddr.parse(text);
  const [a = 0, b = 0, c = 0, d = 0] = bytes.map(Number);
  const words = [a * 256 + b, c * 256 + d].map((word) => word.toString(16));
  return ipaddr.parse(`${text.slice(0, -tail.length)}${words.join(':')}`);
}

const MAPPED_BITS = 96;

/** A network in CIDR notation, such as 10.1.0.0/16; a single address is a network of one. */
export class Network {
  /** The first address of the network. */
  readonly first: Address;
  /** Length of the prefix in bits. */
  readonly bits: number;

  private constructor(address: Address, bits: number) {
    this.first = address;
    this.bits = bits;
  }

  /** @throws RangeError with the issue and the correct form */
  static parse(text: string): Network {
    const [, written = '', length] = /^([\da-fA-F.:]+)(?:\/(\d{1,3}))?$/.exec(text) ?? [];
    const plain = isIP(written) === 0 ? undefined : parse(written);
    const width = plain?.kind() === 'ipv4' ? 32 : 128;
    const prefix = Number(length ?? width);
    if (plain === undefined || prefix > width) {
      throw new RangeError(
        'is neither an address nor a network: write 10.1.0.0/16, 2001:db8::/32 or 10.1.2.3',
      );
    }
    const first = firstOf(plain, prefix);
    if (first.toString() !== plain.toString()) {
      throw new RangeError(`has bits after its prefix: write ${first.toString()}/${prefix}`);
    }
    // Mapped addresses are compared as IPv4, so mapped networks are converted, too.
    const mapped = plain.kind() === 'ipv6' && prefix >= MAPPED_BITS ? parseAddress(written) : undefined;
    return mapped?.kind() === 'ipv4' ? new Network(mapped, prefix - MAPPED_BITS) : new Network(plain, prefix);
  }

  contains(address: Address): boolean {
    return address.kind() === this.first.kind() && address.match([this.first, this.bits]);
  }

  /** True if this network contains every address of the other one. */
  covers(other: Network): boolean {
    return this.bits <= other.bits && this.contains(other.first);
  }

  toString(): string {
    return `${this.first.toString()}/${this.bits}`;
  }

  toJSON(): string {
    return this.toString();
  }
}

function firstOf(address: Address, prefix: number): Address {
  const bytes = address.toByteArray().map((byte, index) => {
    const kept = Math.min(8, Math.max(0, prefix - index * 8));
    return byte & (0xff << (8 - kept)) & 0xff;
  });
  return ipaddr.fromByteArray(bytes);
}

/** Maps networks to values. A lookup costs one step per distinct prefix length, not per network. */
export class NetworkMap<T> {
  /** By address kind and prefix length, then by the bits of the prefix. */
  readonly #byLength = new Map<string, { kind: string; bits: number; byPrefix: Map<bigint, T[]> }>();

  add(network: Network, value: T): void {
    const { first, bits } = network;
    const kind = first.kind();
    const { byPrefix } = getOrInsert(this.#byLength, `${kind}/${bits}`, () => ({
      kind,
      bits,
      byPrefix: new Map<bigint, T[]>(),
    }));
    getOrInsert(byPrefix, prefixOf(numberOf(first), first, bits), (): T[] => []).push(value);
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
