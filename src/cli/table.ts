import { getBorderCharacters, table } from 'table';

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
  if (rows.length === 0) return [];
  // The library has exact widths only, at which it would break longer cells. A row of spaces gives the least.
  const spacer = (rows[0] ?? []).map((_, index) => ' '.repeat(leastWidths[index] ?? 0));
  const text = table([...rows, spacer], {
    border: getBorderCharacters('void'),
    columnDefault: { paddingLeft: 0, paddingRight: 2 },
    drawHorizontalLine: () => false,
  });
  const lines = text.split('\n').map((line) => line.trimEnd());
  return lines.slice(0, -2);
}
