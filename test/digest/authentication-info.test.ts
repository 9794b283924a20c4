import { describe, expect, test } from '@jest/globals';
import { Secret } from '../../src/base/secret.ts';
import { hash } from '../../src/digest/algorithms.ts';
import { checkProof, parseAuthenticationInfo, proofNeedsBody } from '../../src/digest/authentication-info.ts';
import { type PreparedAnswer, prepareAnswer } from '../../src/digest/authorization.ts';
import { parseChallenges } from '../../src/digest/challenge.ts';

const NOTHING = {
  nextnonce: undefined,
  rspauth: undefined,
  qop: undefined,
  cnonce: undefined,
  nc: undefined,
};
const request = { uri: '/x?a=%27', nc: 0x1a, cnonce: 'c' };

function prepare(parameters: string): PreparedAnswer {
  const [challenge] = parseChallenges([`Digest realm="r", nonce="n"${parameters}`]);
  if (challenge === undefined) throw new Error('no challenge');
  return prepareAnswer(challenge, { username: 'u', password: new Secret('p') }, 'c');
}

/** RFC 7616 §3.5 written out, without the code under test. */
function rspauth(parts: string, a2: string): string {
  return hash('MD5', `${hash('MD5', 'u:r:p')}:n:${parts}${hash('MD5', a2)}`);
}

describe('parsing', () => {
  test('takes every parameter, quoted or not', () => {
    const lines = ['nextnonce="N", qop="auth-int"', 'RSPAUTH="00ff", cnonce=c, nc="0000001A"'];
    expect(parseAuthenticationInfo(lines)).toEqual({
      nextnonce: 'N',
      rspauth: '00ff',
      qop: 'auth-int',
      cnonce: 'c',
      nc: 26,
    });
  });

  test('ignores what it does not know', () => {
    const field = 'digest="00", nextnonce="N", x-rspauth="1", nextnonces=M, __proto__="y"';
    expect(parseAuthenticationInfo([field])).toEqual({ ...NOTHING, nextnonce: 'N' });
  });

  test('takes a next nonce of 4096 characters, and not one more', () => {
    const nonce = 'n'.repeat(4096);
    expect(parseAuthenticationInfo([`nextnonce="${nonce}"`])).toEqual({ ...NOTHING, nextnonce: nonce });
    expect(parseAuthenticationInfo([`nextnonce="${nonce}n"`])).toEqual(NOTHING);
  });

  test('takes nothing from no field', () => {
    expect(parseAuthenticationInfo([])).toEqual(NOTHING);
  });

  test.each([
    ['a cut quoted string', 'nextnonce="N", rspauth="0'],
    ['two values for one name', 'nextnonce="N", nextnonce="M"'],
    ['a count that is none', 'nextnonce="N", nc=0x1'],
    ['a count that is too long', 'nextnonce="N", nc=000000001'],
    ['a scheme', 'Digest nextnonce="N"'],
    ['too long a field', `nextnonce="N",${' '.repeat(16 * 1024)}`],
  ])('takes nothing from %s', (_, field) => {
    expect(parseAuthenticationInfo([field])).toEqual(NOTHING);
  });
});

describe('checking the proof', () => {
  const auth = prepare(', qop="auth"');
  const right = rspauth('0000001a:c:auth:', ':/x?a=%27');
  const check = (field: string, answer = auth, sent: Parameters<typeof checkProof>[2] = request) =>
    checkProof(parseAuthenticationInfo([field]), answer, sent);

  test('is absent when the server sent none', () => {
    expect(check('nextnonce="N", qop=auth, cnonce="c", nc=0000001a')).toBe('absent');
  });

  test('is valid with cnonce and nc, and without', () => {
    expect(check(`rspauth="${right}", qop=auth, cnonce="c", nc=0000001a`)).toBe('valid');
    expect(check(`rspauth="${right}"`)).toBe('valid');
  });

  test.each([
    ['another hash', `rspauth="${'0'.repeat(32)}"`],
    ['an empty hash', 'rspauth=""'],
    ['a hash that is too long', `rspauth="${right}0"`],
    ['the cnonce of another request', `rspauth="${right}", cnonce="d"`],
    ['the nc of another request', `rspauth="${right}", nc=0000001b`],
  ])('is invalid with %s', (_, field) => {
    expect(check(field)).toBe('invalid');
  });

  test('is invalid when it is our own response sent back', () => {
    const own = /response="([^"]+)"/.exec(auth.authorize({ method: 'GET', ...request }))?.[1] ?? '';
    expect(own).toHaveLength(32);
    expect(check(`rspauth="${own}"`)).toBe('invalid');
  });

  test('without qop covers the nonce and the uri', () => {
    const plain = prepare('');
    const proof = rspauth('', ':/x?a=%27');
    expect(check(`rspauth="${proof}"`, plain)).toBe('valid');
    expect(check(`rspauth="${proof}", cnonce="c"`, plain)).toBe('invalid');
    expect(check(`rspauth="${proof}", nc=0000001a`, plain)).toBe('invalid');
    expect(check(`rspauth="${proof}", qop=auth`, plain)).toBe('invalid');
    const withCount = rspauth('0000001a:c:auth:', ':/x?a=%27');
    expect(check(`rspauth="${withCount}", qop=auth`, plain)).toBe('invalid');
  });

  test('with auth-int covers the body', () => {
    const answer = prepare(', qop="auth-int"');
    const bodyHash = hash('MD5', Buffer.from('body'));
    const proof = rspauth('0000001a:c:auth-int:', `:/x?a=%27:${bodyHash}`);
    expect(check(`rspauth="${proof}"`, answer, { ...request, bodyHash })).toBe('valid');
    expect(check(`rspauth="${proof}"`, answer)).toBe('invalid');
    const empty = rspauth('0000001a:c:auth-int:', `:/x?a=%27:${hash('MD5', '')}`);
    expect(check(`rspauth="${empty}"`, answer)).toBe('valid');
  });

  test('takes the qop of the response where it differs from the one sent', () => {
    const bodyHash = hash('MD5', Buffer.from('body'));
    const proof = rspauth('0000001a:c:auth-int:', `:/x?a=%27:${bodyHash}`);
    expect(check(`rspauth="${proof}", qop=auth-int`, auth, { ...request, bodyHash })).toBe('valid');
  });

  test.each([
    ['qop="auth"', 'rspauth="0"', false],
    ['qop="auth"', 'rspauth="0", qop=auth-int', true],
    ['qop="auth-int"', 'rspauth="0"', true],
    ['qop="auth-int"', 'rspauth="0", qop=auth', false],
    ['qop="auth-int"', 'nextnonce="N"', false],
    ['stale=false', 'rspauth="0"', false],
  ])('for %s and %s needs the body: %p', (offered, field, needed) => {
    expect(proofNeedsBody(parseAuthenticationInfo([field]), prepare(`, ${offered}`))).toBe(needed);
  });
});
