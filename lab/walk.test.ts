import { execFile } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { promisify } from 'node:util';
import { beforeAll, expect, test } from '@jest/globals';
import { repository } from '../test/support/repository.ts';

const LINE = /^(.+): (\d+) files, (\d+) functions, (\d+) asynchronous frames, (\d+) exchanges$/gm;
const ROW = /^\| (.+?) \| (\d+) \| (\d+) \| (\d+) \| (\d+) \|$/gm;
/** The figures on the page may differ from those of the code by this part of them. */
const TOLERANCE = 0.1;

/** Figures by the title of their walk: files, functions, asynchronous frames, exchanges. */
function figuresIn(text: string, pattern: RegExp): [title: string, figures: number[]][] {
  return Array.from(text.matchAll(pattern), ([, title = '', ...figures]) => [title, figures.map(Number)]);
}

let measured: ReturnType<typeof figuresIn>;

beforeAll(async () => {
  const run = promisify(execFile)(process.execPath, ['lab/walk/main.ts'], { cwd: repository });
  measured = figuresIn((await run).stdout, LINE);
});

test('each walk has its number of exchanges', () => {
  expect(measured.map(([title, figures]) => [title, figures.at(-1)])).toEqual([
    ['a cached nonce', 1],
    ['no nonce and no connection (cold)', 2],
    ['a stale nonce', 2],
    ['a candidate that is refused', 3],
    ['a password that changed to `next`', 5],
  ]);
});

test('the table in CONTRIBUTING.md is right; `npm run walk -- --write` refreshes it', () => {
  const written = figuresIn(readFileSync(`${repository}/CONTRIBUTING.md`, 'utf8'), ROW);
  const differs = (figure: number, stated = 0): boolean => Math.abs(figure - stated) > TOLERANCE * figure;
  const wrong = measured.filter(([title, figures], row) => {
    const [stated, those = []] = written[row] ?? [];
    return title !== stated || figures.some((figure, column) => differs(figure, those[column]));
  });
  expect(wrong).toEqual([]);
});
