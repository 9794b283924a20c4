import { describe, expect, test } from '@jest/globals';
import fc from 'fast-check';
import { parseTarget, splitAuthority } from '../../src/gateway/routing.ts';

describe('a target in origin form', () => {
  test.each([
    '/',
    '/api/x?ids=%27DEMO-1%27&site_name=demo',
    '//a//../b/./c',
    '/%2f%2F%c3%A9',
    '/a;v=1?',
    '/?',
    '/a?b?c=/d',
    '/<>{}|^`[]~',
    '/http://x.example/',
  ])('%s stays as it is', (path) => {
    expect(parseTarget(path, 'Gateway.Example:8080')).toEqual({
      authority: 'gateway.example:8080',
      absolute: false,
      path,
    });
  });

  test('stays as it is, whatever it holds', () => {
    const byte = fc
      .integer({ min: 0x21, max: 0xff })
      .filter((code) => !'"#\\'.includes(String.fromCharCode(code)));
    fc.assert(
      fc.property(fc.array(byte), (codes) => {
        const path = `/${String.fromCharCode(...codes)}`;
        expect(parseTarget(path, 'h').path).toBe(path);
      }),
    );
  });

  test('needs no Host', () => {
    expect(parseTarget('/', undefined)).toEqual({ authority: '', absolute: false, path: '/' });
  });
});

describe('a target in absolute form', () => {
  test.each([
    ['http://a.example/b?c', 'a.example', '/b?c'],
    ['https://a.example/b', 'a.example', '/b'],
    ['HTTP://A.Example:8080/B', 'a.example:8080', '/B'],
    ['HttpS://a.example', 'a.example', '/'],
    ['http://a.example?b', 'a.example', '/?b'],
    ['http://a.example//b/../c', 'a.example', '//b/../c'],
    ['http://[::1]:80/', '[::1]:80', '/'],
    ['http://a.example/b@c:d', 'a.example', '/b@c:d'],
  ])('%s names its host, which wins over the Host header', (target, authority, path) => {
    expect(parseTarget(target, 'other.example')).toEqual({ authority, absolute: true, path });
  });
});

describe('no target of a request that can be forwarded is', () => {
  test.each([
    '*',
    '',
    'a.example:443',
    'api/x',
    'ftp://a.example/',
    'http:/a.example/',
    'http:///a',
    'http://',
    'https://?a',
    'http://user@a.example/',
    'http://user:secret@a.example/',
    '/a#b',
    '/a"b',
    '/a?b="c"',
    '/a\\b',
    'http://a.example/?b=\\',
    'http://a.example/#b',
  ])('%j', (target) => {
    expect(() => parseTarget(target, 'h')).toThrow(expect.objectContaining({ code: 'bad-request' }));
  });
});

describe('an authority', () => {
  test.each([
    ['', '', ''],
    ['a.example', 'a.example', ''],
    ['a.example:', 'a.example', ''],
    ['a.example:8443', 'a.example', '8443'],
    ['127.0.0.1:1', '127.0.0.1', '1'],
    ['[::1]', '[::1]', ''],
    ['[::1]:9443', '[::1]', '9443'],
  ])('%j is host %j and port %j', (authority, host, port) => {
    expect(splitAuthority(authority)).toEqual({ host, port });
  });
});
