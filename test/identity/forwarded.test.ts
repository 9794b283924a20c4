import { describe, expect, test } from '@jest/globals';
import fc from 'fast-check';
import { Network } from '../../src/base/network.ts';
import type { ForwardedHeader } from '../../src/identity/forwarded.ts';
import { forwardedClient } from '../../src/identity/forwarded.ts';

const trustedProxies = ['10.0.0.1', '10.0.0.2', '2001:db8::/64'].map((text) => Network.parse(text));

/** Whom a trusted proxy asks for with these field lines; undefined: it does not tell. */
function clientOf(forwardedHeader: ForwardedHeader, ...lines: string[]): string | undefined {
  const headers = lines.flatMap((line) => [forwardedHeader, line]);
  return forwardedClient({ trustedProxies, forwardedHeader }, headers)?.toString();
}

describe('X-Forwarded-For', () => {
  test.each([
    ['one address', ['192.0.2.1'], '192.0.2.1'],
    ['with a port', ['192.0.2.1:4711'], '192.0.2.1'],
    ['IPv6', ['2001:db8:1::1'], '2001:db8:1::1'],
    ['IPv6 in brackets', ['[2001:db8:1::1]'], '2001:db8:1::1'],
    ['IPv6 with a port', ['[2001:db8:1::1]:4711'], '2001:db8:1::1'],
    ['IPv4 as IPv6', ['::ffff:192.0.2.1'], '192.0.2.1'],
    ['spaces and tabs', [' 192.0.2.9 ,\t192.0.2.1 '], '192.0.2.1'],
    ['what the client claims, left of what the proxy saw', ['192.0.2.99, 192.0.2.1'], '192.0.2.1'],
    ['a trusted proxy’s address, claimed', ['10.0.0.2, 192.0.2.1'], '192.0.2.1'],
    ['two trusted proxies', ['192.0.2.99, 192.0.2.1, 10.0.0.2, 2001:db8::7'], '192.0.2.1'],
    ['trusted proxies only', ['10.0.0.2, 10.0.0.1'], '10.0.0.2'],
    ['several lines', ['192.0.2.99', '192.0.2.1', '10.0.0.2'], '192.0.2.1'],
    ['rubbish left of the client', ['"; for=10.0.0.1, , unknown, 192.0.2.1'], '192.0.2.1'],
    ['no line', [], undefined],
    ['an empty line', [''], undefined],
    ['a name', ['client.internal'], undefined],
    ['rubbish between trusted proxies', ['192.0.2.1, what, 10.0.0.2'], undefined],
    ['nothing between trusted proxies', ['192.0.2.1,, 10.0.0.2'], undefined],
    ['an address of an odd form', ['0x0a.0.0.1'], undefined],
  ])('%s', (_title, lines, client) => expect(clientOf('X-Forwarded-For', ...lines)).toBe(client));
});

describe('Forwarded', () => {
  test.each([
    ['one address', ['for=192.0.2.1'], '192.0.2.1'],
    ['all parameters', ['by=10.0.0.1;for=192.0.2.1;host=gateway;proto=https'], '192.0.2.1'],
    ['another case', ['FOR="192.0.2.1";Proto=http'], '192.0.2.1'],
    ['a port', ['for="192.0.2.1:4711"'], '192.0.2.1'],
    ['an obfuscated port', ['for="192.0.2.1:_web"'], '192.0.2.1'],
    ['IPv6', ['for="[2001:db8:1::1]"'], '2001:db8:1::1'],
    ['IPv6 with a port', ['for="[2001:db8:1::1]:4711"'], '2001:db8:1::1'],
    ['escaped characters', ['for="19\\2.0.2\\.1"'], '192.0.2.1'],
    ['what the client claims, left of what the proxy saw', ['for=192.0.2.99, for=192.0.2.1'], '192.0.2.1'],
    ['two trusted proxies', ['for=192.0.2.1, for=10.0.0.2;by=10.0.0.1'], '192.0.2.1'],
    ['several lines', ['for=192.0.2.99', 'for=192.0.2.1', 'for=10.0.0.1'], '192.0.2.1'],
    ['a comma and a semicolon in quotes', ['for=192.0.2.99;host="a, for=1;x", for=192.0.2.1'], '192.0.2.1'],
    ['a semicolon at the end', ['for=192.0.2.99, for=192.0.2.1;proto=https;'], '192.0.2.1'],
    ['the same, on a line of its own', ['for=192.0.2.99', 'for=192.0.2.1;'], '192.0.2.1'],
    ['an element without for, with a semicolon at its end', ['for=192.0.2.1, by=10.0.0.2;'], undefined],
    ['an unknown client', ['for=unknown'], undefined],
    ['an obfuscated client', ['for=_hidden, for=10.0.0.2'], undefined],
    ['an obfuscated proxy', ['for=192.0.2.1, for=_proxy'], undefined],
    ['an element without for', ['for=192.0.2.1, by=10.0.0.2'], undefined],
    ['for twice', ['for=192.0.2.1;for=192.0.2.2'], undefined],
    ['an empty line', [''], undefined],
    ['no parameter', ['192.0.2.1'], undefined],
    ['IPv6 without quotes', ['for=[2001:db8:1::1]'], undefined],
    ['a quote that the client left open', ['for=192.0.2.99;x=", for=192.0.2.1'], undefined],
    ['a quote that the proxy’s closes', ['for=192.0.2.99;x=", for="192.0.2.1"'], undefined],
    ['the same, on a line of its own', ['for=192.0.2.99;x="', 'for="192.0.2.1"'], '192.0.2.1'],
  ])('%s', (_title, lines, client) => expect(clientOf('Forwarded', ...lines)).toBe(client));
});

const junk = fc.oneof(
  fc.string(),
  fc.stringMatching(/^[ ,;="\\for:.\d[\]x_]{0,40}$/),
  fc.constantFrom('for=', '"', '\\', 'for="[', '10.0.0.1'),
);

test.each(['X-Forwarded-For', 'Forwarded'] as const)(
  'whatever a client puts into %s, on lines of its own or left of the proxy’s word, it is not taken for somebody else',
  (header) => {
    const words = header === 'Forwarded' ? ['for="192.0.2.1"', 'for=192.0.2.1;proto=http;'] : ['192.0.2.1'];
    fc.assert(
      fc.property(junk, junk, fc.constantFrom(...words), (line, start, real) => {
        expect(clientOf(header, line, real)).toBe('192.0.2.1');
        expect([undefined, '192.0.2.1']).toContain(clientOf(header, `${start}, ${real}`));
      }),
    );
  },
);
