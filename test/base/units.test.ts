import { describe, expect, test } from '@jest/globals';
import fc from 'fast-check';
import { parseDuration, parseSize } from '../../src/base/units.ts';

describe('durations', () => {
  test.each([
    ['0s', 0],
    ['500ms', 500],
    ['30s', 30_000],
    ['5m', 300_000],
    ['1h', 3_600_000],
    ['1d', 86_400_000],
    ['365d', 31_536_000_000],
    ['007s', 7000],
  ])('%s', (text, milliseconds) => {
    expect(parseDuration(text)).toBe(milliseconds);
  });

  test.each(['', '30', 's', '-1s', '+1s', '1.5s', '1 s', ' 1s', '1s\n', '1S', '1w', '1m30s', '1e3s', '٣s'])(
    '%j is refused with examples',
    (text) => {
      expect(() => parseDuration(text)).toThrow(RangeError);
      expect(() => parseDuration(text)).toThrow('500ms, 30s, 5m, 1h or 1d');
      expect(() => parseDuration(text)).toThrow(JSON.stringify(text));
    },
  );

  test('what no number holds exactly is too large', () => {
    expect(() => parseDuration('9007199254740991d')).toThrow(RangeError);
    // Its form is right.
    expect(() => parseDuration('9007199254740991d')).not.toThrow('30s');
  });

  test('every whole number of every unit', () => {
    const units = { ms: 1, s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 };
    fc.assert(
      fc.property(
        fc.nat({ max: 100_000_000 }),
        fc.constantFrom(...Object.entries(units)),
        (number, [unit, factor]) => {
          expect(parseDuration(`${number}${unit}`)).toBe(number * factor);
        },
      ),
    );
  });
});

describe('sizes', () => {
  test.each([
    ['0', 0],
    ['512', 512],
    ['512B', 512],
    ['64KiB', 65_536],
    ['1MiB', 1_048_576],
    ['2GiB', 2_147_483_648],
    ['1TiB', 1_099_511_627_776],
  ])('%s', (text, bytes) => {
    expect(parseSize(text)).toBe(bytes);
  });

  test.each(['', 'MiB', '1KB', '1kib', '1M', '1.5MiB', '-1', '1 MiB', '0x10', '1constructor', '1toString'])(
    '%j is refused with examples',
    (text) => {
      expect(() => parseSize(text)).toThrow(RangeError);
      expect(() => parseSize(text)).toThrow('512, 512B, 64KiB, 1MiB or 2GiB');
      expect(() => parseSize(text)).toThrow(JSON.stringify(text));
    },
  );

  test('what no number holds exactly is too large', () => {
    expect(() => parseSize('9007199254740992')).toThrow(RangeError);
    // Its form is right.
    expect(() => parseSize('9007199254740992')).not.toThrow('64KiB');
  });

  test('every whole number of every unit', () => {
    const units = { '': 0, B: 0, KiB: 10, MiB: 20, GiB: 30 };
    fc.assert(
      fc.property(
        fc.nat({ max: 2 ** 22 }),
        fc.constantFrom(...Object.entries(units)),
        (number, [unit, power]) => {
          expect(parseSize(`${number}${unit}`)).toBe(number * 2 ** power);
        },
      ),
    );
  });
});

test('any text is a safe whole number or a RangeError that quotes little of it', () => {
  const near = fc.stringMatching(/^[0-9]{0,20}[a-zA-Z]{0,4}$/);
  fc.assert(
    fc.property(fc.oneof(near, fc.string()), fc.constantFrom(parseDuration, parseSize), (text, parse) => {
      try {
        const value = parse(text);
        expect(Number.isSafeInteger(value) && value >= 0).toBe(true);
      } catch (error) {
        expect(error).toBeInstanceOf(RangeError);
        expect(String(error).length).toBeLessThan(400);
      }
    }),
  );
});
