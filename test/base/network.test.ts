import { describe, expect, test } from '@jest/globals';
import { isLoopbackHost, Network, parseAddress } from '../../src/base/network.ts';

describe('an address', () => {
  test.each([
    ['10.0.0.1', '10.0.0.1'],
    ['::ffff:10.0.0.1', '10.0.0.1'],
    ['::FFFF:0a00:0001', '10.0.0.1'],
    ['2001:0DB8:0:0::1', '2001:db8::1'],
    ['::1', '::1'],
    ['fe80::1%eth0', 'fe80::1'],
    ['::10.0.0.1', '::a00:1'],
  ])('%s is %s', (written, normal) => expect(parseAddress(written)?.toString()).toBe(normal));

  test.each([
    '',
    '10.1',
    '0x0a.0.0.1',
    '010.0.0.1',
    '10.0.0.1:80',
    '10.0.0.256',
    '[::1]',
    'ten',
    '1:2',
    ' 10.0.0.1',
  ])('%j is none', (written) => expect(parseAddress(written)).toBeUndefined());
});

describe('a network', () => {
  test.each([
    ['10.1.0.0/16', '10.1.255.255', true],
    ['10.1.0.0/16', '10.2.0.0', false],
    ['10.1.0.0/16', '::ffff:10.1.2.3', true],
    ['10.1.2.3', '10.1.2.3', true],
    ['10.1.2.3', '10.1.2.4', false],
    ['10.1.2.128/25', '10.1.2.127', false],
    ['0.0.0.0/0', '203.0.113.1', true],
    ['0.0.0.0/0', '2001:db8::1', false],
    ['::/0', '10.0.0.1', false],
    ['::/0', '2001:db8::1', true],
    ['2001:db8::/33', '2001:db8:7fff::1', true],
    ['2001:db8::/33', '2001:db8:8000::1', false],
    ['::ffff:10.0.0.0/104', '10.9.9.9', true],
    ['::ffff:10.0.0.0/104', '11.0.0.0', false],
    ['::ffff:0:0/96', '192.0.2.1', true],
    ['fe80::/10', 'fe80::1%eth0', true],
  ])('%s: %s → %s', (network, address, contains) => {
    const parsed = parseAddress(address);
    if (parsed === undefined) throw new Error(`${address} is no address`);
    expect(Network.parse(network).contains(parsed)).toBe(contains);
  });

  test.each([
    ['10.0.0.0/8', '10.1.0.0/16', true],
    ['10.0.0.0/8', '10.0.0.0/8', true],
    ['10.1.0.0/16', '10.0.0.0/8', false],
    ['10.0.0.0/8', '11.0.0.1', false],
    ['::/0', '10.0.0.1', false],
    ['10.0.0.0/8', '::ffff:10.0.0.0/120', true],
  ])('%s covers %s: %s', (wide, narrow, covers) => {
    expect(Network.parse(wide).covers(Network.parse(narrow))).toBe(covers);
  });

  test.each([
    ['10.1.2.3/16', 'has bits after its prefix: write 10.1.0.0/16'],
    ['2001:db8::1/64', 'has bits after its prefix: write 2001:db8::/64'],
    ...[
      '',
      '10.0.0.0/33',
      '::/129',
      '10.0.0.0/',
      '10.0/8',
      'fe80::1%eth0',
      '10.0.0.0/8/8',
      '10.0.0.0 /8',
      'a/8',
    ].map((written): [string, string] => [
      written,
      'is neither an address nor a network: write 10.1.0.0/16, 2001:db8::/32 or 10.1.2.3',
    ]),
  ])('%j is none', (written, message) => {
    expect(() => Network.parse(written)).toThrow(new RangeError(message));
  });
});

test.each([
  ['127.0.0.1', true],
  ['127.9.9.9', true],
  ['[::1]', true],
  ['::1', true],
  ['[::ffff:127.0.0.1]', true],
  ['localhost', true],
  ['LOCALHOST', true],
  ['127.example.org', false],
  ['127.0.0.1.example.org', false],
  ['localhost.example.org', false],
  ['10.0.0.1', false],
  ['[2001:db8::1]', false],
  ['proxy.internal', false],
  ['', false],
])('says whether the host %s is this machine: %s', (host, isLoopback) => {
  expect(isLoopbackHost(host)).toBe(isLoopback);
});
