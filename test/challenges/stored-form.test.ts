import { describe, expect, test } from '@jest/globals';
import { LONGEST_LIFE_MS, SHORTEST_LIFE_MS } from '../../src/challenges/store/store.ts';
import {
  readHeld,
  readLearned,
  readParked,
  writeHeld,
  writeLearned,
  writeParked,
} from '../../src/challenges/store/stored-form.ts';
import { aged, learned, ornate, parked } from '../support/challenges.ts';

const NONCE = 'Digest realm="r", nonce="n"';
const COUNTED = `${NONCE}, qop="auth"`;
const HELD = { challenge: NONCE, cookies: [] };
const PARKED = { challenge: COUNTED, cookies: [], cnonce: 'c', count: 1 };
const KINDS = [
  ['shared', readHeld, HELD],
  ['parked', readParked, PARKED],
] as const;

describe('a value is read as it is written, with the age that the reader knows', () => {
  test('a challenge that every process may use', () => {
    const value = { challenge: ornate(''), cookies: ['a="b c"', 'e=\u00e9'] };
    expect(readHeld(writeHeld({ ...value }), 12.5)).toEqual({ ...value, ageMs: 12.5 });
    expect(readHeld(writeHeld(aged('n', 7)), 9)).toEqual(aged('n', 9));
  });

  test.each([0, 1, 0xffffffff])('a challenge with its count %d', (count) => {
    const value = { ...parked('n', count, 3), challenge: ornate(), cookies: ['a=b'] };
    expect(readParked(writeParked(value), 4)).toEqual({ ...value, ageMs: 4 });
  });

  test.each([
    {},
    { lifetimeMs: undefined },
    { lifetimeMs: SHORTEST_LIFE_MS, policy: 'shared' as const },
    { lifetimeMs: LONGEST_LIFE_MS, policy: 'single-use' as const, algorithm: 'SHA-512-256-sess' },
    { realm: 'r'.repeat(1024), counted: false, portable: true },
  ])('facts %j', (change) => {
    const value = { ...learned, ...change };
    expect(readLearned(writeLearned(value), 4)).toEqual({ ...value, ageMs: 4 });
  });
});

describe.each(KINDS)('a %s challenge is not believed', (_, read, form) => {
  test.each<[string, object]>([
    ['no challenge', { challenge: 'Digest realm="r"' }],
    ['an empty field', { challenge: '' }],
    ['two challenges', { challenge: `${form.challenge}, ${form.challenge}` }],
    ['a challenge that is no text', { challenge: 7 }],
    ['no cookies', { cookies: undefined }],
    ['a cookie that is no text', { cookies: [7] }],
    ['a cookie without a value', { cookies: ['a'] }],
    ['a cookie with attributes', { cookies: ['a=b; Path=/'] }],
    ['one good cookie of two', { cookies: ['a=b', 'a\n=b'] }],
    ['more cookies than a request carries', { cookies: Array.from({ length: 17 }, () => 'a=b') }],
    ['a member that no gateway writes', { more: 1 }],
  ])('with %s', (_name, change) => {
    expect(read(JSON.stringify(form), 1)).toBeDefined();
    expect(read(JSON.stringify({ ...form, ...change }), 1)).toBeUndefined();
  });

  test.each(['', '{', 'null', '[]', '7', '"text"'])('from the text %j', (text) => {
    expect(read(text, 1)).toBeUndefined();
  });
});

test('a challenge with qop is never shared, and one without is never parked', () => {
  expect(readHeld(JSON.stringify({ ...HELD, challenge: COUNTED }), 1)).toBeUndefined();
  expect(readParked(JSON.stringify({ ...PARKED, challenge: NONCE }), 1)).toBeUndefined();
});

describe('a parked challenge is not believed', () => {
  test.each<[string, object]>([
    ['a count below zero', { count: -1 }],
    ['a count of more than eight hex digits', { count: 0x1_0000_0000 }],
    ['a count that is no whole number', { count: 1.5 }],
    ['no count', { count: undefined }],
    ['an empty cnonce', { cnonce: '' }],
    ['a cnonce of 65 characters', { cnonce: 'c'.repeat(65) }],
    ['a cnonce with a line break behind it', { cnonce: 'c\n' }],
    ['a cnonce with a line break before it', { cnonce: '\nc' }],
    ['a cnonce outside ASCII', { cnonce: '\u00e9' }],
  ])('with %s', (_name, change) => {
    expect(readParked(JSON.stringify({ ...PARKED, ...change }), 1)).toBeUndefined();
  });

  test('but with a cnonce of 64 characters', () => {
    const cnonce = `~ ${'c'.repeat(62)}`;
    expect(readParked(JSON.stringify({ ...PARKED, cnonce }), 1)?.cnonce).toBe(cnonce);
  });
});

describe('facts are not believed', () => {
  test.each<[string, object]>([
    ['a realm of 1,025 characters', { realm: 'r'.repeat(1025) }],
    ['no realm', { realm: undefined }],
    ['an algorithm that no gateway computes', { algorithm: 'SHA-1' }],
    ['an algorithm in another spelling', { algorithm: 'md5' }],
    ['a policy that there is not', { policy: 'all' }],
    ['no word about qop', { counted: undefined }],
    ['no word about other processes', { portable: undefined }],
    ['a life that is too short', { lifetimeMs: SHORTEST_LIFE_MS - 1 }],
    ['a life that is too long', { lifetimeMs: LONGEST_LIFE_MS + 1 }],
    ['a member that no gateway writes', { more: 1 }],
  ])('with %s', (_name, change) => {
    const form = JSON.parse(writeLearned(learned));
    expect(readLearned(JSON.stringify(form), 1)).toBeDefined();
    expect(readLearned(JSON.stringify({ ...form, ...change }), 1)).toBeUndefined();
  });

  test.each(['', '{', 'null', '[]'])('from the text %j', (text) => {
    expect(readLearned(text, 1)).toBeUndefined();
  });
});
