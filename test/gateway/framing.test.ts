import type { IncomingHttpHeaders, IncomingMessage } from 'node:http';
import { describe, expect, test } from '@jest/globals';
import { checkFraming } from '../../src/gateway/framing.ts';
import { cpuMeter } from '../support/cpu.ts';

/** As Node's parser gives it, as far as it is looked at. */
function head(httpVersion: string, rawHeaders: string[], headers: IncomingHttpHeaders = {}): IncomingMessage {
  return { httpVersion, rawHeaders, headers } as IncomingMessage;
}

const check = (req: IncomingMessage): void => checkFraming(req, `HTTP/${req.httpVersion}`);
const chunked = { 'transfer-encoding': 'chunked' };

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
    expect(() => check(head('1.1', ['HOST', host]))).not.toThrow();
  });

  test('HTTP/1.0 without Host', () => expect(() => check(head('1.0', []))).not.toThrow());

  test.each(['chunked', 'Chunked', 'CHUNKED'])('Transfer-Encoding: %s', (coding) => {
    const req = head('1.1', ['Host', 'a'], { 'transfer-encoding': coding });
    expect(() => check(req)).not.toThrow();
  });
});

describe('bad is', () => {
  test.each<[string, IncomingMessage]>([
    ['no Host', head('1.1', [])],
    ['two Hosts', head('1.1', ['Host', 'a', 'host', 'b'])],
    ['the same Host twice', head('1.1', ['Host', 'a', 'Host', 'a'])],
    ['two Hosts in HTTP/1.0', head('1.0', ['Host', 'a', 'Host', 'b'])],
    ['chunked in HTTP/1.0', head('1.0', ['Host', 'a'], chunked)],
    ['HTTP/0.9', head('0.9', ['Host', 'a'])],
    ['HTTP/2.0', head('2.0', ['Host', 'a'])],
    ...['gzip, chunked', 'chunked, identity', 'identity', 'xchunked', 'chunked;q=1', '"chunked"', ''].map(
      (coding): [string, IncomingMessage] => [
        `Transfer-Encoding: ${coding}`,
        head('1.1', ['Host', 'a'], { 'transfer-encoding': coding }),
      ],
    ),
    ...['a b', 'a/b', 'a, b', 'user@a', 'a:b', 'a:1:2', '[::1', '::1', 'a#b', 'a\\b', 'a"', 'caf\xe9'].map(
      (host): [string, IncomingMessage] => [`Host: ${host}`, head('1.1', ['Host', host])],
    ),
  ])('%s', (_what, req) => {
    expect(() => check(req)).toThrow(expect.objectContaining({ code: 'bad-request' }));
  });

  test('a long Host that is almost right, at once', () => {
    const cpuMs = cpuMeter();
    expect(() => check(head('1.1', ['Host', `${'a'.repeat(1_000_000)}/`]))).toThrow('Host');
    expect(cpuMs()).toBeLessThan(500);
  });
});
