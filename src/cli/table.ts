import { stripVTControlCharacters } from 'node:util';

/** Characters that take two columns of a terminal: emoji, and those of East Asia. */
const WIDE =
  /\p{Emoji_Presentation}|[\p{Script=Han}\p{Script=Hangul}\p{Script=Hiragana}\p{Script=Katakana}\u3000-\u303e\uff01-\uff60\uffe0-\uffe6]/u;
const GAP = 2;

/**
 * Aligns cells in columns by their width on a terminal, two spaces apart. Line breaks in a cell are kept.
 *
 * @param rows all of the same length
 * @param leastWidths of the columns, for rows that are printed in several parts
 * @returns lines without line ends
 */
export function alignColumns(
  rows: readonly (readonly string[])[],
  leastWidths: readonly number[] = [],
): string[] {
  const cells = rows.map((row) => row.map((cell) => cell.split('\n')));
  const widths: number[] = [];
  for (const [column, lines] of cells.flatMap((row) => [...row.entries()])) {
    const known = widths[column] ?? leastWidths[column] ?? 0;
    widths[column] = lines.reduce((widest, line) => Math.max(widest, widthOf(line)), known);
  }
  return cells.flatMap((row) => {
    const height = row.reduce((highest, { length }) => Math.max(highest, length), 0);
    return Array.from({ length: height }, (_, at) =>
      row
        .map((lines, column) => padded(lines[at] ?? '', (widths[column] ?? 0) + GAP))
        .join('')
        .trimEnd(),
    );
  });
}

function padded(text: string, width: number): string {
  return text + ' '.repeat(width - widthOf(text));
}

function widthOf(text: string): number {
  if (/^[ -~]*$/.test(text)) return text.length;
  let width = 0;
  for (const { segment } of new Intl.Segmenter().segment(stripVTControlCharacters(text))) {
    width += WIDE.test(segment) ? 2 : 1;
  }
  return width;
}

/** The text of a table, with line ends. */
export function tableText(rows: readonly (readonly string[])[], leastWidths: readonly number[] = []): string {
  return alignColumns(rows, leastWidths)
    .map((line) => `${line}\n`)
    .join('');
}
