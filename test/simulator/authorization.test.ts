import { describe, expect, test } from '@jest/globals';
import { readAuthorization } from '../../src/simulator/authorization.ts';
import { cpuMeter } from '../support/measure.ts';

const read = (text: string) => {
  const credentials = readAuthorization(text);
  return credentials && { scheme: credentials.scheme, ...Object.fromEntries(credentials.parameters) };
};

describe('an Authorization header', () => {
  test.each([
    ['bare and quoted values', 'Digest a=1, B="two"', { scheme: 'digest', a: '1', b: 'two' }],
    ['escapes', String.raw`Digest a="x\"y\\z"`, { scheme: 'digest', a: String.raw`x"y\z` }],
    ['delimiters within quotes', 'Digest a="x, b=y", c=z', { scheme: 'digest', a: 'x, b=y', c: 'z' }],
    ['no blanks, and too many', 'dIGEST\ta = 1,b="2" ,, c=3 ,', { scheme: 'digest', a: '1', b: '2', c: '3' }],
    ['an empty value', 'Digest a="", b=2', { scheme: 'digest', a: '', b: '2' }],
    [
      'an extended value',
      "Digest username*=UTF-8''J%C3%A4s",
      { scheme: 'digest', 'username*': "UTF-8''J%C3%A4s" },
    ],
    ['a scheme alone', 'Digest', { scheme: 'digest' }],
    ['another scheme', 'Basic YTpi', { scheme: 'basic' }],
    ['a parameter twice', 'Digest a=1, A=2', undefined],
    ['an open quote', 'Digest a="1', undefined],
    ['an open escape', 'Digest a="1\\', undefined],
    ['no comma', 'Digest a="1" b="2"', undefined],
    ['no name', 'Digest ="1"', undefined],
    ['no value', 'Digest a', undefined],
  ])('%s', (_, text, expected) => {
    expect(read(text)).toEqual(expected);
  });

  test.each([',', '"', '\\', 'a=1,', ' ', 'a="\\"'])('%j again and again is read in no time', (part) => {
    const cpuMs = cpuMeter();
    for (const text of [part.repeat(30_000 / part.length), part.repeat(1_000_000)])
      readAuthorization(`Digest ${text}`);
    expect(cpuMs()).toBeLessThan(500);
  });
});
