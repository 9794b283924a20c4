import { createHash } from 'node:crypto';
import { Secret } from '../../src/base/secret.ts';
import {
  type AuthenticationInfo,
  checkProof,
  parseAuthenticationInfo,
} from '../../src/digest/authentication-info.ts';
import { credentialBytes, prepareAnswer, usernameParameter } from '../../src/digest/authorization.ts';
import { type Challenge, formatChallenge, parseChallenges } from '../../src/digest/challenge.ts';
import {
  BOUNDS,
  DigestSyntaxError,
  type ListBounds,
  parseChallengeList,
} from '../../src/digest/parameters.ts';
import { readAuthorization } from '../../test/digest/authorization-reader.ts';
import { CONTROL, must, mustEqual, resultOf } from './violation.ts';

/*
 * An input is the field lines of a response, Latin-1 as Node.js delivers them. They are read as challenges and as
 * Authentication-Info; the first line is also a user name.
 */

const PASSWORD = 'not to be seen';
const CREDENTIAL = { username: 'Mufasa "ü"', password: new Secret(PASSWORD) };
const CNONCE = '0a4f113b0a4f113b0a4f113b0a4f113b';
const REQUEST = { method: 'GET', uri: '/dir/index.html?a="b\\"', nc: 1 };
const SMALL: ListBounds = { fieldLength: 256, challenges: 2, parameters: 4 };
const HASHES = { MD5: 'md5', 'SHA-256': 'sha256', 'SHA-512-256': 'sha512-256' } as const;
const MESSAGES =
  /^(?:field too long|expected a comma|expected a token|parameter before any scheme|parameter without a value|too many challenges|too many parameters|quoted string cut off or with a control character)(?: at character \d+)?$/;

export function check(input: Buffer): void {
  const lines = input.toString('latin1').split('\n');
  checkChallenges(lines);
  checkInfo(lines);
  for (const line of lines) {
    checkBounds(line);
    checkReading(line);
  }
  checkUsername(Buffer.from(lines[0] ?? '', 'latin1').toString('utf8'));
}

function checkChallenges(lines: readonly string[]): void {
  const challenges = parseChallenges(lines);
  mustEqual(parseChallenges(lines), challenges, 'two readings of challenges are equal');
  must(challenges.length <= BOUNDS.challenges, 'there are no more challenges than the bound');
  for (const challenge of challenges) {
    const { realm, nonce, opaque = '' } = challenge;
    must(nonce !== '' && nonce.length <= 4096, 'a nonce is as long as allowed');
    must(realm.length <= 1024 && opaque.length <= 4096, 'values are as long as allowed');
    mustEqual(
      parseChallenges([formatChallenge(challenge)]),
      [challenge],
      'a challenge is read as it is written',
    );
    checkAnswer(challenge);
  }
}

/** Reads the answer, and computes it again, with code that is not that of digest/. */
function checkAnswer(challenge: Challenge): void {
  const answer = prepareAnswer(challenge, CREDENTIAL, CNONCE);
  const value = answer.authorize(REQUEST);
  must(!CONTROL.test(value), 'an answer has no control characters');
  must(!value.includes(PASSWORD), 'an answer does not hold the password');
  const sent = readAuthorization(value);
  const { realm, nonce, opaque, algorithm } = challenge;
  const read = ['realm', 'nonce', 'uri', 'opaque'].map((name) => sent.get(name)?.value);
  mustEqual(read, [realm, nonce, REQUEST.uri, opaque], 'an answer repeats the challenge');
  const hash = (text: string): string =>
    createHash(HASHES[algorithm.name]).update(Buffer.from(text, 'latin1')).digest('hex');
  const secret = hash(`${Buffer.from(CREDENTIAL.username).toString('latin1')}:${realm}:${PASSWORD}`);
  must(!value.includes(secret), 'an answer does not hold the hash of the password');
  const a1 = algorithm.session ? hash(`${secret}:${nonce}:${CNONCE}`) : secret;
  const qop = sent.get('qop')?.value;
  const body = qop === 'auth-int' ? `:${hash('')}` : '';
  const middle = qop === undefined ? '' : `00000001:${CNONCE}:${qop}:`;
  const response = hash(`${a1}:${nonce}:${middle}${hash(`${REQUEST.method}:${REQUEST.uri}${body}`)}`);
  mustEqual(sent.get('response')?.value, response, 'the response is that of RFC 7616');
  mustEqual(qop, answer.qop, 'the qop is the one that was prepared');
}

const [PROVEN] = parseChallenges(['Digest realm="r", nonce="n", algorithm=SHA-256, qop="auth,auth-int"']);

function checkInfo(lines: readonly string[]): void {
  const info = parseAuthenticationInfo(lines);
  mustEqual(parseAuthenticationInfo(lines), info, 'two readings of Authentication-Info are equal');
  const { nextnonce, nc = 0 } = info;
  must(nextnonce === undefined || (nextnonce !== '' && nextnonce.length <= 4096), 'a nextnonce can be sent');
  must(Number.isInteger(nc) && nc >= 0 && nc <= 0xffffffff, 'nc has eight hex digits');
  if (PROVEN !== undefined) checkVerdict(info, PROVEN);
}

function checkVerdict(info: AuthenticationInfo, challenge: Challenge): void {
  const answer = prepareAnswer(challenge, CREDENTIAL, CNONCE);
  const request = { uri: REQUEST.uri, nc: 1, cnonce: CNONCE };
  const verdict = checkProof(info, answer, request);
  must((verdict === 'absent') === (info.rspauth === undefined), 'a missing proof is absent, and no other');
  const { qop = 'auth', cnonce = CNONCE, nc = 1 } = info;
  const right = answer.proof({ uri: REQUEST.uri, nc: 1, qop });
  const isValid = info.rspauth?.toLowerCase() === right && cnonce === CNONCE && nc === 1;
  must((verdict === 'valid') === isValid, 'a proof is valid if it is that of the request');
  mustEqual(
    checkProof({ ...info, rspauth: right, cnonce, nc: 1 }, answer, request) === 'valid',
    cnonce === CNONCE,
    'the right proof is valid for its cnonce',
  );
}

function checkBounds(line: string): void {
  const offers = resultOf(() => parseChallengeList(line, SMALL), DigestSyntaxError);
  if (offers instanceof DigestSyntaxError) {
    must(MESSAGES.test(offers.message), 'an error does not quote the field');
    return;
  }
  must(line.length <= SMALL.fieldLength, 'a field is as long as the bound');
  must(offers.length <= SMALL.challenges, 'a field has as many challenges as the bound');
  for (const { scheme, parameters } of offers) {
    must(scheme === scheme.toLowerCase() && scheme !== '', 'a scheme is in lower case');
    must(parameters.values.size <= SMALL.parameters, 'a challenge has as many parameters as the bound');
    for (const value of parameters.values.values()) {
      must(!CONTROL.test(value), 'a value has no control characters');
    }
  }
}

/** A list that a strict reader takes for one challenge means the same to digest/. */
function checkReading(line: string): void {
  if (CONTROL.test(line) || line.length > BOUNDS.fieldLength) return;
  const strict = resultOf(() => readAuthorization(line), Error);
  if (strict instanceof Error || strict.size === 0 || strict.size > BOUNDS.parameters) return;
  const values = new Map(Array.from(strict, ([name, { value }]) => [name.toLowerCase(), value]));
  if (values.size < strict.size) return;
  const offers = parseChallengeList(line);
  mustEqual(
    offers,
    [{ scheme: 'digest', parameters: { values, contradictory: false } }],
    'a strict list is read as it is',
  );
}

const PLAIN = parseChallenges(['Digest realm="r", nonce="n"']);
const UTF8 = parseChallenges(['Digest realm="r", nonce="n", charset=UTF-8']);
const HASHED = parseChallenges(['Digest realm="r", nonce="n", userhash=true, algorithm=SHA-256']);

function checkUsername(name: string): void {
  const bytes = credentialBytes(name);
  const text = name.normalize('NFC');
  mustEqual(Buffer.from(bytes, 'latin1').toString('utf8'), text, 'a user name is sent in UTF-8');
  const [plain, encoded, hashed] = [PLAIN, UTF8, HASHED].map(([challenge]) =>
    resultOf(() => (challenge === undefined ? '' : usernameParameter(challenge, bytes)), RangeError),
  );
  must(
    plain instanceof RangeError === CONTROL.test(bytes),
    'only a control character cannot be sent plainly',
  );
  if (typeof plain === 'string') mustEqual(nameIn(plain), bytes, 'a plain user name is read as it is');
  must(typeof encoded === 'string' && typeof hashed === 'string', 'every user name can be encoded or hashed');
  mustEqual(decodedName(String(encoded)), text, 'an encoded user name is read as it is');
  const expected = createHash('sha256').update(`${text}:r`).digest('hex');
  mustEqual(nameIn(String(hashed)), expected, 'a hashed user name is that of RFC 7616');
}

function nameIn(parameter: string | undefined): string | undefined {
  return readAuthorization(`Digest ${parameter}`).get('username')?.value;
}

function decodedName(parameter: string): string | undefined {
  const [, encoded] = /^username\*=UTF-8''([\w!#$&+.^`|~%-]*)$/.exec(parameter) ?? [];
  return encoded === undefined
    ? Buffer.from(nameIn(parameter) ?? '', 'latin1').toString('utf8')
    : decodeURIComponent(encoded);
}
