import { checksum } from '../../src/gateway/proxy-protocol.ts';

const SIGNATURE = Buffer.from('\r\n\r\n\0\r\nQUIT\n', 'latin1');

/** A field behind the addresses: its type, length and value. */
export function field(type: number, value: Buffer): Buffer {
  return Buffer.concat([Buffer.from([type, value.length >> 8, value.length & 0xff]), value]);
}

export interface BinaryHeader {
  /** Version and command; left out: PROXY. */
  readonly command?: number;
  readonly family: number;
  /** Addresses, ports and fields. */
  readonly rest?: readonly Buffer[];
}

/** A header of version 2. */
export function binaryHeader({ command = 0x21, family, rest = [] }: BinaryHeader): Buffer {
  const body = Buffer.concat(rest);
  const length = Buffer.from([body.length >> 8, body.length & 0xff]);
  return Buffer.concat([SIGNATURE, Buffer.from([command, family]), length, body]);
}

/** Two addresses and ports of TCP over IPv4. */
export function ipv4(source: string): Buffer {
  const address = source.split('.').map(Number);
  return Buffer.from([...address, 10, 0, 0, 1, 0x12, 0x34, 0, 80]);
}

/** The same header with a checksum as its last field. */
export function withChecksum(header: BinaryHeader): Buffer {
  const bytes = binaryHeader({ ...header, rest: [...(header.rest ?? []), field(3, Buffer.alloc(4))] });
  bytes.writeUInt32BE(checksum(bytes, bytes.length - 4), bytes.length - 4);
  return bytes;
}
