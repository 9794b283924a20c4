/**
 * Escapes control characters, and characters that change the direction of text, as JSON does: outside text must not
 * command a terminal. A line of JSON stays the same for programs.
 */
export function printable(text: string): string {
  return text.replace(/[\p{Cc}\p{Cf}\u2028\u2029]/gu, escaped);
}

/** Does the same for each line. */
export function printableLines(text: string): string {
  return text.split('\n').map(printable).join('\n');
}

function escaped(character: string): string {
  return Array.from(
    { length: character.length },
    (_, at) => `\\u${character.charCodeAt(at).toString(16).padStart(4, '0')}`,
  ).join('');
}

/** Writes a name as a word of a command that people copy into a shell. */
export function shellWord(name: string): string {
  return /^[\w@%+=:,./-]+$/.test(name) ? name : `'${name.replaceAll("'", "'\\''")}'`;
}

const ENTITIES: Readonly<Record<string, string>> = {
  '&': '&amp;',
  '<': '&lt;',
  '>': '&gt;',
  '"': '&quot;',
  "'": '&apos;',
};

/** Writes a text for HTML or XML, also for an attribute in quotes. */
export function escapeMarkup(text: string): string {
  return text.replace(/[&<>"']/g, (character) => ENTITIES[character] ?? '');
}
