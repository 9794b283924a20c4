import { expect, test } from '@jest/globals';
import { run } from '../support/installed-package.ts';
import { repository } from '../support/repository.ts';
import type { Report } from './regular-expressions.ts';

/** A repetition at the start, behind it, behind another one, within another one, and behind a lookbehind. */
const SLOW = ['/[. +]+$/', '/ab.*c/', '/^\\s*a*\\s*$/', '/^(?:a+)+$/', '/(?<=q)ab.*c/'];

test('no regular expression of src/ takes more than linear time', async () => {
  const printed = await run('node', ['test/full/regular-expressions.ts', ...SLOW], repository);
  const { checked, constructed }: Report = JSON.parse(printed);
  const verdicts = new Map(checked.map(({ literal, verdict }) => [literal, verdict]));
  expect(SLOW.map((literal) => verdicts.get(literal))).toEqual(SLOW.map(() => 'vulnerable'));
  expect(checked.length).toBeGreaterThan(100);
  expect(checked.filter(({ file, verdict }) => file !== '' && verdict !== 'safe')).toEqual([]);
  expect(constructed).toEqual([]);
}, 600_000);
