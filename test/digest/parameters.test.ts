import { describe, expect, test } from '@jest/globals';
import fc from 'fast-check';
import {
  DigestSyntaxError,
  parseChallengeList,
  parseParameterList,
  quote,
  quotedParameter,
} from '../../src/digest/parameters.ts';
import { fuzzRuns } from '../support/fuzz.ts';

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
          if (!(error instanceof DigestSyntaxError)) throw error;
        }
      }),
      { numRuns: fuzzRuns(3000) },
    );
  }
});

describe('a token alone between commas', () => {
  const read = (field: string): string[] =>
    parseChallengeList(field).map(
      ({ scheme, parameters: { values } }) => `${scheme}(${[...values].map((pair) => pair.join('='))})`,
    );

  test.each([
    ['begins a challenge, to which what follows belongs', 'A, x=1', ['a(x=1)']],
    ['after one without parameters, too', 'A, B, x=1', ['a()', 'b(x=1)']],
    ['inside a challenge is a value that lost its quotes', 'A y=1, B, x=1', ['a(y=1,x=1)', 'b()']],
    ['begins a challenge if it is Digest', 'A y=1, Digest, x=1', ['a(y=1)', 'digest(x=1)']],
  ])('%s', (_, field, challenges) => expect(read(field)).toEqual(challenges));

  test('may be a token68 with blanks after it', () => {
    expect(read('Foo abc== , Digest nonce=n')).toEqual(['foo()', 'digest(nonce=n)']);
  });
});

test.each([
  ['a list without a comma', 'a=1 b=2'],
  ['a value without a name', '="x"'],
  ['a tab in an unquoted value', 'a=x\ty'],
  ['a quote in an unquoted value', 'a=x"y'],
  ['a backslash in an unquoted value', 'a=x\\y'],
  ['a semicolon in an unquoted value', 'a=x;y'],
])('%s is refused', (_, field) => {
  expect(() => parseParameterList(field)).toThrow(expect.objectContaining({ name: 'DigestSyntaxError' }));
});

test('an error never quotes the field', () => {
  expect(() => parseChallengeList('Digest nonce="secret')).toThrow(
    'quoted string cut off or with a control character at character 21',
  );
});
