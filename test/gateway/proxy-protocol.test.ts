import { describe, expect, test } from '@jest/globals';
import { checksum, readProxyHeader } from '../../src/gateway/proxy-protocol.ts';
import { binaryHeader, field, ipv4, withChecksum } from '../support/proxy-headers.ts';

const TCP4 = 0x11;
const TCP6 = 0x21;
const ipv6 = Buffer.from(
  `20010db8${'0'.repeat(20)}0007${'20010db8'}${'0'.repeat(20)}0001${'1234'}${'0050'}`,
  'hex',
);
const long = (length: number): string => `PROXY UNKNOWN ${'x'.repeat(length - 16)}\r\n`;

const headers: [string, Buffer | string, string | undefined][] = [
  ['version 1, IPv4', 'PROXY TCP4 192.0.2.7 10.0.0.1 4711 80\r\n', '192.0.2.7'],
  ['version 1, IPv6', 'PROXY TCP6 2001:DB8::7 2001:db8::1 4711 80\r\n', '2001:db8::7'],
  ['version 1, IPv4 as IPv6', 'PROXY TCP6 ::ffff:192.0.2.7 ::1 0 65535\r\n', '192.0.2.7'],
  ['version 1, unknown', 'PROXY UNKNOWN\r\n', undefined],
  ['version 1, unknown, with what is to be ignored', 'PROXY UNKNOWN ffff::1 x 1\r\n', undefined],
  ['version 1 of the greatest length', long(107), undefined],
  ['version 2, IPv4', binaryHeader({ family: TCP4, rest: [ipv4('192.0.2.7')] }), '192.0.2.7'],
  ['version 2, IPv6', binaryHeader({ family: TCP6, rest: [ipv6] }), '2001:db8::7'],
  ['version 2, local', binaryHeader({ command: 0x20, family: 0 }), undefined],
  [
    'version 2, local, with what is to be ignored',
    binaryHeader({ command: 0x20, family: TCP4, rest: [Buffer.from('?')] }),
    undefined,
  ],
  ['version 2, of no family', binaryHeader({ family: 0 }), undefined],
  [
    'version 2 with fields',
    binaryHeader({
      family: TCP4,
      rest: [
        ipv4('192.0.2.7'),
        field(1, Buffer.from('h2')),
        field(4, Buffer.alloc(300)),
        field(9, Buffer.alloc(0)),
      ],
    }),
    '192.0.2.7',
  ],
  ['version 2 with a checksum', withChecksum({ family: TCP4, rest: [ipv4('192.0.2.7')] }), '192.0.2.7'],
  [
    'version 2 of the greatest length',
    binaryHeader({
      family: TCP4,
      rest: [ipv4('192.0.2.7'), field(4, Buffer.alloc(16 * 1024 - 16 - 12 - 3))],
    }),
    '192.0.2.7',
  ],
];

const wrongChecksum = withChecksum({ family: TCP4, rest: [ipv4('192.0.2.7')] });
wrongChecksum[16] = 193;

/** Solved as a linear system: each checksum counts the other one. */
const twoChecksums = Buffer.from(
  '0d0a0d0a000d0a515549540a2111001ac00002010a00000112340050030004124b628603000413452971',
  'hex',
);

const errors: [string, Buffer | string, string][] = [
  ['a request', 'GET / HTTP/1.1\r\n', 'malformed'],
  ['a TLS handshake', Buffer.from([0x16, 3, 1, 2, 0, 1]), 'malformed'],
  ['a word in lower case', 'proxy TCP4 192.0.2.7 10.0.0.1 1 2\r\n', 'malformed'],
  ['two spaces', 'PROXY  TCP4 192.0.2.7 10.0.0.1 1 2\r\n', 'malformed'],
  ['another protocol', 'PROXY UDP4 192.0.2.7 10.0.0.1 1 2\r\n', 'malformed'],
  ['an unknown one that goes on', 'PROXY UNKNOWNS\r\n', 'malformed'],
  ['an address of the other family', 'PROXY TCP4 2001:db8::7 10.0.0.1 1 2\r\n', 'malformed'],
  ['an address with a zero in front', 'PROXY TCP4 192.0.2.07 10.0.0.1 1 2\r\n', 'malformed'],
  ['an address with a zone', 'PROXY TCP6 fe80::1%eth0 ::1 1 2\r\n', 'malformed'],
  ['a port that is too high', 'PROXY TCP4 192.0.2.7 10.0.0.1 65536 2\r\n', 'malformed'],
  ['a port with a zero in front', 'PROXY TCP4 192.0.2.7 10.0.0.1 01 2\r\n', 'malformed'],
  ['no ports', 'PROXY TCP4 192.0.2.7 10.0.0.1\r\n', 'malformed'],
  ['a line feed alone', `PROXY TCP4 192.0.2.7 10.0.0.1 1 2\n${'x'.repeat(107)}`, 'malformed'],
  ['a line that is too long', long(108), 'malformed'],
  ['another version', binaryHeader({ command: 0x11, family: TCP4, rest: [ipv4('192.0.2.7')] }), 'malformed'],
  ['another command', binaryHeader({ command: 0x22, family: TCP4, rest: [ipv4('192.0.2.7')] }), 'malformed'],
  ['UDP', binaryHeader({ family: 0x12, rest: [ipv4('192.0.2.7')] }), 'unsupported'],
  ['a UNIX socket', binaryHeader({ family: 0x31, rest: [Buffer.alloc(216)] }), 'unsupported'],
  [
    'more than the greatest length',
    binaryHeader({ family: TCP4, rest: [Buffer.alloc(16 * 1024)] }),
    'unsupported',
  ],
  ['addresses that are not whole', binaryHeader({ family: TCP6, rest: [ipv4('192.0.2.7')] }), 'malformed'],
  [
    'a field beyond the end',
    binaryHeader({ family: TCP4, rest: [ipv4('192.0.2.7'), Buffer.from([1, 0, 9, 0])] }),
    'malformed',
  ],
  [
    'the beginning of a field',
    binaryHeader({ family: TCP4, rest: [ipv4('192.0.2.7'), Buffer.from([1, 0])] }),
    'malformed',
  ],
  [
    'a checksum of another length',
    binaryHeader({ family: TCP4, rest: [ipv4('192.0.2.7'), field(3, Buffer.alloc(3))] }),
    'malformed',
  ],
  ['a wrong checksum', wrongChecksum, 'checksum'],
  ['two checksums, both right', twoChecksums, 'malformed'],
];

const bytesOf = (header: Buffer | string): Buffer =>
  typeof header === 'string' ? Buffer.from(header, 'latin1') : header;

describe('a header', () => {
  test.each(headers)('of %s is read, at every length of what has come', (_title, header, address) => {
    const bytes = bytesOf(header);
    for (let length = 0; length < bytes.length; length += 1) {
      expect(readProxyHeader(bytes.subarray(0, length))).toBe('more');
    }
    expect(readProxyHeader(bytes)).toEqual({ length: bytes.length, address });
    const followed = Buffer.concat([bytes, Buffer.from('GET / HTTP/1.1\r\n\r\n')]);
    expect(readProxyHeader(followed)).toEqual({ length: bytes.length, address });
  });

  test.each(errors)('is refused: %s', (_title, header, error) => {
    const bytes = bytesOf(header);
    expect(readProxyHeader(bytes)).toBe(error);
    // A decision does not change when more comes, and is not made in favour of a part.
    for (let length = 0; length < bytes.length; length += 1) {
      expect(['more', error]).toContain(readProxyHeader(bytes.subarray(0, length)));
    }
  });

  test('with any byte changed is read, refused or waited for, and never throws', () => {
    const whole = withChecksum({ family: TCP4, rest: [ipv4('192.0.2.7'), field(1, Buffer.from('h2'))] });
    // Of another type, the checksum would be a field that is skipped.
    const typeOfChecksum = whole.length - 7;
    for (let at = 0; at < whole.length; at += 1) {
      if (at === typeOfChecksum) continue;
      for (const value of [0, 1, 0x0a, 0x7f, 0xff]) {
        if (whole[at] === value) continue;
        const changed = Buffer.from(whole);
        changed[at] = value;
        expect(readProxyHeader(changed)).not.toEqual({ length: whole.length, address: '192.0.2.7' });
      }
    }
  });
});

test('the checksum is that of CRC-32C', () => {
  expect(checksum(Buffer.from('123456789'), 9)).toBe(0xe3069283);
});
