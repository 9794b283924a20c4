import { afterEach, beforeEach, describe, expect, jest, test } from '@jest/globals';
import { Secret } from '../../src/base/secret.ts';
import {
  CLOCK_DIFFERENCE_MS,
  type SignedPlace,
  storeKeys,
  ValueSigner,
} from '../../src/challenges/store/value-signer.ts';

const NOW = Date.UTC(2026, 10, 22);
const [A, B] = ['aB'.repeat(32), '01'.repeat(32)] as const;
const PLACE: SignedPlace = { kind: 'parked', place: 'gateway:k' };
const TEXT = '{"a":"b.\n c"}';

function signer(...lines: string[]): ValueSigner {
  return new ValueSigner(storeKeys(new Secret(lines.join('\n'))));
}

beforeEach(() => {
  jest.useFakeTimers({ now: NOW });
});
afterEach(() => {
  jest.useRealTimers();
});

describe('a key file', () => {
  test('holds one to three keys of 256 bits in hex, one a line', () => {
    const [one] = storeKeys(new Secret(`\n  ${A}\r\n\n`));
    expect(one?.id).toMatch(/^[0-9a-f]{16}$/);
    expect(storeKeys(new Secret(`${A}\n${B}\n${A}`)).map(({ id }) => id === one?.id)).toEqual([
      true,
      false,
      true,
    ]);
  });

  test.each([
    ['nothing', ''],
    ['four keys', `${A}\n${A}\n${A}\n${A}`],
    ['a short key', A.slice(1)],
    ['a long key', `${A}0`],
    ['another text before its key', `x${A}`],
    ['something that is no hex', `${A.slice(1)}g`],
    ['a line that is no key', `${A}\nhunter2`],
  ])('is refused with %s, and not quoted', (_, content) => {
    expect(() => storeKeys(new Secret(content))).toThrow(
      new RangeError('does not hold 1 to 3 keys of 64 hex digits, one a line'),
    );
  });
});

describe('a signed value', () => {
  test('is the same text again as of the same time', () => {
    const value = signer(A).signAsOf(PLACE, TEXT, NOW - 500, 10_000);
    expect(signer(A).sign(PLACE, TEXT, 500, 10_000)).toBe(value);
    jest.setSystemTime(NOW + 1_000);
    expect(signer(A).signAsOf(PLACE, TEXT, NOW - 500, 10_000)).toBe(value);
    expect(signer(A).open(PLACE, value)).toEqual({ text: TEXT, ageMs: 1_500 });
  });

  test('is believed with its age, by everybody who has the key', () => {
    const value = signer(A).sign(PLACE, TEXT, 500.5, 10_000);
    jest.setSystemTime(NOW + 1_000);
    expect(signer(A).open(PLACE, value)).toEqual({ text: TEXT, ageMs: 1_501 });
    expect(signer(B, A).open(PLACE, value)).toEqual({ text: TEXT, ageMs: 1_501 });
    expect(signer(B).open(PLACE, value)).toBe('forged');
  });

  test('is the same for every program that knows the key', () => {
    // Computed with the hmac module of Python: HKDF (RFC 5869) and HMAC with SHA-256.
    const mac = 'Zm-Aln5BWMh7NaobP9JwJ89RIhak_Qv0-7sGDvSShqE';
    const value = signer(A).sign(PLACE, TEXT, 500, 60_000);
    expect(value).toBe(`053d53ea064cca5c.${mac}.${NOW - 500}.60000.${TEXT}`);
  });

  test('is signed with the first key', () => {
    const value = signer(A, B).sign(PLACE, TEXT, 0, 10_000);
    expect([signer(A).open(PLACE, value), signer(B).open(PLACE, value)]).toEqual([
      { text: TEXT, ageMs: 0 },
      'forged',
    ]);
  });

  test('is forged at another place, as another kind, or if any part of it is changed', () => {
    const it = signer(A);
    const value = it.sign(PLACE, TEXT, 0, 10_000);
    expect(it.open({ ...PLACE, place: 'gateway:l' }, value)).toBe('forged');
    expect(it.open({ ...PLACE, kind: 'learned' }, value)).toBe('forged');
    const [id = '', mac = '', issuedAt, life] = value.split('.');
    for (const forged of [
      '',
      TEXT,
      ` ${value}`,
      `${value} `,
      [id, mac, issuedAt, '10001', TEXT].join('.'),
      [id, mac, NOW + 1, life, TEXT].join('.'),
      [id, mac.slice(1), issuedAt, life, TEXT].join('.'),
      [id, `A${mac.slice(1)}`, issuedAt, life, TEXT].join('.'),
      ['0'.repeat(16), mac, issuedAt, life, TEXT].join('.'),
    ]) {
      expect(it.open(PLACE, forged)).toBe('forged');
    }
  });

  test('expires after its life and the difference that clocks may have, in both directions', () => {
    const it = signer(A);
    const value = it.sign(PLACE, TEXT, 0, 9_999.5);
    const at = (ms: number): unknown => {
      jest.setSystemTime(NOW + ms);
      return it.open(PLACE, value);
    };
    expect(at(10_000 + CLOCK_DIFFERENCE_MS)).toEqual({ text: TEXT, ageMs: 10_000 + CLOCK_DIFFERENCE_MS });
    expect(at(10_001 + CLOCK_DIFFERENCE_MS)).toBe('expired');
    expect(at(-CLOCK_DIFFERENCE_MS)).toEqual({ text: TEXT, ageMs: 0 });
    expect(at(-CLOCK_DIFFERENCE_MS - 1)).toBe('expired');
  });

  test('that is older than Unix time is of its beginning', () => {
    const it = signer(A);
    expect(it.open(PLACE, it.sign(PLACE, TEXT, NOW + 1, 2 * NOW))).toEqual({ text: TEXT, ageMs: NOW });
  });
});

test('without keys, nothing is signed and everything is believed', () => {
  const it = new ValueSigner([]);
  expect([it.signs, signer(A).signs]).toEqual([false, true]);
  expect(it.sign(PLACE, TEXT, 0, 1)).toBe(TEXT);
  expect(it.open(PLACE, TEXT)).toEqual({ text: TEXT, ageMs: undefined });
});
