import { describe, expect, test } from '@jest/globals';
import fc from 'fast-check';
import { Secret } from '../../src/base/secret.ts';
import type { AlgorithmName } from '../../src/digest/algorithms.ts';
import { parseAuthenticationInfo } from '../../src/digest/authentication-info.ts';
import { prepareAnswer } from '../../src/digest/authorization.ts';
import {
  type Challenge,
  chooseChallenge,
  formatChallenge,
  offersScheme,
  parseChallenges,
  withNonce,
} from '../../src/digest/challenge.ts';
import { ornate } from '../support/challenges.ts';
import { fuzzRuns } from '../support/fuzz.ts';
import { cpuMeter } from '../support/measure.ts';
import { readAuthorization } from './authorization-reader.ts';
import { fieldLines, readCases } from './vectors.ts';

const ALL: readonly AlgorithmName[] = ['MD5', 'SHA-256', 'SHA-512-256'];
const { probe, cases } = readCases();

/** Parameters of the challenge under the names that the vectors use; those at their default left out. */
function described(challenge: Challenge): Record<string, string | boolean> {
  const { realm, nonce, opaque, algorithmToken, qop, stale, userhash, utf8 } = challenge;
  const all = {
    realm,
    nonce,
    opaque,
    algorithm: algorithmToken,
    qop: qop.length > 0 ? qop.join(', ') : undefined,
    stale,
    userhash: userhash ? 'true' : undefined,
    charset: utf8 ? 'UTF-8' : undefined,
  };
  return Object.fromEntries(Object.entries(all).flatMap(([k, v]) => (v === undefined ? [] : [[k, v]])));
}

function answerToProbe(challenge: Challenge): Record<string, string> {
  const credential = { username: probe.username, password: new Secret(probe.password) };
  const value = prepareAnswer(challenge, credential, probe.cnonce).authorize(probe);
  return Object.fromEntries([...readAuthorization(value)].map(([name, { wire }]) => [name, wire]));
}

// A challenge beside another status is not for the parser to refuse: the handshake reads 401s only.
const challengeCases = cases.filter(({ category, status }) => category !== 'auth-info' && status === 401);
// The same the other way round: on a 401 the challenge decides.
const infoCases = cases.filter(({ category, status }) => category === 'auth-info' && status !== 401);

describe('challenges as they come from servers and attackers', () => {
  test.each(challengeCases)('$id', (fieldCase) => {
    const cpuMs = cpuMeter();
    const chosen = chooseChallenge(parseChallenges(fieldLines(fieldCase)), ALL);
    const took = cpuMs();

    const { outcome, parsed, probe_params } = fieldCase.expect;
    if (outcome === 'answer' && chosen !== undefined) {
      // RFC 7616 §3.3: a client may ignore where a challenge is valid.
      const { domain: _, ...expected } = parsed ?? {};
      expect(described(chosen)).toEqual(expected);
      expect(answerToProbe(chosen)).toEqual(probe_params);
    }
    expect(chosen === undefined ? 'no-answer' : 'answer').toBe(outcome);
    expect(took).toBeLessThan(fieldCase.limit_ms ?? Number.POSITIVE_INFINITY);
  });

  test.each(infoCases)('$id', (fieldCase) => {
    expect(parseAuthenticationInfo(fieldLines(fieldCase)).nextnonce ?? null).toBe(fieldCase.expect.nextnonce);
  });
});

describe('tolerance', () => {
  const usable: [what: string, field: string][] = [
    ['blanks between the scheme and its parameters', 'Digest \t realm="r", nonce="n"'],
    ['an empty element after the scheme', 'Digest , realm="r", nonce="n"'],
    ['a token68 with one pad', 'Negotiate YWI=, Digest realm="r", nonce="n"'],
    ['a token68 that starts with no token character', 'Negotiate /w==, Digest realm="r", nonce="n"'],
    ['a scheme alone after the challenge', 'Digest realm="r", nonce="n", Negotiate'],
    ['an empty unquoted value', 'Digest realm="r", nonce="n", opaque='],
    ['another scheme that contradicts itself', 'Basic realm="a", realm="b", Digest realm="r", nonce="n"'],
  ];
  test.each(usable)('%s', (_, field) => {
    expect(parseChallenges([field]).map(({ realm, nonce }) => [realm, nonce])).toEqual([['r', 'n']]);
  });

  test('an empty unquoted value right after the scheme is a parameter, no token68', () => {
    const [challenge] = parseChallenges(['Digest opaque=, realm="r", nonce="n"']);
    expect(challenge?.opaque).toBe('');
  });

  const unusable: [what: string, field: string][] = [
    ['an empty nonce', 'Digest realm="r", nonce=""'],
    ['a parameter before any scheme', 'realm="r", nonce="n"'],
    ['a scheme glued to a quoted string', 'Digest"r", realm="r", nonce="n"'],
    ['a contradiction in one name, whatever the name', 'Digest realm="r", nonce="n", foo=1, FOO=2'],
    ['a character that is no byte', 'Digest realm="\u0100", nonce="n"'],
    ['a bare value with a blank in it', 'Digest realm=my realm, nonce="n"'],
    ['a bare control character', 'Digest realm=a\u0001b, nonce="n"'],
  ];
  test.each(unusable)('not for %s', (_, field) => {
    expect(parseChallenges([field])).toEqual([]);
  });

  test('a broken field line takes only its own challenges with it', () => {
    const lines = ['Digest realm="a", nonce="1", Digest realm="', 'Digest realm="b", nonce="2"'];
    expect(parseChallenges(lines).map(({ realm }) => realm)).toEqual(['b']);
  });

  test('a contradictory challenge leaves the others of its line', () => {
    const line = 'Digest realm="a", realm="b", nonce="1", Digest realm="c", nonce="2"';
    expect(parseChallenges([line]).map(({ realm }) => realm)).toEqual(['c']);
  });

  test('every qop value that is known, once, in the order offered', () => {
    const [challenge] = parseChallenges(['Digest realm="r", nonce="n", qop="AUTH-INT,x,auth,,auth"']);
    expect(challenge?.qop).toEqual(['auth-int', 'auth']);
  });
});

describe('bounds', () => {
  const digest = (parameters: string) => `Digest realm="r", nonce="n", ${parameters}`;
  const parameters = (count: number) => Array.from({ length: count }, (_, at) => `p${at}=1`).join(',');

  test('a field line of 16 KiB, and not one character more', () => {
    const filled = digest('').padEnd(16 * 1024, ' ');
    expect(parseChallenges([filled])).toHaveLength(1);
    expect(parseChallenges([`${filled} `])).toHaveLength(0);
  });

  test('32 parameters in a challenge', () => {
    expect(parseChallenges([digest(parameters(30))])).toHaveLength(1);
    expect(parseChallenges([digest(parameters(31))])).toHaveLength(0);
  });

  test('no bound of its own on a value that is not sent back', () => {
    expect(parseChallenges([digest(`domain="${'/path '.repeat(2000)}"`)])).toHaveLength(1);
  });

  test.each([
    ['realm', 1024],
    ['nonce', 4096],
    ['opaque', 4096],
  ])('%s of %i characters', (name, longest) => {
    const line = (length: number) => {
      const values = { realm: 'r', nonce: 'n', [name]: 'x'.repeat(length) };
      return `Digest ${Object.entries(values)
        .map((pair) => pair.join('='))
        .join(', ')}`;
    };
    expect(parseChallenges([line(longest)])).toHaveLength(1);
    expect(parseChallenges([line(longest + 1)])).toHaveLength(0);
  });

  test('16 challenges in a field line, and 16 in all', () => {
    const sixteen = Array<string>(16).fill('Digest realm="r", nonce="n"').join(', ');
    expect(parseChallenges([sixteen])).toHaveLength(16);
    expect(parseChallenges([`${sixteen}, Basic realm="r"`])).toHaveLength(0);
    expect(parseChallenges([sixteen, sixteen])).toHaveLength(16);
  });
});

describe('choice', () => {
  const offer = (...algorithms: string[]) =>
    parseChallenges(
      algorithms.map(
        (algorithm, at) => `Digest realm="r", nonce="${at}", qop="auth", algorithm=${algorithm}`,
      ),
    );

  test('the strongest that is allowed, whatever the order of either list', () => {
    const offered = offer('MD5', 'SHA-512-256', 'SHA-256');
    expect(chooseChallenge(offered, ['MD5', 'SHA-512-256', 'SHA-256'])?.nonce).toBe('1');
    expect(chooseChallenge(offered, ['MD5', 'SHA-256'])?.nonce).toBe('2');
    expect(chooseChallenge(offered, ['MD5'])?.nonce).toBe('0');
  });

  test('none when none is allowed', () => {
    expect(chooseChallenge(offer('MD5'), ['SHA-256'])).toBeUndefined();
    expect(chooseChallenge(offer('MD5'), [])).toBeUndefined();
  });

  test('the session form counts as its base algorithm, and of equals the first is taken', () => {
    const offered = offer('MD5', 'SHA-256-sess', 'SHA-256');
    expect(chooseChallenge(offered, ['SHA-256'])?.algorithm.token).toBe('SHA-256-sess');
  });
});

test('a challenge with the next nonce is the same but for nonce and stale', () => {
  const [challenge] = parseChallenges(['Digest realm="r", nonce="1", opaque="o", qop="auth", stale=true']);
  if (challenge === undefined) throw new Error('no challenge');
  expect(withNonce(challenge, '2')).toEqual({ ...challenge, nonce: '2', stale: false });
  expect(challenge.nonce).toBe('1');
});

test.each([
  ['with everything that a challenge can have', ornate()],
  ['without qop', ornate('')],
  ['with as little as possible', parseChallenges(['Digest nonce="n"'])[0]],
])('a challenge %s is formatted so that an equal one is read', (_, challenge) => {
  if (challenge === undefined) throw new Error('no challenge');
  expect(parseChallenges([formatChallenge(challenge)])).toEqual([challenge]);
});

test('a challenge is formatted without what was not offered', () => {
  const [challenge] = parseChallenges(['Digest nonce="n"']);
  expect(challenge && formatChallenge(challenge)).toBe('Digest realm="", nonce="n"');
});

test.each([
  [['Basic realm="r", Digest nonce="n"'], ['basic', 'digest']],
  [['NTLM', 'Digest nonce="n", algorithm=unknown'], ['digest']],
  [['Digest nonce="'], []],
  [[], []],
])('%j offers %j', (lines, schemes) => {
  expect(['basic', 'digest'].filter((scheme) => offersScheme(lines, scheme))).toEqual(schemes);
});

describe('any field', () => {
  const pieces = fc.constantFrom(
    ...['Digest ', 'Basic ', 'realm', 'nonce', 'qop', 'algorithm', '=', ',', '"', '\\', ' ', '\t', '\r\n'],
    ...['auth', 'auth-int', 'MD5', 'SHA-256-sess', 'true', '==', '\u0000', '\u00e9', '\u20ac', ';', "'"],
  );
  const field = fc.oneof(
    fc.string({ unit: 'binary' }),
    fc.array(pieces, { maxLength: 60 }).map((list) => list.join('')),
  );

  test('never throws, and what comes out can be answered', () => {
    fc.assert(
      fc.property(fc.array(field, { maxLength: 4 }), (lines) => {
        for (const challenge of parseChallenges(lines)) {
          expect(challenge.nonce).not.toBe('');
          expect(answerToProbe(challenge)).toHaveProperty('response');
        }
        parseAuthenticationInfo(lines);
      }),
      { numRuns: fuzzRuns(2000) },
    );
  });

  test('a real challenge cut off at any character does not throw, nor does it lose what came before', () => {
    const whole =
      'Negotiate, NTLM TlRMTVNTUAAC==, Digest realm="a \\"b\\" \\\\", nonce="YWJj==", qop="auth, auth-int", ' +
      'algorithm=SHA-256, opaque="0", stale = TRUE, userhash=true, charset=UTF-8, Basic realm="r"';
    const nonceEnd = whole.indexOf(', qop');
    for (let length = 0; length <= whole.length; length += 1) {
      const [challenge] = parseChallenges([whole.slice(0, length)]);
      if (challenge !== undefined) {
        expect(length).toBeGreaterThanOrEqual(nonceEnd);
        expect([challenge.realm, challenge.nonce]).toEqual(['a "b" \\', 'YWJj==']);
      }
    }
    expect(parseChallenges([whole])).toHaveLength(1);
  });
});
