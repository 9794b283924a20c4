import { describe, expect, test } from '@jest/globals';
import { auditKeys } from '../../src/audit/keys.ts';
import { leavesOf } from '../../src/audit/merkle.ts';
import { checkSeal, parseSeal, type Seal, sealFor, sealLine } from '../../src/audit/seal.ts';
import { Secret } from '../../src/base/secret.ts';

const key = auditKeys(new Secret('0123456789abcdef'.repeat(4)));
const other = auditKeys(new Secret('f'.repeat(64)));
const chain = { replica: 'r1', previous: 'p'.repeat(43) };
const lines = Buffer.from('{"seq":7,"a":"é"}\n{"seq":8}\n{"checkpoint":"c"}\n');
const RANGE = { first: 7, last: 8 };
const forms = [
  ['sha256', lines],
  ['leaves', leavesOf(lines)],
] as const;

const isGood = (seal: Seal, of: Buffer, inChain = chain, keys = [key]): boolean => {
  const { fits, authentic } = checkSeal(keys, inChain, seal, of);
  return fits && authentic;
};

describe.each(forms)('a seal of the form %s', (form, covered) => {
  const seal = sealFor(key, chain, RANGE, covered);

  test('is read as it is written', () => {
    expect(seal.form).toBe(form);
    expect(parseSeal(sealLine(seal).trimEnd())).toEqual(seal);
    expect(isGood(seal, lines)).toBe(true);
  });

  test('does not fit if any bit of its lines is another one', () => {
    for (let at = 0; at < lines.length * 8; at += 1) {
      const changed = Buffer.from(lines);
      changed[at >> 3] = (changed[at >> 3] ?? 0) ^ (1 << (at & 7));
      expect(checkSeal([key], chain, seal, changed)).toMatchObject({ fits: false, authentic: true });
    }
  });

  test.each([
    ['cut off by its last line end', lines.subarray(0, -1)],
    ['followed by a part of a line', Buffer.concat([lines, Buffer.from('{"seq":9')])],
    ['followed by an empty line', Buffer.concat([lines, Buffer.from('\n')])],
    ['without the first line', lines.subarray(lines.indexOf('\n') + 1)],
    ['in another order', Buffer.from(lines.toString().split('\n').reverse().join('\n'))],
    ['none', Buffer.alloc(0)],
  ])('does not fit lines that are %s', (_title, changed) => {
    expect(checkSeal([key], chain, seal, changed).fits).toBe(false);
  });

  test('is not authentic with another key, chain, number, digest or form', () => {
    expect(isGood(seal, lines, chain, [other])).toBe(false);
    expect(isGood(seal, lines, { ...chain, replica: 'r2' })).toBe(false);
    expect(isGood(seal, lines, { ...chain, previous: 'q'.repeat(43) })).toBe(false);
    expect(isGood({ ...seal, first: 6 }, lines)).toBe(false);
    expect(isGood({ ...seal, last: 9 }, lines)).toBe(false);
    const swapped = form === 'leaves' ? ('sha256' as const) : ('leaves' as const);
    for (const change of [{ digest: 'A'.repeat(43) }, { hmac: 'A'.repeat(43) }, { form: swapped }]) {
      expect(checkSeal([key], chain, { ...seal, ...change }, lines).authentic).toBe(false);
    }
  });
});

test('a seal over no line covers none', () => {
  for (const covered of [Buffer.alloc(0), []]) {
    const seal = sealFor(key, chain, { first: 7, last: 6 }, covered);
    expect(isGood(seal, Buffer.alloc(0))).toBe(true);
    expect(isGood(seal, lines)).toBe(false);
  }
});

test.each(['[07,8]', '[7,08]', '[7,8.0]', '[+7,8]', '[0,8]'])(
  'a seal with the numbers %s is none',
  (numbers) => {
    const line = sealLine(sealFor(key, chain, RANGE, lines)).trimEnd();
    expect(parseSeal(line.replace('[7,8]', numbers))).toBeUndefined();
  },
);

test.each(['sha512', 'LEAVES', ''])('a seal with a digest named %j is none', (form) => {
  const line = sealLine(sealFor(key, chain, RANGE, lines)).trimEnd();
  expect(parseSeal(line.replace('sha256', form))).toBeUndefined();
});
