import { describe, expect, test } from '@jest/globals';
import fc from 'fast-check';
import { endText, formatInstant, parseDuration, parseInstant, parseSize } from '../../src/base/units.ts';

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

describe('instants', () => {
  test.each([
    ['2027-03-01', '2027-03-01T00:00:00.000Z', '2027-03-01'],
    ['2028-02-29', '2028-02-29T00:00:00.000Z', '2028-02-29'],
    ['2027-03-01T12:30:00Z', '2027-03-01T12:30:00.000Z', '2027-03-01T12:30:00Z'],
    ['2027-03-01t12:30:00.5z', '2027-03-01T12:30:00.500Z', '2027-03-01T12:30:00.500Z'],
    ['2027-03-01T00:00:00+01:00', '2027-02-28T23:00:00.000Z', '2027-02-28T23:00:00Z'],
    ['2027-02-28T23:00:00-01:00', '2027-03-01T00:00:00.000Z', '2027-03-01'],
  ])('%s', (text, time, formatted) => {
    expect(new Date(parseInstant(text)).toISOString()).toBe(time);
    expect(formatInstant(parseInstant(text))).toBe(formatted);
  });

  test.each([
    ...[
      '',
      '2027',
      '2027-03',
      '2027-3-1',
      '2027-02-30',
      '2027-13-01',
      '0000-00-00',
      'tomorrow',
      ' 2027-03-01',
    ],
    ...['2027-03-01T12:00', '2027-03-01T12:00:00', '2027-03-01T24:00:00Z', '2027-02-29T00:00:00Z'],
    ...[
      '2027-03-01T12:00:60Z',
      '2027-03-01T12:00:00+25:00',
      '2027-03-01 12:00:00Z',
      '2027-03-01T12:00:00Z\n',
    ],
  ])('%j is refused with examples', (text) => {
    expect(() => parseInstant(text)).toThrow(RangeError);
    expect(() => parseInstant(text)).toThrow('2027-03-01T12:00:00Z');
  });

  test('end at themselves', () => {
    const at = parseInstant('2027-03-01');
    expect([endText(at, at - 1), endText(at, at)]).toEqual(['ends 2027-03-01', 'ended 2027-03-01']);
  });
});
