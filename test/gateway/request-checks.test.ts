import { describe, expect, test } from '@jest/globals';
import { requestHead } from '../../src/gateway/request-reader.ts';
import { hostOf } from '../../src/gateway/routing.ts';
import { cpuMeter } from '../support/measure.ts';

/** Checks a request of this version with these values of Host. */
function check(version: string, ...hosts: string[]): void {
  const lines = hosts.map((host) => `Host: ${host}\r\n`).join('');
  hostOf(requestHead(`GET / HTTP/${version}\r\n${lines}`));
}

describe('good is', () => {
  test.each([
    '',
    'a',
    'a.example',
    'a.example:',
    'a.example:8080',
    '127.0.0.1:1',
    '[::1]',
    '[::ffff:127.0.0.1]:8080',
    'a_b-c.example',
    'xn--bcher-kva.example',
    'a%20b',
  ])('the Host %j', (host) => {
    expect(() => check('1.1', host)).not.toThrow();
  });

  test('HTTP/1.0 without Host', () => expect(() => check('1.0')).not.toThrow());
});

describe('bad is', () => {
  test.each<[string, string, string[]]>([
    ['no Host', '1.1', []],
    ['two Hosts', '1.1', ['a', 'b']],
    ['the same Host twice', '1.1', ['a', 'a']],
    ['two Hosts in HTTP/1.0', '1.0', ['a', 'b']],
    ...['a b', 'a/b', 'a, b', 'user@a', 'a:b', 'a:1:2', '[::1', '::1', 'a#b', 'a\\b', 'a"', 'caf\xe9'].map(
      (host): [string, string, string[]] => [`Host: ${host}`, '1.1', [host]],
    ),
  ])('%s', (_what, version, hosts) => {
    expect(() => check(version, ...hosts)).toThrow(expect.objectContaining({ code: 'bad-request' }));
  });

  test('a long Host that is almost right, at once', () => {
    const cpuMs = cpuMeter();
    expect(() => check('1.1', `${'a'.repeat(1_000_000)}/`)).toThrow(
      expect.objectContaining({ code: 'bad-request' }),
    );
    expect(cpuMs()).toBeLessThan(500);
  });
});
