import { describe, expect, test } from '@jest/globals';
import { DigestSyntaxError, type ListBounds, parseChallengeList } from '../../src/digest/parameters.ts';

describe('time is linear, without any bound', () => {
  const UNBOUNDED: ListBounds = {
    fieldLength: Number.POSITIVE_INFINITY,
    challenges: Number.POSITIVE_INFINITY,
    parameters: Number.POSITIVE_INFINITY,
  };
  const LENGTH = 1024 * 1024;
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

  test.each(attacks)('1 MiB of %s', (_, attack) => {
    const field = attack(LENGTH);
    const reads = readsOf(() => parseChallengeList(field, UNBOUNDED), READS_PER_CHARACTER * LENGTH);
    expect(reads).toBeGreaterThan(0);
  });
});
