import { describe, expect, test } from '@jest/globals';
import fc from 'fast-check';
import {
  type ListBounds,
  parseChallengeList,
  parseParameterList,
  quote,
  quotedParameter,
} from '../../src/digest/parameters.ts';
import { DigestSyntaxError } from '../../src/digest/scanner.ts';

const TOKEN_CHARACTERS = "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyz";
const name = fc.string({ unit: fc.constantFrom(...TOKEN_CHARACTERS), minLength: 1, maxLength: 12 });
const byte = fc.integer({ min: 0x20, max: 0xff }).filter((code) => code !== 0x7f);
const value = fc.string({
  unit: fc.oneof(
    byte.map((code) => String.fromCharCode(code)),
    fc.constantFrom('"', '\\', ',', '=', ' ', '\t'),
  ),
});
const parameters = fc.uniqueArray(fc.tuple(name, value), { selector: ([key]) => key, maxLength: 32 });
const separator = fc.constantFrom(',', ', ', ' , ', ',,', '\t, ,\t');

describe('what is formatted', () => {
  test('is parsed to the same parameters, whatever they hold', () => {
    fc.assert(
      fc.property(parameters, separator, (list, between) => {
        const field = list.map(([key, text]) => quotedParameter(key, text)).join(between);
        expect(parseParameterList(field)).toEqual({ values: new Map(list), contradictory: false });
      }),
    );
  });

  test('is parsed to the same challenges, beside others', () => {
    const challenges = fc.array(fc.tuple(name, parameters), { minLength: 1, maxLength: 5 });
    fc.assert(
      fc.property(challenges, separator, (list, between) => {
        // A scheme without parameters would leave those of the next one to tell them apart.
        const full = list.map(([scheme, own]) => ({
          scheme,
          own: own.length > 0 ? own : ([['x', '']] as const),
        }));
        const field = full
          .map(({ scheme, own }) => `${scheme} ${own.map(([k, v]) => quotedParameter(k, v)).join(between)}`)
          .join(between);
        expect(parseChallengeList(field)).toEqual(
          full.map(({ scheme, own }) => ({
            scheme,
            parameters: { values: new Map(own), contradictory: false },
          })),
        );
      }),
    );
  });

  test.each(['\r', '\n', '\0', '\x1f', '\x7f', '\u0100', '\ud83d\ude00'])('never holds %j', (text) => {
    expect(() => quote(`a${text}b`)).toThrow(RangeError);
  });
});

test('any string parses, or throws DigestSyntaxError and nothing else', () => {
  const shapes = fc.constantFrom('Digest', ' ', 'a', '=', ',', '"', '\\', '/', '\0', '\xe9', '\u20ac');
  const text = fc.oneof(fc.string({ unit: 'binary' }), fc.string({ unit: shapes, maxLength: 40 }));
  for (const parse of [parseChallengeList, parseParameterList]) {
    fc.assert(
      fc.property(text, (field) => {
        try {
          parse(field);
        } catch (error) {
          expect(error).toBeInstanceOf(DigestSyntaxError);
        }
      }),
      { numRuns: 3000 },
    );
  }
});

test('an error never quotes the field', () => {
  expect(() => parseChallengeList('Digest nonce="secret')).toThrow(
    'quoted string cut off or with a control character at character 21',
  );
});

describe('time is linear, without any bound', () => {
  const UNBOUNDED: ListBounds = {
    fieldLength: Number.POSITIVE_INFINITY,
    challenges: Number.POSITIVE_INFINITY,
    parameters: Number.POSITIVE_INFINITY,
    valueLength: Number.POSITIVE_INFINITY,
  };
  const LENGTH = 10 * 1024 * 1024;
  const READS_PER_CHARACTER = 6;
  const attacks: [what: string, field: (length: number) => string][] = [
    ['commas', (length) => ','.repeat(length)],
    ['quotes', (length) => `Digest realm=${'"'.repeat(length)}`],
    ['empty quoted strings', (length) => `Digest a${'="",a'.repeat(length / 5)}=""`],
    ['backslashes', (length) => `Digest realm="${'\\'.repeat(length)}`],
    ['backslashes, closed', (length) => `Digest realm="${'\\\\'.repeat(length / 2)}"`],
    ['blanks', (length) => ' '.repeat(length)],
    ['blanks before an equals sign', (length) => `Digest realm${' '.repeat(length)}="r"`],
    ['blanks after a first parameter', (length) => `Foo a${' '.repeat(length)}b`],
    ['scheme names without commas', (length) => 'Digest '.repeat(length / 7)],
    ['scheme names', (length) => 'Digest ,'.repeat(length / 8)],
    ['schemes with a token68', (length) => 'Foo a==,'.repeat(length / 8)],
    ['one token68', (length) => `Foo ${'a'.repeat(length)}"`],
    ['pads', (length) => `Foo a${'='.repeat(length)}"`],
  ];

  /**
   * The characters that `parse` reads: unlike time, the same on every machine. Stops it at `limit`, since at
   * this size anything worse than linear would not end.
   */
  function readsOf(parse: () => void, limit: number): number {
    const { charCodeAt } = String.prototype;
    let reads = 0;
    String.prototype.charCodeAt = function (at) {
      reads += 1;
      if (reads > limit) throw new Error(`more than ${limit} characters read`);
      return charCodeAt.call(this, at);
    };
    try {
      parse();
    } catch (error) {
      if (!(error instanceof DigestSyntaxError)) throw error;
    } finally {
      String.prototype.charCodeAt = charCodeAt;
    }
    return reads;
  }

  test('the count sees every read', () => {
    expect(readsOf(() => parseChallengeList(',,,,', UNBOUNDED), 100)).toBeGreaterThanOrEqual(4);
    expect(() => readsOf(() => parseChallengeList(',,,,', UNBOUNDED), 3)).toThrow('more than 3');
  });

  test.each(attacks)('10 MiB of %s', (_, attack) => {
    const field = attack(LENGTH);
    const reads = readsOf(() => parseChallengeList(field, UNBOUNDED), READS_PER_CHARACTER * LENGTH);
    expect(reads).toBeGreaterThan(0);
  });
});
