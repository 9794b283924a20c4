/** The most columns of a line. */
export const WIDTH = 116;

/** Stands at the top of every generated page. */
export function generatedFrom(source: string): string {
  return `<!-- Generated from ${source} by "npm run docs". Do not edit. -->`;
}

/** Breaks a paragraph into lines; every line but the first, which has `first` columns, is indented. */
export function wrap(text: string, indent = '', first = WIDTH): string {
  const lines = [''];
  for (const word of text.split(/\s+/)) {
    const line = lines.at(-1) ?? '';
    const room = lines.length === 1 ? first : WIDTH - indent.length;
    if (line !== '' && line.length + 1 + word.length > room) lines.push(word);
    else lines[lines.length - 1] = line === '' ? word : `${line} ${word}`;
  }
  return lines.join(`\n${indent}`);
}

/** A page of blocks with an empty line between them. */
export function page(blocks: readonly string[]): string {
  return `${blocks.join('\n\n')}\n`;
}
